#include "device/matmul/own_product.h"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <utility>

#include "cukern/ops.h"
#include "device/driver.h"
#include "device/matmul/tile_schedule.h"
#include "plan/rounding.h"

namespace cukern::cuda {
namespace {

// c' = b' @ a': the same results, from the other side.
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

// Microseconds that a kernel takes for its part of a schedule, on each multiprocessor: to start, for a step of a
// tile, and to add up shared tiles. Measured on an H100; only which of two kernels takes less has to be right.
struct Cost {
    double start, step, join;
};

double time_of(const TileSchedule &s, const Cost &cost) noexcept {
    const double tiles = static_cast<double>(divided_up(s.whole, s.blocks)) * s.steps;
    const double steps = s.cluster > 1 ? divided_up(s.steps, s.cluster) : tiles + s.share + (s.longer > 0 ? 1 : 0);
    return cost.start + steps * cost.step + (s.shared > 0 ? cost.join : 0);
}

// Whether the tiled kernel and the direct one are compiled for a type; the sliced one is for all that products are
// computed in. Integers are multiplied at half the rate of floats, and complex numbers take four times the fma for
// what they read, so that they would gain little by it.
constexpr bool has_all_kernels(ElementType type) {
    return type == ElementType::float32 || type == ElementType::float64;
}

// A kernel with the side that it takes a product from.
struct Choice {
    enum class Kernel { sliced, tiled, direct } kernel;
    bool is_transposed;
    TileSchedule schedule;  // of the first two
};

template <ElementType type>
Choice choose(const MatmulLaunch &launch, const Chip &chip) noexcept {
    using T = CTypeOf<type>;
    Choice choice{Choice::Kernel::sliced, false, schedule_sliced<T>(launch, chip)};
    if constexpr (has_all_kernels(type)) {
        constexpr bool kIsWide = sizeof(T) == 4;
        constexpr Cost kTiled = kIsWide ? Cost{5, 2.7, 10} : Cost{5, 1.5, 10};
        constexpr Cost kSliced = kIsWide ? Cost{2.6, 2.4, 3} : Cost{2.6, 1.0, 3};
        // What small products were measured to take beyond these estimates.
        constexpr double kBeyond = kIsWide ? -1.8 : 0.8;
        double least = time_of(choice.schedule, kSliced);
        for (const bool is_transposed : {false, true}) {
            if (chip.generation < 8) break;  // for which it is not compiled
            const TileSchedule schedule = schedule_tiled<T>(is_transposed ? transposed(launch) : launch, chip);
            // It stores rows, and leaves it to the kernel that adds up shared tiles to store columns.
            if (is_transposed != launch.c_transposed && schedule.whole > 0) continue;
            const double time = time_of(schedule, kTiled);
            if (time < least) choice = {Choice::Kernel::tiled, is_transposed, schedule};
            least = std::min(least, time);
        }
        if (has_direct(type, chip.generation) && time_of_direct<T>(launch) < least + kBeyond)
            choice = {Choice::Kernel::direct, false, {}};
    }
    return choice;
}

// Scratch memory is asked for before each launch, and calls repeat: a thread keeps its last choice.
template <ElementType type>
const Choice &kept_choice(const MatmulLaunch &launch, const Chip &chip) noexcept {
    struct Last {
        std::int64_t m = -1;
        std::int64_t n, k, batch;
        bool c_transposed;
        Chip chip;
        Choice choice;
    };
    static thread_local Last last{};
    const bool is_same = last.m == launch.m && last.n == launch.n && last.k == launch.k &&
                         last.batch == launch.batch && last.c_transposed == launch.c_transposed &&
                         last.chip.multiprocessors == chip.multiprocessors &&
                         last.chip.shared_bytes == chip.shared_bytes && last.chip.generation == chip.generation;
    if (!is_same)
        last = {launch.m, launch.n, launch.k, launch.batch, launch.c_transposed, chip, choose<type>(launch, chip)};
    return last.choice;
}

template <ElementType type>
cudaError_t launch_chosen(const MatmulLaunch &launch, const Chip &chip, cudaStream_t stream) noexcept {
    using T = CTypeOf<type>;
    const Choice &choice = kept_choice<type>(launch, chip);
    if constexpr (has_all_kernels(type)) {
        if (choice.kernel == Choice::Kernel::direct) return launch_matmul_direct<T>(launch, stream);
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
