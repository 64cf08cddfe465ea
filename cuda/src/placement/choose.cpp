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
#include "transfer/staging.h"

namespace cukern {
namespace {

constexpr double kConversion = 0.4;       // nanoseconds an element of an operand of another type
constexpr double kSteps = 1.0;            // of one that is not packed: it is gathered, here or to be sent
constexpr double kProducts = 262144;      // multiply-adds that are worth a thread
constexpr double kSmallBytes = 64 << 10;  // of an operand that kernels read over the link

constexpr double kAtOnce = 8000;  // nanoseconds that no call through a device is as short as
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

// Whether elements that follow each other in the last dimension do so in memory.
bool has_steps(const TensorView &view) noexcept {
    for (int i = view.ndim - 1; i >= 0; --i)
        if (view.shape[i] != 1) return view.strides[i] != 1;
    return false;
}

// Adds what an operand of the host adds.
void add_operand(Work &work, const TensorView &view, ElementType type, bool is_out) noexcept {
    if (view.immediate) return;
    double count = 1;
    bool is_broadcast = false;
    for (int i = 0; i < view.ndim; ++i) {
        if (view.strides[i] == 0 && view.shape[i] != 1)
            is_broadcast = true;
        else
            count *= static_cast<double>(view.shape[i]);
    }
    const double bytes = count * size_of(view.type);
    (is_out ? work.out_bytes : work.in_bytes) += bytes;
    work.largest_bytes = std::max(work.largest_bytes, bytes);
    if (view.type != type) work.nanoseconds += kConversion * work.elements;
    if (!is_broadcast && has_steps(view)) work.steps += kSteps * count;
}

Work work_of(const ElementwiseCall &call) noexcept {
    Work work;
    work.compute = call.op == Op::copy ? call.out->type : call.compute;
    work.elements = static_cast<double>(count_of(*call.out));
    work.nanoseconds = work.elements * host_cost(call.op, work.compute);
    work.op = call.op;
    for (int i = 0; i < kMaxInputs && call.inputs[i] != nullptr; ++i)
        add_operand(work, *call.inputs[i], work.compute, false);
    add_operand(work, *call.out, call.out->type, true);
    return work;
}

template <typename Call>
Work work_along(const Call &call) noexcept {
    Work work;
    work.compute = call.inputs[0]->type;
    work.elements = static_cast<double>(count_of(*call.inputs[0]));
    work.nanoseconds = work.elements * host_cost(call.op, work.compute);
    work.op = call.op;
    add_operand(work, *call.inputs[0], work.compute, false);
    add_operand(work, *call.out, call.out->type, true);
    return work;
}
Work work_of(const ReduceCall &call) noexcept { return work_along(call); }
Work work_of(const ScanCall &call) noexcept { return work_along(call); }

Work work_of(const MatmulCall &call) noexcept {
    Work work;
    work.compute = call.compute;
    work.elements = static_cast<double>(count_of(*call.out));
    const double terms = kind_of(call.compute) == 'c' ? 4 : 1;
    work.products = terms * work.elements * static_cast<double>(call.inputs[0]->shape[call.out->ndim - 1]);
    for (int i = 0; i < 2; ++i) add_operand(work, *call.inputs[i], call.compute, false);
    add_operand(work, *call.out, call.out->type, true);
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
    return machine.host_call + (*threads > 1 ? machine.host_threads : 0) + work.steps / *threads +
           std::max(work.nanoseconds * machine.host_rows / *threads + products, memory);
}

double device_time(const Work &work, const Machine &machine, int most_threads) noexcept {
    const double bytes = work.in_bytes + work.out_bytes;
    const double rate = std::min(machine.thread_copies * most_threads, machine.most_copies);
    const double products = work.products / machine.device_products[product_kind(work.compute)];
    const double call = work.largest_bytes <= kSmallBytes ? machine.small_call : machine.large_call;
    return call + bytes / rate + work.steps / most_threads + work.nanoseconds / machine.device_work + products;
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
    const Work work = work_of(call);
    if (!estimates && work.nanoseconds + work.steps + work.products < kAtOnce) {
        choice.reason = kFaster;
        choice.placement = Placement::host;
        return choice;
    }
    const Machine *const machine = machine_on(active->runtime, where.host_device);
    if (machine == nullptr) {
        if (choice.placement == Placement::automatic) choice.placement = Placement::device;
        return choice;
    }
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
