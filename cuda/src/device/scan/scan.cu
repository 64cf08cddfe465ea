// Running sums and products: which kernel takes a launch. Results depend on shape and layout alone: a fixed order
// of joining.
//
// scan_columns_kernel
//   Idea: lines that are many and short, or that lie beside each other: a thread takes a line from its first
//   element to its last, neighbours read neighbouring elements. Of lines that are too few for that the warps of a
//   block take the same 32: each a few of the next elements, whose total it leaves in shared memory for the warps
//   after it. Limited by device memory.
#include <algorithm>

#include "device/follow.cuh"
#include "device/grid.cuh"
#include "device/kernels.h"
#include "device/launch_kernel.h"
#include "device/scan/lines.cuh"
#include "plan/rounding.h"

namespace cukern::cuda {
namespace {

constexpr std::int64_t kManyLines = 4096;   // beside each other: as many threads keep the device busy
constexpr std::int64_t kShortLine = 32;     // that a thread takes alone, though neighbours' elements lie apart
constexpr std::int64_t kWholeLines = 1024;  // so many keep the device busy by a warp or a part of one each
// Of fewer lines beside each other the warps of a block share each, if it is no shorter than what they take at
// once.
constexpr std::int64_t kLinesForThreads = 131072;
// Loads of a thread, before the first is used.
template <typename F>
constexpr int kColumnLoads = sizeof(typename F::A) <= 8 ? 8 : 4;
constexpr int kMostChunks = 16;  // of a line, one after the other

template <Op op, typename T>
__global__ void __launch_bounds__(kThreads) scan_columns_kernel(const __grid_constant__ ScanParams<T> p) {
    using F = Joining<op, T>;
    using A = typename F::A;
    __shared__ __align__(16) unsigned char memory[2 * kThreads * sizeof(A)];
    auto *const totals = reinterpret_cast<A *>(memory);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int part = p.shares_lines ? static_cast<int>(threadIdx.x) / 32 : 0;
    const int parts = p.shares_lines ? kWarps : 1;
    const std::uint32_t line = p.shares_lines ? blockIdx.x * 32 + lane : blockIdx.x * kThreads + threadIdx.x;
    const bool is_there = line < p.lines;
    std::int64_t to = 0;
    const std::int64_t from = is_there ? p.kept.offset_at(line, &to) : 0;
    constexpr int kLoads = kColumnLoads<F>;
    follow_kernel_before();
    A running = F::identity();
    int half = 0;
#pragma unroll 1
    for (std::int64_t begin = 0; begin < p.length; begin += parts * kLoads) {
        const std::int64_t first = begin + part * kLoads;
        const std::int64_t rest = is_there ? max(p.length - first, std::int64_t{0}) : 0;
        const auto left = static_cast<int>(min(rest, std::int64_t{kLoads}));
        const Elements<T, kLoads> x =
            load_some<T, kLoads>(p.in, p.stored, from + first * p.stride, p.stride, left);
        A results[kLoads];
        A joined = p.shares_lines ? F::identity() : running;
#pragma unroll
        for (int j = 0; j < kLoads; ++j) {
            if (j < left) joined = F::normal(F::join(joined, F::of(x.values[j], 0)));
            results[j] = joined;
        }
        if (p.shares_lines) {
            A *const here = totals + half * kThreads;
            half ^= 1;  // warps that are ahead fill the other one
            here[threadIdx.x] = joined;
            __syncthreads();
            A before = running;
#pragma unroll 1
            for (int warp = 0; warp < kWarps; ++warp) {
                if (warp == part) before = running;
                running = F::normal(F::join(running, here[warp * 32 + lane]));
            }
#pragma unroll
            for (int j = 0; j < kLoads; ++j) results[j] = F::join(before, results[j]);
        } else {
            running = joined;
        }
#pragma unroll
        for (int j = 0; j < kLoads; ++j)
            if (j < left) p.out[to + (first + j) * p.out_stride] = F::template result<T>(results[j], {});
    }
}

enum class ScanWay { columns, lines, tiles };  // the kernel of columns, or of lines: whole ones, or by tiles

// How a launch is computed. Launches of too many lines are cut into parts, all of which go by the plan of the
// whole.
struct ScanPlan {
    ScanWay way;
    bool shares_lines;  // of columns
    // Of scan_lines_kernel, see ScanParams.
    int item_bits;
    int lane_bits;
    int line_bits;
    std::int64_t tiles;  // of a line
    std::int64_t words;  // that the totals of a line take

    std::int64_t rows() const noexcept { return std::int64_t{kThreads} << item_bits >> line_bits; }
};

template <typename T>
ScanWay way_of(const ScanLaunch &launch) noexcept {
    if (launch.lines >= kManyLines && (writes_across(launch) || launch.length < kShortLine))
        return ScanWay::columns;
    const bool is_short = launch.length <= kMostChunks * 32 * kScanItems<T>;
    return launch.lines >= kWholeLines && is_short ? ScanWay::lines : ScanWay::tiles;
}

// Of the lines that a block has tiles of: up to one a warp of those that lie beside each other.
int line_bits_of(const ScanLaunch &launch) noexcept {
    int bits = 0;
    if (writes_across(launch) || reads_across(launch))
        while (2 << bits <= std::min<std::int64_t>(launch.kept_shape[launch.num_kept - 1], kWarps)) ++bits;
    return bits;
}

template <Op op, typename T>
ScanPlan plan_of(const ScanLaunch &launch) noexcept {
    using F = Joining<op, T>;
    ScanPlan plan{way_of<T>(launch), false, bits_from(kScanItems<T>), 5, 0, 0, 0};
    if (plan.way == ScanWay::columns) {
        plan.shares_lines =
            writes_across(launch) && launch.lines < kLinesForThreads && launch.length >= kWarps * kColumnLoads<F>;
    } else if (plan.way == ScanWay::lines) {
        const auto share = [&] {
            const std::int64_t lanes = divided_up(launch.length, std::int64_t{1} << plan.item_bits);
            plan.lane_bits = std::clamp(bits_from(lanes), kLeastLaneBits, 5);
            plan.line_bits = kThreadBits - plan.lane_bits;
        };
        // Where blocks are fewer than run at once, a thread has fewer elements, and a line more threads if it
        // needs them. A warp of several lines loads four elements a thread at once (load_tiles).
        constexpr int kLeastItems = std::max(kLeastScanItems<F, T>, 4);
        for (share(); plan.lane_bits < 5 && plan.item_bits > bits_from(kLeastItems) &&
                      launch.lines >> plan.line_bits < kMultiprocessors * kScanBlocks<T>;
             share())
            --plan.item_bits;
    } else {
        plan.line_bits = line_bits_of(launch);
        const auto count_tiles = [&] { plan.tiles = divided_up(launch.length, plan.rows()); };
        for (count_tiles(); plan.item_bits > bits_from(kLeastScanItems<F, T>) &&
                            launch.lines * plan.tiles >> plan.line_bits <= kMultiprocessors;
             count_tiles())
            --plan.item_bits;
        using TotalsOfLine = Totals<typename F::A>;
        if (plan.tiles > 1)
            plan.words =
                TotalsOfLine::kWords * std::int64_t{TotalsOfLine::count(static_cast<unsigned>(plan.tiles))};
    }
    return plan;
}

// Before blocks wait for totals: a kernel, which the next one follows faster than what the driver does.
struct ClearParams {
    std::uint64_t *words;
    std::int64_t count;
};
__global__ void __launch_bounds__(kThreads) clear_totals_kernel(const __grid_constant__ ClearParams p) {
    const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    follow_kernel_before();
    if (i < p.count) p.words[i] = 0;
}

template <Op op, typename T>
ScanParams<T> params_of(const ScanLaunch &launch) noexcept {
    ScanParams<T> p{};
    p.in = launch.in;
    p.out = static_cast<T *>(launch.out);
    p.lines = static_cast<std::uint32_t>(launch.lines);
    p.length = launch.length;
    p.stride = launch.stride;
    p.out_stride = launch.out_stride;
    for (int d = 0; d < launch.num_kept; ++d)
        p.kept.add(launch.kept_shape[d], launch.kept_strides[d], launch.kept_out_strides[d]);
    p.stored.bytes = size_of(launch.type);
    p.stored.is_truth = launch.type == ElementType::bool_;
    if (kind_of(launch.type) == 'i') p.stored.sign_shift = 64 - 8 * size_of(launch.type);
    const auto is_whole = [](std::int64_t elements) { return elements % Vector<T>::kSize == 0; };
    const auto are_vectors = [&](const void *memory, std::int64_t stride, const std::int64_t *kept_strides) {
        return stride == 1 && reinterpret_cast<std::uintptr_t>(memory) % sizeof(Vector<T>) == 0 &&
               (launch.lines == 1 || is_whole(launch.length)) &&
               std::all_of(kept_strides, kept_strides + launch.num_kept, is_whole);
    };
    p.reads_vectors =
        launch.type == ElementTypeOf<T>::value && are_vectors(launch.in, launch.stride, launch.kept_strides);
    p.writes_vectors = are_vectors(launch.out, launch.out_stride, launch.kept_out_strides);
    p.reads_across = !p.reads_vectors && reads_across(launch);
    p.writes_across = !p.writes_vectors && writes_across(launch);
    return p;
}

template <Op op, typename T>
cudaError_t launch_planned(const ScanPlan &plan, const ScanLaunch &launch, cudaStream_t stream) noexcept {
    ScanParams<T> p = params_of<op, T>(launch);
    if (plan.way == ScanWay::columns) {
        p.shares_lines = plan.shares_lines;
        const std::int64_t threads = p.shares_lines ? launch.lines * kWarps : launch.lines;
        return launch_kernel<scan_columns_kernel<op, T>>(blocks_for(threads), kThreads, stream, p);
    }
    p.item_bits = plan.item_bits;
    p.lane_bits = plan.lane_bits;
    p.line_bits = plan.line_bits;
    p.reads_vectors = p.reads_vectors && p.lane_bits == 5;
    p.writes_vectors = p.writes_vectors && p.lane_bits == 5;
    p.tiles = static_cast<unsigned>(plan.tiles);
    const auto groups = static_cast<std::uint32_t>(((launch.lines - 1) >> p.line_bits) + 1);
    p.inner = Divider::make(p.line_bits > 0 ? groups : std::max(1U, p.tiles));
    if (p.tiles > 1) {
        p.totals = static_cast<std::uint64_t *>(launch.scratch);
        ClearParams clear{p.totals, launch.lines * plan.words};
        const cudaError_t error =
            launch_kernel<clear_totals_kernel>(blocks_for(clear.count), kThreads, stream, clear);
        if (error != cudaSuccess) return error;
    }
    return launch_kernel<scan_lines_kernel<op, T>>(groups * std::max(1U, p.tiles), kThreads, stream, p);
}

// Calls a function for the type whose kernels serve a launch: integers of 64 bits wrap alike.
template <typename Result, typename F>
Result for_type_of(const ScanLaunch &launch, Result otherwise, const F &f) noexcept {
    switch (launch.compute == ElementType::uint64 ? ElementType::int64 : launch.compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)                                     \
    case ElementType::id:                                                                                     \
        if constexpr (scans_in(ElementType::id) && ElementType::id != ElementType::uint64) return f(ctype{}); \
        break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return otherwise;
}

ScanPlan plan_scan(const ScanLaunch &launch) noexcept {
    return for_type_of(launch, ScanPlan{}, [&](auto zero) {
        using T = decltype(zero);
        return launch.op == Op::sum ? plan_of<Op::sum, T>(launch) : plan_of<Op::prod, T>(launch);
    });
}

cudaError_t launch_at_once(const ScanPlan &plan, const ScanLaunch &launch, cudaStream_t stream) noexcept {
    return for_type_of(launch, cudaErrorInvalidValue, [&](auto zero) {
        using T = decltype(zero);
        return launch.op == Op::sum ? launch_planned<Op::sum, T>(plan, launch, stream)
                                    : launch_planned<Op::prod, T>(plan, launch, stream);
    });
}

// Some places of the outermost dimension of the lines.
ScanLaunch part_of(const ScanLaunch &launch, std::int64_t begin, std::int64_t length) noexcept {
    ScanLaunch part = launch;
    part.kept_shape[0] = length;
    part.lines = launch.lines / launch.kept_shape[0] * length;
    part.in = static_cast<const char *>(launch.in) + begin * launch.kept_strides[0] * size_of(launch.type);
    part.out = static_cast<char *>(launch.out) + begin * launch.kept_out_strides[0] * size_of(launch.compute);
    return part;
}

// Leaves out a dimension of length 1.
void drop_outermost(ScanLaunch *launch) noexcept {
    --launch->num_kept;
    std::copy_n(launch->kept_shape + 1, launch->num_kept, launch->kept_shape);
    std::copy_n(launch->kept_strides + 1, launch->num_kept, launch->kept_strides);
    std::copy_n(launch->kept_out_strides + 1, launch->num_kept, launch->kept_out_strides);
}

// One after the other, as all of them use the same scratch memory.
cudaError_t launch_parts(const ScanPlan &plan, const ScanLaunch &launch, cudaStream_t stream,
                         std::int64_t most_lines) noexcept {
    if (launch.lines <= most_lines) return launch_at_once(plan, launch, stream);
    const std::int64_t each = std::max<std::int64_t>(1, most_lines / (launch.lines / launch.kept_shape[0]));
    for (std::int64_t begin = 0; begin < launch.kept_shape[0]; begin += each) {
        ScanLaunch part = part_of(launch, begin, std::min(each, launch.kept_shape[0] - begin));
        if (each == 1) drop_outermost(&part);
        const cudaError_t error = launch_parts(plan, part, stream, most_lines);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace

std::int64_t scan_scratch(const ScanLaunch &launch) noexcept {
    return launch.lines * plan_scan(launch).words * static_cast<std::int64_t>(sizeof(std::uint64_t));
}

cudaError_t launch_scan(const ScanLaunch &given, cudaStream_t stream, std::int64_t most_lines) noexcept {
    if (given.lines == 0 || given.length == 0) return cudaSuccess;
    ScanLaunch launch = given;
    if (launch.type == ElementType::uint64 && is_integer(launch.compute)) launch.type = ElementType::int64;
    return launch_parts(plan_scan(launch), launch, stream, most_lines);
}

}  // namespace cukern::cuda
