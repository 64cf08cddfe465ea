// Products whose sums are short, of float32 and float64: what they take is to store c.
//
// Idea: a block computes one tile of c, and many blocks run at once, so that some load while others store. A warp
// has 8 rows of the tile, a lane every 32nd of their columns, so that the lanes of a store write neighbours,
// wherever rows begin. Slices of a and b come to shared memory through registers, the next one while this one is
// multiplied.
//
// Tile: 64 x 128 (float32), 64 x 64 (float64), slices of 16. Limited by memory while k is short; 6 reads of shared
// memory for 32 fma.

#include <algorithm>
#include <cstdint>

#include "device/follow.cuh"
#include "device/launch_kernel.h"
#include "device/matmul/multiply_add.cuh"
#include "device/matmul/operands.cuh"
#include "device/matmul/own_product.h"
#include "device/matmul/tile_work.cuh"
#include "device/vector.cuh"
#include "plan/rounding.h"

namespace cukern::cuda {
namespace {

template <typename T>
struct Short {
    static constexpr int kThreads = 256;
    static constexpr int kRowsOfWarp = 8;
    static constexpr int kAcross = 16 / static_cast<int>(sizeof(T));  // columns of a lane
    static constexpr int kRows = kRowsOfWarp * kThreads / 32;
    static constexpr int kColumns = 32 * kAcross;
    static constexpr int kDepth = 16;
    static constexpr int kPad =
        16 / static_cast<int>(sizeof(T));  // rows begin on 16 bytes, and on different banks
};

template <typename T>
struct ShortParams {
    TileSchedule schedule;
    Operand<T> a, b;
    Result<T> c;
    std::int64_t k;
};

// Brings slices of an operand, `rows` of it by kDepth of k, through registers to shared memory with k slowest.
// Threads lie along what is packed.
template <typename T, int rows>
class ShortLoader {
    using S = Short<T>;
    static constexpr int kCount = rows * S::kDepth / S::kThreads;
    static constexpr int kPitch = rows + S::kPad;

public:
    static constexpr int kElements = S::kDepth * kPitch;

    __device__ __forceinline__ ShortLoader(const Operand<T> &operand, std::int64_t product, std::int64_t first) {
        const auto thread = static_cast<int>(threadIdx.x);
        along_k_ = operand.depth == 1;
        row_ = along_k_ ? thread / S::kDepth : thread % rows;
        depth_ = along_k_ ? thread % S::kDepth : thread / rows;
        rows_left_ = static_cast<int>(min(operand.rows - first, std::int64_t{rows})) - row_;
        from_ = operand.data + product * operand.batch + (first + row_) * operand.row + depth_ * operand.depth;
        step_ = along_k_ ? kRowStep * operand.row : kDepthStep * operand.depth;
        slice_ = S::kDepth * operand.depth;
    }

    // Loads the next slice, of which so much of k is left.
    __device__ __forceinline__ void load(std::int64_t left) {
        const T *at = from_;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const bool is_inside = along_k_ ? depth_ < left && i * kRowStep < rows_left_
                                            : depth_ + i * kDepthStep < left && rows_left_ > 0;
            values_[i] = is_inside ? *at : T{};
            at += step_;
        }
        from_ += slice_;
    }

    __device__ __forceinline__ void store(T *slice) const {
        T *to = slice + depth_ * kPitch + row_;
#pragma unroll
        for (int i = 0; i < kCount; ++i) to[i * (along_k_ ? kRowStep : kDepthStep * kPitch)] = values_[i];
    }

    __device__ __forceinline__ static const T *row_at(const T *slice, int depth) { return slice + depth * kPitch; }

private:
    static constexpr int kRowStep = S::kThreads / S::kDepth;
    static constexpr int kDepthStep = S::kThreads / rows;

    const T *from_;
    std::int64_t step_, slice_;
    int row_, depth_, rows_left_;
    bool along_k_;
    T values_[kCount];
};

template <typename T>
__global__ void __launch_bounds__(Short<T>::kThreads, 2)
    matmul_short_kernel(const __grid_constant__ ShortParams<T> p) {
    using S = Short<T>;
    using LoaderA = ShortLoader<T, S::kRows>;
    using LoaderB = ShortLoader<T, S::kColumns>;
    __shared__ __align__(16) T slice_a[LoaderA::kElements];
    __shared__ __align__(16) T slice_b[LoaderB::kElements];
    const TilePlace place = place_of(p.schedule, static_cast<int>(blockIdx.x));
    const int first_row = static_cast<int>(threadIdx.x) / 32 * S::kRowsOfWarp;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    LoaderA a(p.a, place.product, place.row);
    LoaderB b(p.b, place.product, place.column);
    T sum[S::kRowsOfWarp][S::kAcross] = {};
    follow_kernel_before();
    a.load(p.k);
    b.load(p.k);
#pragma unroll 1
    for (std::int64_t left = p.k; left > 0; left -= S::kDepth) {
        a.store(slice_a);
        b.store(slice_b);
        __syncthreads();
        if (left > S::kDepth) {
            a.load(left - S::kDepth);
            b.load(left - S::kDepth);
        }
        const int depth = static_cast<int>(min(left, std::int64_t{S::kDepth}));
#pragma unroll 4
        for (int k = 0; k < depth; ++k) {
            const T *const row = LoaderA::row_at(slice_a, k) + first_row;
            const T *const column = LoaderB::row_at(slice_b, k) + lane;
            T x[S::kRowsOfWarp];
#pragma unroll
            for (int i = 0; i < S::kRowsOfWarp; i += Vector<T>::kSize) {
                const auto some = *reinterpret_cast<const Vector<T> *>(row + i);
#pragma unroll
                for (int e = 0; e < Vector<T>::kSize; ++e) x[i + e] = some.values[e];
            }
#pragma unroll
            for (int j = 0; j < S::kAcross; ++j) {
                const T y = column[32 * j];
#pragma unroll
                for (int i = 0; i < S::kRowsOfWarp; ++i) sum[i][j] = multiply_add(x[i], y, sum[i][j]);
            }
        }
        __syncthreads();
    }
    T *const c = p.c.data + place.product * p.c.batch;
#pragma unroll
    for (int i = 0; i < S::kRowsOfWarp; ++i) {
        const std::int64_t row = place.row + first_row + i;
#pragma unroll
        for (int j = 0; j < S::kAcross; ++j) {
            const std::int64_t column = place.column + lane + 32 * j;
            if (row < p.a.rows && column < p.b.rows) c[row * p.c.row + column * p.c.column] = sum[i][j];
        }
    }
}

}  // namespace

// For each wave of blocks, two on a multiprocessor: to start and store, and for a slice. As those of
// own_product.cu.
template <typename T>
double time_of_short(const MatmulLaunch &launch, const Chip &chip) noexcept {
    using S = Short<T>;
    constexpr bool kIsWide = sizeof(T) == 4;
    // Its sums are not cut. cuBLAS cuts longer ones: at 2048 its errors are half as large.
    constexpr std::int64_t kLongest = 1024;
    if (launch.k > kLongest) return kNever;
    const std::int64_t tiles = divided_up(launch.m, S::kRows) * divided_up(launch.n, S::kColumns) * launch.batch;
    const auto waves = static_cast<double>(divided_up(tiles, 2 * chip.multiprocessors));
    const auto slices = static_cast<double>(divided_up(launch.k, S::kDepth));
    return waves * (kIsWide ? 1.9 + 1.6 * slices : 1.5 + 1.4 * slices);
}

template <typename T>
cudaError_t launch_matmul_short(const MatmulLaunch &launch, cudaStream_t stream) noexcept {
    using S = Short<T>;
    const std::int64_t tiles = divided_up(launch.m, S::kRows) * divided_up(launch.n, S::kColumns) * launch.batch;
    ShortParams<T> p{schedule_tiles(launch, S::kRows, S::kColumns, S::kDepth, tiles, {}), operand_a<T>(launch),
                     operand_b<T>(launch), result_of<T>(launch), launch.k};
    return launch_kernel<matmul_short_kernel<T>>(static_cast<unsigned>(tiles), S::kThreads, stream, p);
}

#define CUKERN_INSTANTIATE(T)                                                      \
    template double time_of_short<T>(const MatmulLaunch &, const Chip &) noexcept; \
    template cudaError_t launch_matmul_short<T>(const MatmulLaunch &, cudaStream_t) noexcept;
CUKERN_INSTANTIATE(float)
CUKERN_INSTANTIATE(double)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::cuda
