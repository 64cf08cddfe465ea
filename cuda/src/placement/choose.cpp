// Estimates of what a call takes on the processor and through the device, and the choice between them.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "cukern/placement.h"
#include "context/context.h"
#include "host/costs.h"
#include "host/kernels.h"
#include "host/thread_pool.h"
#include "placement/machines.h"
#include "plan/launch.h"
#include "transfer/staging.h"

namespace cukern {
namespace {

constexpr double kProducts = 262144;      // multiply-adds that are worth a thread
constexpr double kSmallBytes = 64 << 10;  // of an operand that kernels read over the link

#include "placement/model.inc"

constexpr double kAtOnce = 8000;  // nanoseconds: calls of less arithmetic are the processor's, without an estimate
constexpr const char *kFaster = "estimated to be faster";

// What a call does, as the estimates need it.
struct Work {
    double elements = 0;     // that the operation is applied to
    double nanoseconds = 0;  // of one thread, operands in cache
    Op op = Op::copy;
    double steps = 0;     // nanoseconds of one thread for operands that are not packed: on the device too
    double in_bytes = 0;  // broadcast operands once
    double out_bytes = 0;
    double largest_bytes = 0;  // of one operand
    double products = 0;       // multiply-adds
    ElementType compute = ElementType::float32;
};

// Adds what an operand adds. Broadcast dimensions, whose strides are 0, are not in memory.
void add_operand(Work &work, ElementType type, const std::int64_t *shape, const std::int64_t *strides, int ndim,
                 bool is_out) noexcept {
    double count = 1;
    std::int64_t last_step = 1;
    bool is_broadcast = false;
    for (int i = 0; i < ndim; ++i) {
        if (shape[i] == 1) continue;
        last_step = strides[i];
        if (strides[i] == 0)
            is_broadcast = true;
        else
            count *= static_cast<double>(shape[i]);
    }
    const double bytes = count * size_of(type);
    (is_out ? work.out_bytes : work.in_bytes) += bytes;
    work.largest_bytes = std::max(work.largest_bytes, bytes);
    if (!is_broadcast && last_step != 1) work.steps += kSteps * count;
}
void add_operand(Work &work, const TensorView &view, bool is_out) noexcept {
    add_operand(work, view.type, view.shape, view.strides, view.ndim, is_out);
}

// Whether the processor takes what is of one type as what is of another: a truth is a number of one byte.
bool is_same_byte(ElementType stored, ElementType compute) noexcept {
    return stored == ElementType::bool_ && is_integer(compute) && size_of(compute) == 1;
}

// Of the launch that it is planned as: a power of truths is a comparison, and logic takes operands as they are.
Work work_of(const ElementwiseCall &call) noexcept {
    ElementwiseLaunch launch;
    plan_elementwise(call, &launch);
    Work work;
    work.op = launch.op;
    work.compute = launch.op == Op::copy ? launch.types[0] : launch.compute;
    work.elements = static_cast<double>(launch.count);
    work.nanoseconds = work.elements * host_cost(work.op, work.compute);
    for (int i = 0; i < launch.num_operands; ++i) {
        if (launch.immediate[i]) continue;
        add_operand(work, launch.types[i], launch.shape, launch.strides[i], launch.ndim, i == 0);
        const bool is_condition = launch.op == Op::where && i == 1;
        if (i > 0 && !is_condition && launch.types[i] != work.compute &&
            !is_same_byte(launch.types[i], work.compute))
            work.nanoseconds += kConversion * work.elements;
    }
    return work;
}

template <typename Call>
Work work_along(const Call &call) noexcept {
    const TensorView &input = *call.inputs[0];
    Work work;
    work.compute = input.type;
    work.elements = static_cast<double>(count_of(input));
    work.nanoseconds = work.elements * host_cost(call.op, work.compute);
    work.op = call.op;
    add_operand(work, input, false);
    add_operand(work, *call.out, true);
    return work;
}
Work work_of(const ScanCall &call) noexcept { return work_along(call); }

// Whether the partial results of an operation are joined by vectors where many results lie beside each other.
bool joins_by_vectors(Op op, ElementType type) noexcept {
    if (is_floating(type) && size_of(type) == 2) return false;
    if (op == Op::sum || op == Op::mean) return true;
    return (op == Op::prod || op == Op::max || op == Op::min) && kind_of(type) != 'c';
}

// The table has the cost of one long run, in which each element waits for the one before.
Work work_of(const ReduceCall &call) noexcept {
    Work work = work_along(call);
    const TensorView &input = *call.inputs[0];
    int last = input.ndim - 1;
    while (last > 0 && input.shape[last] == 1) --last;
    const bool lies_in_columns = last >= 0 && input.strides[last] == 1 && !call.reduced[last];
    if (lies_in_columns && joins_by_vectors(call.op, input.type))
        work.nanoseconds =
            std::min(work.nanoseconds, kColumnByte * work.elements * static_cast<double>(size_of(call.compute)));
    return work;
}

Work work_of(const MatmulCall &call) noexcept {
    Work work;
    work.compute = call.compute;
    work.elements = static_cast<double>(count_of(*call.out));
    const double terms = kind_of(call.compute) == 'c' ? 4 : 1;
    work.products = terms * work.elements * static_cast<double>(call.inputs[0]->shape[call.out->ndim - 1]);
    for (int i = 0; i < 2; ++i) {
        add_operand(work, *call.inputs[i], false);
        if (call.inputs[i]->type != call.compute) work.nanoseconds += kConversion * work.elements;
    }
    add_operand(work, *call.out, true);
    return work;
}

// Of the rates of products.
int product_kind(ElementType compute) noexcept {
    if (is_integer(compute)) return 2;
    return compute == ElementType::float64 || compute == ElementType::complex128 ? 1 : 0;
}

// In nanoseconds.
double host_time(const Work &work, const Machine &machine, int most_threads, int *threads) noexcept {
    const double bytes = work.in_bytes + work.out_bytes;
    const double grain = work.products > 0
                             ? kProducts
                             : static_cast<double>(host_grain(work.op, work.compute, work.elements, bytes));
    const double units = std::max(work.products, work.elements) / grain;
    *threads = std::max(1, static_cast<int>(std::min<double>(most_threads, units)));
    const double rate = std::min(machine.thread_memory * *threads, machine.most_memory);
    const double memory = bytes > kCachedBytes ? bytes / rate : 0;
    const double products = work.products / (machine.host_products[product_kind(work.compute)] * *threads);
    const double arithmetic = work.nanoseconds * machine.host_rows / *threads + products;
    return machine.host_call + (*threads > 1 ? machine.host_threads : 0) + work.steps / *threads +
           std::max(arithmetic, memory) + kLesserPart * std::min(arithmetic, memory);
}

double device_time(const Work &work, const Machine &machine, int most_threads) noexcept {
    const double bytes = work.in_bytes + work.out_bytes;
    const double workers = std::clamp<double>(bytes / kBytesOfWorker, 1, most_threads);
    const double rate = std::min(machine.thread_copies * workers, machine.most_copies);
    const double products = work.products / machine.device_products[product_kind(work.compute)];
    const double call = work.largest_bytes <= kSmallBytes ? machine.small_call : machine.large_call;
    // As they are measured, calls follow each other and find all in the caches. One after calls of the processor
    // takes about twice as long: 24 to 28 us beside an H200 (benchmarks/results/placement.json).
    return std::max(2 * machine.small_call, call + bytes / rate + work.steps / most_threads +
                                                work.nanoseconds / machine.device_work + products);
}

// The constants for a device, found when it is first asked for, and kept.
const Machine *machine_on(Runtime &runtime, int device) noexcept {
    constexpr int kMostDevices = 64;
    static std::atomic<const Machine *> found[kMostDevices];
    if (device < 0 && runtime.current_device(&device) != CUKERN_OK) return nullptr;
    if (device < 0 || device >= kMostDevices) return nullptr;
    const Machine *machine = found[device].load(std::memory_order_acquire);
    if (machine != nullptr) return machine;
    DeviceInfo info;
    if (runtime.device_info(device, &info) != CUKERN_OK) return nullptr;
    const auto *const fresh = new (std::nothrow) Machine(machine_of(info));
    if (fresh == nullptr) return nullptr;
    if (found[device].compare_exchange_strong(machine, fresh, std::memory_order_acq_rel)) return fresh;
    delete fresh;
    return machine;
}

// Algorithms that are named run where they are: their kernels are of the device.
bool names_kernel(const MatmulCall &call) noexcept { return call.algorithm != MatmulAlgorithm::automatic; }
template <typename Call>
bool names_kernel(const Call &) noexcept {
    return false;
}

// About what the processor takes at most, found without planning: where it is less than kAtOnce, the estimate is
// less than a device's for any call.
double most_arithmetic(const ElementwiseCall &call) noexcept {
    const double operands = kMaxInputs * kConversion + (kMaxInputs + 1) * kSteps;
    return static_cast<double>(count_of(*call.out)) * (host_cost(call.op, call.compute) + operands);
}
template <typename Call>
double most_arithmetic(const Call &call) noexcept {
    const TensorView &input = *call.inputs[0];
    return static_cast<double>(count_of(input)) * (host_cost(call.op, input.type) + kSteps) +
           kSteps * static_cast<double>(count_of(*call.out));
}
double most_arithmetic(const MatmulCall &call) noexcept {
    const Work work = work_of(call);
    return work.products + work.steps + work.elements;
}

template <typename Call>
PlacementChoice choose(const Call &call, const Execution &where, bool estimates) noexcept {
    PlacementChoice choice;
    Context *active = nullptr;
    if (chosen_context(&active) != CUKERN_OK || !Staging::is_needed(*active)) {
        choice.reason = "the host back-end is in use";
        if (!estimates || active == nullptr) return choice;
        const Machine machine = machine_of({});
        choice.host = host_time(work_of(call), machine, pool_threads(), &choice.threads) * 1e-9;
        choice.machine = machine.device;
        return choice;
    }
    if (active->generation != fork_generation()) {
        choice.reason = "this is a child of fork, which cannot use the GPU";
        return choice;
    }
    choice.placement = current_placement();
    choice.reason = "asked for";
    if (choice.placement == Placement::automatic && (names_kernel(call) || where.is_shared)) {
        choice.placement = Placement::device;
        choice.reason = where.is_shared ? "an Array that the device reaches takes part"
                                        : "the function names a kernel of the device";
    }
    if (choice.placement != Placement::automatic && !estimates) return choice;
    if (!estimates && most_arithmetic(call) < kAtOnce) {
        choice.reason = kFaster;
        choice.placement = Placement::host;
        return choice;
    }
    const Machine *const machine = machine_on(active->runtime, where.host_device);
    if (machine == nullptr) {
        if (choice.placement == Placement::automatic) choice.placement = Placement::device;
        return choice;
    }
    const Work work = work_of(call);
    const int threads = pool_threads();
    choice.machine = machine->device;
    choice.host = host_time(work, *machine, threads, &choice.threads) * 1e-9;
    choice.device = device_time(work, *machine, threads) * 1e-9;
    if (choice.placement == Placement::automatic) {
        choice.placement = choice.host <= choice.device ? Placement::host : Placement::device;
        choice.reason = kFaster;
    }
    return choice;
}

}  // namespace

HostLoop brief_loop(Op op, ElementType inputs, std::int64_t count, bool are_packed) noexcept {
    if (count == 0 || (!are_packed && host::bits_depend_on_strides(op, inputs)) ||
        static_cast<double>(count) * host_cost(op, inputs) >= kAtOnce)
        return {};
    const HostLoop loop = host::elementwise_loop(op, inputs);
    Context *active = nullptr;
    if (loop.function == nullptr || chosen_context(&active) != CUKERN_OK) return {};
    const bool is_elsewhere = Staging::is_needed(*active) && current_placement() == Placement::device;
    return is_elsewhere ? HostLoop{} : loop;
}

PlacementChoice choose_placement(const ElementwiseCall &call, const Execution &where, bool estimates) noexcept {
    return choose(call, where, estimates);
}
PlacementChoice choose_placement(const ReduceCall &call, const Execution &where, bool estimates) noexcept {
    return choose(call, where, estimates);
}
PlacementChoice choose_placement(const ScanCall &call, const Execution &where, bool estimates) noexcept {
    return choose(call, where, estimates);
}
PlacementChoice choose_placement(const MatmulCall &call, const Execution &where, bool estimates) noexcept {
    return choose(call, where, estimates);
}

}  // namespace cukern
