#include "device/matmul/own_product.h"

#include <algorithm>
#include <atomic>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cukern/ops.h"
#include "device/driver.h"
#include "device/matmul/tile_schedule.h"
#include "plan/rounding.h"

namespace cukern::cuda {
namespace {

// Microseconds that a kernel takes: to start; for a tile, once for all that it does but multiply, and for a step;
// and where tiles are shared, to join their parts, and for each part of a tile. Fitted to what 768 products of
// float32 and 506 of float64 took on an H100, by each kernel: the choice costs 1 % and 2 % on average. Only which
// of two kernels takes less has to be right.
struct Cost {
    double start, tile, step, join, part;
};

double time_of(const TileSchedule &s, const Cost &cost, double steps) noexcept {
    const double rounds = divided_up(s.whole, s.blocks);
    const double share = cost.step * (s.share + (s.longer > 0 ? 1 : 0));
    const double parts =
        s.shared > 0 ? cost.join + cost.part * s.blocks / s.shared + s.waves * share + (s.waves - 1) * cost.tile
                     : 0;
    return cost.start + rounds * (cost.tile + cost.step * steps) + parts;
}

template <typename T>
double time_of_sliced(const TileSchedule &s, const MatmulLaunch &launch, const Chip &chip) noexcept {
    constexpr bool kIsWide = sizeof(T) == 4;
    constexpr Cost kCost = kIsWide ? Cost{0.6, 2.6, 2.1, 7.5, 0} : Cost{1.2, 1.9, 0.75, 4.7, 0.16};
    constexpr double kCluster = kIsWide ? 2.5 : 4;
    if (s.cluster > 1) return kCost.start + kCluster + kCost.step * divided_up(s.steps, s.cluster);
    Cost cost = kCost;
    if (kIsWide && s.whole <= chip.multiprocessors) cost.tile = 1.7;  // one block on each
    // Warps without a slice of the last step don't wait for the others.
    constexpr int kStep = kIsWide ? 128 : 64;
    return time_of(s, cost, static_cast<double>(launch.k) / kStep);
}

template <typename T>
double time_of_tiled(const TileSchedule &s, const MatmulLaunch &launch, bool is_transposed) noexcept {
    constexpr bool kIsWide = sizeof(T) == 4;
    constexpr int kVector = kIsWide ? 4 : 2;
    Cost cost = kIsWide ? Cost{1.5, 3.3, 3.13, 4.7, 0.17} : Cost{1, 2.8, 0.97, 5, 0.17};
    // Elements of a lane that are stored one by one fill a part of a sector each.
    const bool stores_vectors = launch.n % kVector == 0 && launch.ldc % kVector == 0;
    if (!is_transposed && !stores_vectors) cost.tile = kIsWide ? 16 : 4;
    return time_of(s, cost, s.steps);
}

// Whether all kernels are compiled for a type; the sliced one and that for vectors are for all that products are
// computed in. Integers are multiplied at half the rate of floats, and complex numbers take four times the fma for
// what they read, so that they would gain little by it.
constexpr bool has_all_kernels(ElementType type) {
    return type == ElementType::float32 || type == ElementType::float64;
}

// A kernel with the side that it takes a product from.
struct Choice {
    enum class Kernel { sliced, tiled, direct, short_sums, vector } kernel;
    bool is_transposed;
    TileSchedule schedule;  // of the first two
};

template <ElementType type>
Choice choose(const MatmulLaunch &launch, const Chip &chip) noexcept {
    using T = CTypeOf<type>;
    Choice choice{Choice::Kernel::sliced, false, schedule_sliced<T>(launch, chip)};
    if constexpr (!has_all_kernels(type)) {
        if (time_of_vector<T>(launch) < kNever) choice = {Choice::Kernel::vector, false, {}};
    } else {
        double least = time_of_sliced<T>(choice.schedule, launch, chip);
        const auto take = [&](Choice::Kernel kernel, bool is_transposed, const TileSchedule &schedule,
                              double time) {
            if (time < least) choice = {kernel, is_transposed, schedule};
            least = std::min(least, time);
        };
        for (const bool is_transposed : {false, true}) {
            const MatmulLaunch side = is_transposed ? transposed(launch) : launch;
            if (!side.c_transposed)
                take(Choice::Kernel::short_sums, is_transposed, {}, time_of_short<T>(side, chip));
            if (chip.generation < 8) continue;  // for which the tiled kernel is not compiled
            const TileSchedule schedule = schedule_tiled<T>(side, chip);
            // It stores rows, and leaves it to the kernel that adds up shared tiles to store columns.
            if (is_transposed == launch.c_transposed || schedule.whole == 0)
                take(Choice::Kernel::tiled, is_transposed, schedule,
                     time_of_tiled<T>(schedule, side, is_transposed != launch.c_transposed));
        }
        if (has_direct(type, chip.generation)) take(Choice::Kernel::direct, false, {}, time_of_direct<T>(launch));
        take(Choice::Kernel::vector, false, {}, time_of_vector<T>(launch));
    }
    return choice;
}

// Whether two launches are of one choice: alike but for addresses.
bool are_alike(const MatmulLaunch &a, const MatmulLaunch &b) noexcept {
    const auto facts = [](const MatmulLaunch &p) {
        return std::make_tuple(p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.a_transposed, p.b_transposed, p.c_transposed,
                               p.batch, p.batch_a, p.batch_b, p.batch_c, p.saves_scratch);
    };
    return facts(a) == facts(b);
}

bool are_alike(const Chip &a, const Chip &b) noexcept {
    return a.multiprocessors == b.multiprocessors && a.shared_bytes == b.shared_bytes &&
           a.generation == b.generation;
}

// Scratch memory is asked for before each launch, and calls repeat: a thread keeps its last choice.
template <ElementType type>
const Choice &kept_choice(const MatmulLaunch &launch, const Chip &chip) noexcept {
    struct Last {
        MatmulLaunch launch;  // m is 0 before the first one
        Chip chip;
        Choice choice;
    };
    static thread_local Last last{};
    if (!are_alike(last.launch, launch) || !are_alike(last.chip, chip))
        last = {launch, chip, choose<type>(launch, chip)};
    return last.choice;
}

template <ElementType type>
cudaError_t launch_chosen(const MatmulLaunch &launch, const Chip &chip, cudaStream_t stream) noexcept {
    using T = CTypeOf<type>;
    const Choice &choice = kept_choice<type>(launch, chip);
    if (choice.kernel == Choice::Kernel::vector) return launch_matmul_vector<T>(launch, stream);
    if constexpr (has_all_kernels(type)) {
        if (choice.kernel == Choice::Kernel::direct) return launch_matmul_direct<T>(launch, stream);
        if (choice.kernel == Choice::Kernel::short_sums)
            return launch_matmul_short<T>(choice.is_transposed ? transposed(launch) : launch, stream);
        if (choice.kernel == Choice::Kernel::tiled)
            return launch_matmul_tiled<T>(choice.is_transposed ? transposed(launch) : launch, choice.schedule,
                                          stream);
    }
    return launch_matmul_sliced<T>(launch, choice.schedule, chip, stream);
}

// Calls function(constant of the element type), for the types that products have kernels for.
template <typename Function>
void with_type(ElementType type, const Function &function) noexcept {
    switch (type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)     \
    case ElementType::id:                                                     \
        if constexpr (has_product(ElementType::id))                           \
            function(std::integral_constant<ElementType, ElementType::id>()); \
        return;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
}

// Calls function(launch) for parts of a batch, none of which has too many tiles, until one fails.
template <typename Function>
cudaError_t for_each_part(const MatmulLaunch &launch, const Function &function) noexcept {
    constexpr std::int64_t kLeastSide = 8;  // of a tile
    const std::int64_t tiles = divided_up(launch.m, kLeastSide) * divided_up(launch.n, kLeastSide);
    const std::int64_t most = std::max<std::int64_t>(1, kMostTiles / tiles);
    if (launch.batch <= most) return function(launch);
    const std::int64_t size = size_of(launch.type);
    MatmulLaunch part = launch;
    part.prepared = nullptr;  // several kernels
    cudaError_t error = cudaSuccess;
    for (std::int64_t first = 0; first < launch.batch && error == cudaSuccess; first += most) {
        part.batch = std::min(most, launch.batch - first);
        part.a = static_cast<const char *>(launch.a) + first * launch.batch_a * size;
        part.b = static_cast<const char *>(launch.b) + first * launch.batch_b * size;
        part.c = static_cast<char *>(launch.c) + first * launch.batch_c * size;
        error = function(part);
    }
    return error;
}

// The generation of the code that a device runs: it may be older than the device, where the build names no other.
int generation_of_code(int generation) noexcept {
    int found = 0;
    for (const int architecture : {__CUDA_ARCH_LIST__})
        if (architecture / 100 <= generation) found = std::max(found, architecture / 100);
    return found;
}

constexpr int kMostDevices = 64;
std::atomic<std::uint64_t> g_chips[kMostDevices];  // 20 bits for each number; 0: not asked for yet

}  // namespace

MatmulLaunch transposed(const MatmulLaunch &launch) noexcept {
    MatmulLaunch other = launch;
    std::swap(other.a, other.b);
    std::swap(other.lda, other.ldb);
    std::swap(other.m, other.n);
    std::swap(other.batch_a, other.batch_b);
    other.a_transposed = !launch.b_transposed;
    other.b_transposed = !launch.a_transposed;
    other.c_transposed = !launch.c_transposed;
    return other;
}

cudaError_t current_chip(Chip *chip) noexcept {
    int device = 0;
    if (const cudaError_t error = current_device(&device); error != cudaSuccess) return error;
    if (device < 0 || device >= kMostDevices) return cudaErrorInvalidDevice;
    std::uint64_t known = g_chips[device].load(std::memory_order_relaxed);
    if (known == 0) {
        constexpr cudaDeviceAttr kAttributes[] = {cudaDevAttrComputeCapabilityMajor,
                                                  cudaDevAttrMultiProcessorCount,
                                                  cudaDevAttrMaxSharedMemoryPerBlockOptin};
        for (const cudaDeviceAttr attribute : kAttributes) {
            int value = 0;
            if (const cudaError_t error = cudaDeviceGetAttribute(&value, attribute, device); error != cudaSuccess)
                return error;
            known = known << 20 | static_cast<std::uint64_t>(value);
        }
        g_chips[device].store(known, std::memory_order_relaxed);
    }
    constexpr std::uint64_t kLow = (1 << 20) - 1;
    *chip = {static_cast<int>(known >> 20 & kLow), static_cast<int>(known & kLow),
             generation_of_code(static_cast<int>(known >> 40))};
    return cudaSuccess;
}

std::int64_t own_product_scratch(const MatmulLaunch &launch, const Chip &chip) noexcept {
    std::int64_t most = 0;
    for_each_part(launch, [&](const MatmulLaunch &part) {
        with_type(launch.type, [&](auto type) {
            const TileSchedule &schedule = kept_choice<type.value>(part, chip).schedule;
            most = std::max(most, schedule.scratch_elements() * size_of(launch.type));
        });
        return cudaSuccess;
    });
    return most;
}

cudaError_t launch_own_product(const MatmulLaunch &launch, const Chip &chip, cudaStream_t stream) noexcept {
    return for_each_part(launch, [&](const MatmulLaunch &part) {
        cudaError_t error = cudaErrorInvalidValue;
        with_type(launch.type, [&](auto type) { error = launch_chosen<type.value>(part, chip, stream); });
        return error;
    });
}

}  // namespace cukern::cuda
