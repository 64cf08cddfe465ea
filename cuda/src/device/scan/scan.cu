// Running sums and products. Results depend on the shape alone: a fixed order of joining.
//
// scan_lines_kernel
//   Idea: a block takes a line, or a part of one, tile by tile: each thread joins the four elements that it loads,
//   shuffles and shared memory give it what comes before them in the tile, and the tile's total is carried to the
//   next. Of few long lines each part's total is found first (`totals`), the totals of a line are made running
//   ones by the same kernel's other use, and each part begins with what the parts before it give. Limited by
//   device memory; elements are read twice where lines are cut.
// scan_columns_kernel
//   Idea: lines that are many and short, or that lie beside each other: a thread takes a line from its first
//   element to its last, neighbours read neighbouring elements. Limited by device memory.
#include <algorithm>

#include "device/grid.cuh"
#include "device/kernels.h"
#include "device/launch_kernel.h"
#include "device/shuffle.cuh"
#include "formulas/reducers.cuh"

namespace cukern::cuda {
namespace {

constexpr int kItems = 4;  // elements of a thread in a tile
constexpr int kTile = kThreads * kItems;
constexpr std::int64_t kShortest = 16 * kTile;  // of a part of a line
constexpr std::int64_t kMostParts = 4096;       // of all lines, more or less: they keep the device busy
constexpr std::int64_t kManyLines = 4096;

// What elements are joined by: as Reducer, but that an identity changes nothing at all, and that products of parts
// of a line neither overflow nor vanish, though what comes before them would have kept them in bounds.
template <Op op, typename T, bool is_scaled = op == Op::prod && !std::is_integral_v<T>>
struct Joining : Reducer<op, T> {
    using A = typename Reducer<op, T>::A;
    CUKERN_HD static A identity() {
        if constexpr (op == Op::sum && is_complex<T>)
            return {-0.0, -0.0};
        else if constexpr (op == Op::sum && !std::is_integral_v<T>)
            return static_cast<A>(-0.0);
        else
            return Reducer<op, T>::identity();
    }
};

template <typename T>
struct Joining<Op::prod, T, true> {
    using M = std::conditional_t<is_complex<T>, Complex128, double>;
    struct A {  // significand * 2**exponent
        M significand;
        std::int64_t exponent;
    };
    CUKERN_HD static M unit() {
        if constexpr (is_complex<T>)
            return {1, 0};
        else
            return 1;
    }
    CUKERN_HD static A identity() { return {unit(), 0}; }
    CUKERN_HD static bool is_identity(const A &a) {
        if constexpr (is_complex<T>)
            return a.exponent == 0 && a.significand.real == 1 && a.significand.imag == 0;
        else
            return a.exponent == 0 && a.significand == 1;
    }
    CUKERN_HD static M scaled(const M &value, int by) {
        if constexpr (is_complex<T>)
            return {scalbn(value.real, by), scalbn(value.imag, by)};
        else
            return scalbn(value, by);
    }
    // To a size of 1 to 2; zeros, infinities and NaN stay.
    CUKERN_HD static A normal(const M &value, std::int64_t exponent) {
        double size;
        if constexpr (is_complex<T>)
            size = fmax(fabs(value.real), fabs(value.imag));
        else
            size = fabs(value);
        if (!(size > 0) || size > 1.7976931348623157e308) return {value, exponent};
        const int by = ilogb(size);
        return {scaled(value, -by), exponent + by};
    }
    CUKERN_HD static A of(T element, std::int64_t) { return normal(convert<M>(element), 0); }
    CUKERN_HD static A join(const A &a, const A &b) {
        if (is_identity(a)) return b;
        if (is_identity(b)) return a;
        return normal(Formula<Op::multiply>::template apply<M>(a.significand, b.significand),
                      a.exponent + b.exponent);
    }
    template <typename R>
    CUKERN_HD static R result(const A &a, std::int64_t) {
        const std::int64_t most = 3000;  // beyond all exponents of float64
        const auto by = static_cast<int>(a.exponent > most ? most : a.exponent < -most ? -most : a.exponent);
        return convert<R>(scaled(a.significand, by));
    }
};

template <typename T, typename A>
struct ScanParams {
    const void *in;
    T *out;
    const A *before;  // of each part, what comes before it; null: nothing
    A *totals;        // of each part; null: running results to `out`
    std::int64_t lines;
    std::int64_t length;
    std::int64_t stride;
    std::int64_t inner;
    std::int64_t kept_shape[kMaxReduceDims];
    std::int64_t kept_strides[kMaxReduceDims];
    int num_kept;
    ElementType type;
    std::int64_t parts;        // of a line
    std::int64_t part_length;  // a multiple of kTile
};

template <typename T>
__device__ __noinline__ T load_element(const void *data, ElementType type, std::int64_t index) {
    return load_as<T>(data, type, index);
}

template <typename T, typename A>
__device__ T load(const ScanParams<T, A> &p, std::int64_t index) {
    return p.type == ElementTypeOf<T>::value ? static_cast<const T *>(p.in)[index]
                                             : load_element<T>(p.in, p.type, index);
}

template <typename P>
__device__ std::int64_t begin_of(const P &p, std::int64_t line) {
    std::int64_t offset = 0;
    for (int d = p.num_kept - 1; d >= 0; --d) {
        offset += line % p.kept_shape[d] * p.kept_strides[d];
        line /= p.kept_shape[d];
    }
    return offset;
}

template <typename P>
__device__ std::int64_t begin_of_out(const P &p, std::int64_t line) {
    return line / p.inner * p.inner * p.length + line % p.inner;
}

// What the threads before this one hold, joined; `total`: what all do.
template <typename F, typename A = typename F::A>
__device__ A join_before(A value, A *total) {
    __shared__ __align__(16) unsigned char memory[kThreads / 32 * sizeof(A)];
    auto *warps = reinterpret_cast<A *>(memory);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    for (int by = 1; by < 32; by *= 2) {
        const A other = shuffled_up(value, by);
        if (lane >= by) value = F::join(other, value);
    }
    __syncthreads();  // the memory may be in use still
    if (lane == 31) warps[warp] = value;
    __syncthreads();
    A before = F::identity();
    *total = F::identity();
    for (int i = 0; i < kThreads / 32; ++i) {
        if (i == warp) before = *total;
        *total = F::join(*total, warps[i]);
    }
    const A own = shuffled_up(value, 1);
    return lane > 0 ? F::join(before, own) : before;
}

template <Op op, typename T>
using ScanParamsOf = ScanParams<T, typename Joining<op, T>::A>;

template <Op op, typename T>
__global__ void __launch_bounds__(kThreads) scan_lines_kernel(const __grid_constant__ ScanParamsOf<op, T> p) {
    using F = Joining<op, T>;
    using A = typename F::A;
    const std::int64_t line = blockIdx.x / p.parts;
    const std::int64_t first = blockIdx.x % p.parts * p.part_length;
    const std::int64_t last = min(first + p.part_length, p.length);
    const std::int64_t from = begin_of(p, line);
    const std::int64_t to = begin_of_out(p, line);
    A carried = p.before != nullptr ? p.before[blockIdx.x] : F::identity();
    for (std::int64_t tile = first; tile < last; tile += kTile) {
        const std::int64_t at = tile + threadIdx.x * kItems;
        A own[kItems];
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            own[i] = at + i < last ? F::of(load(p, from + (at + i) * p.stride), at + i) : F::identity();
            if (i > 0) own[i] = F::join(own[i - 1], own[i]);
        }
        A total;
        const A start = F::join(carried, join_before<F>(own[kItems - 1], &total));
        carried = F::join(carried, total);
        if (p.totals != nullptr) continue;
#pragma unroll
        for (int i = 0; i < kItems; ++i)
            if (at + i < last) p.out[to + (at + i) * p.inner] = F::template result<T>(F::join(start, own[i]), {});
    }
    if (p.totals != nullptr && threadIdx.x == 0) p.totals[blockIdx.x] = carried;
}

// The totals of each line's parts become those of the parts before.
template <Op op, typename T>
__global__ void __launch_bounds__(kThreads) scan_totals_kernel(const __grid_constant__ ScanParamsOf<op, T> p) {
    using F = Joining<op, T>;
    using A = typename F::A;
    A *const own = p.totals + blockIdx.x * p.parts;
    A carried = F::identity();
    for (std::int64_t tile = 0; tile < p.parts; tile += kThreads) {
        const std::int64_t at = tile + threadIdx.x;
        A total;
        const A before = join_before<F>(at < p.parts ? own[at] : F::identity(), &total);
        if (at < p.parts) own[at] = F::join(carried, before);
        carried = F::join(carried, total);
    }
}

template <Op op, typename T>
__global__ void __launch_bounds__(kThreads) scan_columns_kernel(const __grid_constant__ ScanParamsOf<op, T> p) {
    using F = Joining<op, T>;
    const std::int64_t line = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (line >= p.lines) return;
    const std::int64_t from = begin_of(p, line);
    const std::int64_t to = begin_of_out(p, line);
    typename F::A running = F::identity();
    for (std::int64_t i = 0; i < p.length; ++i) {
        running = F::join(running, F::of(load(p, from + i * p.stride), i));
        p.out[to + i * p.inner] = F::template result<T>(running, {});
    }
}

template <Op op, typename T>
ScanParamsOf<op, T> params_of(const ScanLaunch &launch) noexcept {
    ScanParamsOf<op, T> p{};
    p.in = launch.in;
    p.out = static_cast<T *>(launch.out);
    p.lines = launch.lines;
    p.length = launch.length;
    p.stride = launch.stride;
    p.inner = launch.inner;
    p.num_kept = launch.num_kept;
    p.type = launch.type;
    std::copy_n(launch.kept_shape, launch.num_kept, p.kept_shape);
    std::copy_n(launch.kept_strides, launch.num_kept, p.kept_strides);
    p.parts = 1;
    p.part_length = (launch.length + kTile - 1) / kTile * kTile;
    return p;
}

template <Op op, typename T>
cudaError_t launch_lines(const ScanLaunch &launch, cudaStream_t stream) noexcept {
    using A = typename Joining<op, T>::A;
    ScanParamsOf<op, T> p = params_of<op, T>(launch);
    const bool beside = launch.inner > 1 || launch.length < kTile / 4;
    if (launch.lines >= kManyLines && beside) {
        const auto blocks = static_cast<unsigned>((launch.lines + kThreads - 1) / kThreads);
        return launch_kernel<scan_columns_kernel<op, T>>(blocks, kThreads, stream, p);
    }
    const std::int64_t most =
        std::min(kMostParts, launch.scratch_bytes / static_cast<std::int64_t>(sizeof(A))) / launch.lines;
    if (launch.scratch != nullptr && most > 1 && launch.length >= 2 * kShortest) {
        const std::int64_t least = std::max(kShortest, (launch.length + most - 1) / most);
        p.part_length = (least + kTile - 1) / kTile * kTile;
        p.parts = (launch.length + p.part_length - 1) / p.part_length;
    }
    const auto blocks = static_cast<unsigned>(launch.lines * p.parts);
    if (p.parts > 1) {
        p.totals = static_cast<A *>(launch.scratch);
        cudaError_t error = launch_kernel<scan_lines_kernel<op, T>>(blocks, kThreads, stream, p);
        if (error != cudaSuccess) return error;
        const auto lines = static_cast<unsigned>(launch.lines);
        error = launch_kernel<scan_totals_kernel<op, T>>(lines, kThreads, stream, p);
        if (error != cudaSuccess) return error;
        p.before = p.totals;
        p.totals = nullptr;
    }
    return launch_kernel<scan_lines_kernel<op, T>>(blocks, kThreads, stream, p);
}

}  // namespace

cudaError_t launch_scan(const ScanLaunch &launch, cudaStream_t stream) noexcept {
    switch (launch.compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)                \
    case ElementType::id:                                                                \
        if constexpr (scans_in(ElementType::id))                                         \
            return launch.op == Op::sum ? launch_lines<Op::sum, ctype>(launch, stream)   \
                                        : launch_lines<Op::prod, ctype>(launch, stream); \
        break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return cudaErrorInvalidValue;
}

}  // namespace cukern::cuda
