// Running sums and products: which kernel takes a launch. Results depend on the shape alone: a fixed order of
// joining.
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

namespace cukern::cuda {
namespace {

constexpr std::int64_t kManyLines = 4096;  // beside each other: as many threads keep the device busy
constexpr std::int64_t kShortLine = 32;    // that a thread takes alone, though neighbours' elements lie apart
constexpr std::int64_t kLinesForWarps = 1024;
// Of fewer lines beside each other the warps of a block share each, if it is no shorter than what they take at
// once.
constexpr std::int64_t kLinesForThreads = 131072;
// Loads of a thread, before the first is used.
template <typename F>
constexpr int kColumnLoads = sizeof(typename F::A) <= 8 ? 8 : 4;
constexpr int kMostChunks = 16;  // of a line, one after the other

template <Op op, typename T>
__global__ void __launch_bounds__(kThreads) scan_columns_kernel(const __grid_constant__ ScanParamsOf<op, T> p) {
    using F = Joining<op, T>;
    using A = typename F::A;
    __shared__ __align__(16) unsigned char memory[2 * kThreads * sizeof(A)];
    auto *const totals = reinterpret_cast<A *>(memory);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int part = p.shares_lines ? static_cast<int>(threadIdx.x) / 32 : 0;
    const int parts = p.shares_lines ? kWarps : 1;
    const std::uint32_t line = p.shares_lines ? blockIdx.x * 32 + lane : blockIdx.x * kThreads + threadIdx.x;
    const bool is_there = line < p.lines;
    const std::int64_t from = is_there ? p.begin(line) : 0;
    const std::int64_t to = is_there ? p.begin_of_out(line) : 0;
    constexpr int kLoads = kColumnLoads<F>;
    follow_kernel_before();
    A running = F::identity();
    int half = 0;
#pragma unroll 1
    for (std::int64_t begin = 0; begin < p.length; begin += parts * kLoads) {
        const std::int64_t first = begin + part * kLoads;
        const std::int64_t rest = is_there ? max(p.length - first, std::int64_t{0}) : 0;
        const auto left = static_cast<int>(min(rest, std::int64_t{kLoads}));
        const Elements<T, kLoads> x = load_some<T, kLoads>(p.in, p.type, from + first * p.stride, p.stride, left);
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
            if (j < left) p.out[to + (first + j) * p.inner] = F::template result<T>(results[j], {});
    }
}

template <typename F, typename T>
std::int64_t tiles_of(const ScanLaunch &launch) noexcept {
    return (launch.length + kScanTile<F, T> - 1) / kScanTile<F, T>;
}

// Which kernel.
enum class ScanWay { columns, warps, tiles };

template <typename F, typename T>
ScanWay way_of(const ScanLaunch &launch) noexcept {
    const bool is_beside = launch.inner > 1;
    if (launch.lines >= kManyLines && (is_beside || launch.length < kShortLine)) return ScanWay::columns;
    const bool is_short = launch.length <= kMostChunks * kScanChunk<F, T>;
    return launch.lines >= kLinesForWarps && is_short ? ScanWay::warps : ScanWay::tiles;
}

template <Op op, typename T>
std::int64_t scratch_of(const ScanLaunch &launch) noexcept {
    using A = typename Joining<op, T>::A;
    const std::int64_t tiles = tiles_of<Joining<op, T>, T>(launch);
    if (way_of<Joining<op, T>, T>(launch) != ScanWay::tiles || tiles <= 1) return 0;
    return launch.lines * Totals<A>::count(static_cast<unsigned>(tiles)) *
           static_cast<std::int64_t>(Totals<A>::kWords * sizeof(std::uint64_t));
}

template <Op op, typename T>
ScanParamsOf<op, T> params_of(const ScanLaunch &launch) noexcept {
    ScanParamsOf<op, T> p{};
    p.in = launch.in;
    p.out = static_cast<T *>(launch.out);
    p.lines = static_cast<std::uint32_t>(launch.lines);
    p.length = launch.length;
    p.stride = launch.stride;
    p.inner = launch.inner;
    p.beside = Divider::make(static_cast<std::uint32_t>(std::min<std::int64_t>(launch.inner, INT32_MAX)));
    for (int d = 0; d < launch.num_kept; ++d) p.kept.add(launch.kept_shape[d], launch.kept_strides[d]);
    p.type = launch.type;
    const auto is_whole = [](std::int64_t elements) { return elements % kScanVector<Joining<op, T>, T> == 0; };
    const auto addresses =
        reinterpret_cast<std::uintptr_t>(launch.in) | reinterpret_cast<std::uintptr_t>(launch.out);
    p.whole = launch.type == ElementTypeOf<T>::value && launch.stride == 1 && launch.inner == 1 &&
              addresses % sizeof(Elements<T, kScanVector<Joining<op, T>, T>>) == 0 &&
              (launch.lines == 1 || is_whole(launch.length)) &&
              std::all_of(launch.kept_strides, launch.kept_strides + launch.num_kept, is_whole);
    return p;
}

template <Op op, typename T>
cudaError_t launch_lines(const ScanLaunch &launch, cudaStream_t stream) noexcept {
    ScanParamsOf<op, T> p = params_of<op, T>(launch);
    switch (way_of<Joining<op, T>, T>(launch)) {
        case ScanWay::columns: {
            constexpr int kAtOnce = kWarps * kColumnLoads<Joining<op, T>>;
            p.shares_lines = launch.inner > 1 && launch.lines < kLinesForThreads && launch.length >= kAtOnce;
            const std::int64_t threads = p.shares_lines ? launch.lines * kWarps : launch.lines;
            return launch_kernel<scan_columns_kernel<op, T>>(blocks_for(threads), kThreads, stream, p);
        }
        case ScanWay::warps:
            return launch_kernel<scan_lines_kernel<op, T>>(blocks_for(launch.lines * 32), kThreads, stream, p);
        case ScanWay::tiles: break;
    }
    const std::int64_t tiles = tiles_of<Joining<op, T>, T>(launch);
    p.tiles = Divider::make(static_cast<std::uint32_t>(tiles));
    if (tiles > 1) {
        p.totals = static_cast<std::uint64_t *>(launch.scratch);
        const cudaError_t error =
            cudaMemsetAsync(p.totals, 0, static_cast<std::size_t>(scratch_of<op, T>(launch)), stream);
        if (error != cudaSuccess) return error;
    }
    return launch_kernel<scan_lines_kernel<op, T>>(static_cast<unsigned>(launch.lines * tiles), kThreads, stream,
                                                   p);
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

}  // namespace

std::int64_t scan_scratch(const ScanLaunch &launch) noexcept {
    return for_type_of(launch, std::int64_t{0}, [&](auto zero) {
        using T = decltype(zero);
        return launch.op == Op::sum ? scratch_of<Op::sum, T>(launch) : scratch_of<Op::prod, T>(launch);
    });
}

namespace {

cudaError_t launch_at_once(const ScanLaunch &launch, cudaStream_t stream) noexcept {
    return for_type_of(launch, cudaErrorInvalidValue, [&](auto zero) {
        using T = decltype(zero);
        return launch.op == Op::sum ? launch_lines<Op::sum, T>(launch, stream)
                                    : launch_lines<Op::prod, T>(launch, stream);
    });
}

// Some places of the outermost dimension of the lines. Its lines lie in `out` in blocks of `inner` or within one.
ScanLaunch part_of(const ScanLaunch &launch, std::int64_t begin, std::int64_t length) noexcept {
    ScanLaunch part = launch;
    part.kept_shape[0] = length;
    part.lines = launch.lines / launch.kept_shape[0] * length;
    const std::int64_t before = launch.lines / launch.kept_shape[0] * begin;
    const std::int64_t place = before / launch.inner * launch.inner * launch.length + before % launch.inner;
    part.in = static_cast<const char *>(launch.in) + begin * launch.kept_strides[0] * size_of(launch.type);
    part.out = static_cast<char *>(launch.out) + place * size_of(launch.compute);
    return part;
}

// Leaves out a dimension of length 1.
void drop_outermost(ScanLaunch *launch) noexcept {
    --launch->num_kept;
    std::copy_n(launch->kept_shape + 1, launch->num_kept, launch->kept_shape);
    std::copy_n(launch->kept_strides + 1, launch->num_kept, launch->kept_strides);
}

}  // namespace

cudaError_t launch_scan(const ScanLaunch &given, cudaStream_t stream, std::int64_t most_lines) noexcept {
    if (given.lines == 0 || given.length == 0) return cudaSuccess;
    ScanLaunch launch = given;
    if (launch.type == ElementType::uint64 && is_integer(launch.compute)) launch.type = ElementType::int64;
    if (launch.lines <= most_lines) return launch_at_once(launch, stream);
    const std::int64_t each = std::max<std::int64_t>(1, most_lines / (launch.lines / launch.kept_shape[0]));
    for (std::int64_t begin = 0; begin < launch.kept_shape[0]; begin += each) {
        ScanLaunch part = part_of(launch, begin, std::min(each, launch.kept_shape[0] - begin));
        if (each == 1) drop_outermost(&part);
        const cudaError_t error = launch_scan(part, stream, most_lines);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace cukern::cuda
