// The product of small and narrow matrices.
//
// Idea: a block computes kSide x kSide tiles of c, and its warps share k: each takes every kWarps-th slice of
// kDepth, copies it asynchronously into stages of shared memory of its own, so that no warp waits for another, and
// holds 4 x 8 sums a lane. At the end all threads add up the warps' sums in shared memory. So a few tiles keep all
// schedulers of a multiprocessor busy, and long sums have kWarps times less rounding. Tiles are shared among
// blocks as those of the tiled kernel are (tile_schedule.h).
//
// Tile: 32 x 32, slices of 16 (4-byte types), 8, or 4 (complex128); up to 3 stages.
// 2 * m * n * k flops; an element is used 32 times once loaded: limited by the instructions that copy and read, 5
// for 32 fma of 4-byte types, and where k is short by the time to start and to load anything at all.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/async_copy.cuh"
#include "device/cluster.cuh"
#include "device/follow.cuh"
#include "device/launch_kernel.h"
#include "device/matmul/join_tiles.cuh"
#include "device/matmul/multiply_add.cuh"
#include "device/matmul/operands.cuh"
#include "device/matmul/own_product.h"
#include "device/matmul/tensor_cores.cuh"
#include "device/matmul/tile_work.cuh"
#include "device/vector.cuh"

namespace cukern::cuda {
namespace {

template <typename T>
struct Slice {
    static constexpr int kSize = sizeof(T);
    static constexpr int kThreads = kSize == 16 ? 128 : 256;  // by what shared memory holds of sums
    static constexpr int kWarps = kThreads / 32;
    static constexpr int kSide = 32;
    static constexpr int kDepth = 64 / kSize;
    static constexpr int kStep = kWarps * kDepth;       // of k, that the warps take at once
    static constexpr int kPitch = kSide + 4;            // rows begin on 16 bytes, and on different banks
    static constexpr int kStage = 2 * kDepth * kPitch;  // elements of a warp
    static constexpr int kStageBytes = kWarps * kStage * kSize;
    static constexpr int kMostStages = 3;
    static constexpr int kRows = 4;  // of a lane
    static constexpr int kColumns = 8;
    static constexpr int kSums = kRows * kColumns;
    // So that a row's sums lie in different banks; of wider types so that 64 KiB hold all warps' sums.
    static constexpr int kSumPitch = kSize == 4 ? 36 : 32;
    static constexpr int kSumsOfWarp = kSums * kSumPitch;
    static constexpr int kSumBytes = kWarps * kSumsOfWarp * kSize;
    static constexpr int kBlocks = kSize == 4 ? 2 : 1;  // of a multiprocessor
    static_assert(kSums * 32 == kSide * kSide);
    static_assert(kSumBytes <= 64 << 10 && kStageBytes <= 64 << 10, "what compute capability 7.5 has");
};

template <typename T>
struct SlicedParams {
    TileSchedule schedule;
    Operand<T> a, b;
    Result<T> c;
    T *parts;
    std::int64_t k;
    int stages;
};

// A lane's part of the slices of an operand: kDepth elements of kSide rows (of b: columns) by kDepth of k.
// Neighbours in memory are neighbours among lanes.
template <typename T>
class SliceLoader {
    using S = Slice<T>;
    static constexpr int kRowsAtOnce = 32 / S::kDepth;  // where k follows itself

public:
    __device__ __forceinline__ void start(const Operand<T> &operand, std::int64_t product, std::int64_t row,
                                          std::int64_t k) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        is_deep_ = operand.depth == 1;
        const int r = is_deep_ ? lane / S::kDepth : lane;
        k_ = is_deep_ ? lane % S::kDepth : 0;
        from_ = operand.data + product * operand.batch + (row + r) * operand.row + (k + k_) * operand.depth;
        step_ = is_deep_ ? kRowsAtOnce * operand.row : operand.depth;
        to_ = (k_ * S::kPitch + r) * S::kSize;
        to_step_ = (is_deep_ ? kRowsAtOnce : S::kPitch) * S::kSize;
        const int rows = static_cast<int>(min(operand.rows - row, std::int64_t{S::kSide})) - r;
        rows_ = is_deep_ ? (rows + kRowsAtOnce - 1) / kRowsAtOnce : rows > 0 ? S::kDepth : 0;
    }

    // Begins to copy a slice, of which so much of k is left, and goes on to the warp's next one. What lies outside
    // becomes zero.
    __device__ __forceinline__ void copy_next(const Operand<T> &operand, SharedAddress slice, int depth_left) {
        const int inside = is_deep_ ? (k_ < depth_left ? rows_ : 0) : min(rows_, depth_left);
        const T *from = from_;
        slice += to_;
#pragma unroll(S::kDepth < 8 ? S::kDepth : 8)
        for (int i = 0; i < S::kDepth; ++i) {
            copy_element(slice, from, i < inside);
            from += step_;
            slice += to_step_;
        }
        from_ += operand.depth * S::kStep;
    }

private:
    // Complex numbers need only be aligned to their parts.
    __device__ __forceinline__ static void copy_element(SharedAddress to, const T *from, bool copies) {
        constexpr int kBytes = std::is_arithmetic_v<T> ? S::kSize : S::kSize / 2;
        copy_or_clear<kBytes>(to, from, copies);
        if constexpr (kBytes < S::kSize)
            copy_or_clear<kBytes>(to + kBytes, reinterpret_cast<const char *>(from) + kBytes, copies);
    }

    const T *from_;
    std::int64_t step_;  // between the lane's elements
    int k_;
    int rows_;  // elements of the lane that lie inside, but for the end of k
    int to_, to_step_;
    bool is_deep_;
};

template <typename T>
__device__ __forceinline__ void read_four(const T *from, T *to) {
#pragma unroll
    for (int v = 0; v < 4; v += Vector<T>::kSize) {
        const auto values = *reinterpret_cast<const Vector<T> *>(from + v);
#pragma unroll
        for (int e = 0; e < Vector<T>::kSize; ++e) to[v + e] = values.values[e];
    }
}

// A warp's product of slices: a lane holds kSums elements of the tile, as fma or the tensor cores want it.
template <typename T>
class SliceProduct {
    using S = Slice<T>;

public:
    __device__ __forceinline__ void multiply(const T *slice) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const T *const a = slice;
        const T *const b = slice + S::kDepth * S::kPitch;
        if constexpr (uses_tensor_cores<T>)
            multiply_by_tensor_cores(a + lane % 4 * S::kPitch + lane / 4, b + lane % 4 * S::kPitch + lane / 4);
        else
            multiply_by_fma(a + lane / 4 * S::kRows, b + lane % 4 * 4);
    }

    // Leaves the sums where the others find them.
    __device__ __forceinline__ void leave(T *sums) const {
#pragma unroll
        for (int i = 0; i < S::kSums; ++i) sums[i * S::kSumPitch + threadIdx.x % 32] = sum_[i];
    }

    // Where a warp has left the sum at a place of the tile.
    __device__ __forceinline__ static int left_at(int row, int column) {
        if constexpr (uses_tensor_cores<T>) {
            const int i = (row / 16 * 4 + column / 8) * 4 + row % 16 / 8 * 2 + column % 2;
            return i * S::kSumPitch + row % 8 * 4 + column % 8 / 2;
        } else {
            const int i = row % S::kRows * S::kColumns + column / 16 * 4 + column % 4;
            return i * S::kSumPitch + row / S::kRows * 4 + column % 16 / 4;
        }
    }

private:
    __device__ __forceinline__ void multiply_by_fma(const T *a, const T *b) {
#pragma unroll(std::is_same_v<T, float> ? 8 : 2)  // the wheel has no room for more
        for (int k = 0; k < S::kDepth; ++k) {
            T x[S::kRows];
            T y[S::kColumns];
            read_four(a + k * S::kPitch, x);
            read_four(b + k * S::kPitch, y);
            read_four(b + k * S::kPitch + 16, y + 4);
#pragma unroll
            for (int i = 0; i < S::kSums; ++i)
                sum_[i] = multiply_add(x[i / S::kColumns], y[i % S::kColumns], sum_[i]);
        }
    }

    __device__ __forceinline__ void multiply_by_tensor_cores(const T *a, const T *b) {
        static_assert(!uses_tensor_cores<T> || S::kDepth == 8, "what the instruction takes of k");
#pragma unroll
        for (int j = 0; j < S::kSide / 8; ++j) {
            const double y[] = {b[j * 8], b[4 * S::kPitch + j * 8]};
#pragma unroll
            for (int i = 0; i < S::kSide / 16; ++i) {
                const T *const at = a + i * 16;
                const double x[] = {at[0], at[8], at[4 * S::kPitch], at[4 * S::kPitch + 8]};
                multiply_on_tensor_cores(x, y, sum_ + (i * (S::kSide / 8) + j) * 4);
            }
        }
    }

    T sum_[S::kSums] = {};
};

// Adds up the sums that warps have left in shared memory, and those of a cluster's blocks, and stores them. Each
// block of a cluster stores its part of the tile.
template <typename T>
__device__ __forceinline__ void store_sums(T *memory, int warps, int cluster, const Result<T> &to, int rows,
                                           int columns) {
    using S = Slice<T>;
    constexpr int kElements = S::kSide * S::kSide;
#pragma unroll 1
    for (int e = static_cast<int>(threadIdx.x); e < rows * S::kSide; e += S::kThreads) {
        const int row = e / S::kSide;
        const int column = e % S::kSide;
        T *const sums = memory + SliceProduct<T>::left_at(row, column);
        T sum = *sums;
#pragma unroll
        for (int other = 1; other < S::kWarps; ++other)
            if (other < warps) sum = add(sum, sums[other * S::kSumsOfWarp]);
        if (cluster > 1)
            *sums = sum;
        else if (column < columns)
            to.data[row * to.row + column * to.column] = sum;
    }
#if __CUDA_ARCH__ >= 900
    if (cluster == 1) return;
    wait_for_cluster();
    const int rank = static_cast<int>(blockIdx.x) % cluster;
    const int end = (rank + 1) * kElements / cluster;
    for (int e = rank * kElements / cluster + static_cast<int>(threadIdx.x); e < end; e += S::kThreads) {
        const int row = e / S::kSide;
        const int column = e % S::kSide;
        const T *const sums = memory + SliceProduct<T>::left_at(row, column);
        T sum{};
        for (int block = 0; block < cluster; ++block) sum = add(sum, *shared_memory_of(sums, block));
        if (row < rows && column < columns) to.data[row * to.row + column * to.column] = sum;
    }
    wait_for_cluster();  // a block's memory goes with it
#endif
}

template <typename T>
__global__ void __launch_bounds__(Slice<T>::kThreads, Slice<T>::kBlocks)
    matmul_sliced_kernel(const __grid_constant__ SlicedParams<T> p) {
    using S = Slice<T>;
    extern __shared__ __align__(16) unsigned char shared[];
    T *const memory = reinterpret_cast<T *>(shared);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    T *const own = memory + warp * p.stages * S::kStage;
    const SharedAddress own_address = shared_address(own);
    constexpr int kStageBytes = S::kStage * S::kSize;
    TileWork work;
    const bool is_in_cluster = p.schedule.cluster > 1;
    bool has_more = true;
    follow_kernel_before();
    if (is_in_cluster)
        work.start_in_cluster(p.schedule);
    else
        has_more = work.start(p.schedule);
    for (; has_more; has_more = !is_in_cluster && work.next(p.schedule)) {
        const TilePlace place = place_of(p.schedule, work.tile);
        const std::int64_t first = static_cast<std::int64_t>(work.step) * S::kStep;
        const std::int64_t depth = min(p.k, static_cast<std::int64_t>(work.end) * S::kStep) - first;
        SliceLoader<T> a;
        SliceLoader<T> b;
        a.start(p.a, place.product, place.row, first + warp * S::kDepth);
        b.start(p.b, place.product, place.column, first + warp * S::kDepth);
        std::int64_t left = depth - warp * S::kDepth;  // of k, to load
        int loads_to = 0;
        const auto load = [&] {
            if (left > 0) {
                const SharedAddress stage = own_address + loads_to * kStageBytes;
                const int depth_left = static_cast<int>(min(left, std::int64_t{S::kDepth}));
                a.copy_next(p.a, stage, depth_left);
                b.copy_next(p.b, stage + kStageBytes / 2, depth_left);
            }
            end_copies();
            left -= S::kStep;
            loads_to = loads_to + 1 == p.stages ? 0 : loads_to + 1;
        };
        SliceProduct<T> product;
        int stage = 0;
        int lead = p.stages - 1;  // slices that are loaded before the one that is multiplied next
        for (std::int64_t k = warp * S::kDepth; k < depth;) {
            load();
            if (--lead >= 0) continue;
            k += S::kStep;
            if (p.stages == S::kMostStages)
                wait_for_copies<S::kMostStages - 1>();
            else if (p.stages == 2)
                wait_for_copies<1>();
            else
                wait_for_copies<0>();
            __syncwarp();
            product.multiply(own + stage * S::kStage);
            __syncwarp();
            stage = stage + 1 == p.stages ? 0 : stage + 1;
        }
        __syncthreads();  // sums go where slices were
        const auto warps = static_cast<int>(min((depth + S::kDepth - 1) / S::kDepth, std::int64_t{S::kWarps}));
        if (warp < warps) product.leave(memory + warp * S::kSumsOfWarp);
        __syncthreads();
        const bool is_whole = is_in_cluster || work.is_whole(p.schedule);
        T *const c = p.c.data + place.product * p.c.batch + place.row * p.c.row + place.column * p.c.column;
        T *const sums = p.parts + work.part(p.schedule) * S::kSide * S::kSide;
        // Parts are whole in their rows: they are read as vectors.
        store_sums<T>(
            memory, warps, p.schedule.cluster,
            {is_whole ? c : sums, is_whole ? p.c.row : S::kSide, is_whole ? p.c.column : 1, 0},
            static_cast<int>(min(p.a.rows - place.row, std::int64_t{S::kSide})),
            is_whole ? static_cast<int>(min(p.b.rows - place.column, std::int64_t{S::kSide})) : S::kSide);
        __syncthreads();  // sums have been read where the next slices go
    }
}

}  // namespace

template <typename T>
TileSchedule schedule_sliced(const MatmulLaunch &launch, const Chip &chip) noexcept {
    using S = Slice<T>;
    constexpr Sharing kSharing{4, 2};
    constexpr int kMostOfCluster = 8;
    const std::int64_t blocks = std::int64_t{chip.multiprocessors} * S::kBlocks;
    const TileSchedule schedule = schedule_tiles(launch, S::kSide, S::kSide, S::kStep, blocks, kSharing);
    if (chip.generation < 9) return schedule;
    return schedule_clusters(schedule, chip.multiprocessors, kSharing, kMostOfCluster);
}

template <typename T>
cudaError_t launch_matmul_sliced(const MatmulLaunch &launch, const TileSchedule &schedule, const Chip &chip,
                                 cudaStream_t stream) noexcept {
    using S = Slice<T>;
    SlicedParams<T> p;
    p.schedule = schedule;
    p.a = operand_a<T>(launch);
    p.b = operand_b<T>(launch);
    p.c = result_of<T>(launch);
    p.parts = static_cast<T *>(launch.scratch);
    p.k = launch.k;
    p.stages = std::min(S::kMostStages, chip.shared_bytes / S::kStageBytes);
    const int bytes = std::max(p.stages * S::kStageBytes, S::kSumBytes);
    const Grid grid{static_cast<unsigned>(p.schedule.blocks), S::kThreads, static_cast<unsigned>(bytes),
                    static_cast<unsigned>(p.schedule.cluster)};
    const cudaError_t error = launch_kernel<matmul_sliced_kernel<T>>(grid, stream, p);
    return error == cudaSuccess ? launch_join(launch, p.schedule, p.c, stream) : error;
}

#define CUKERN_INSTANTIATE(type)                                                              \
    template TileSchedule schedule_sliced<CTypeOf<ElementType::type>>(const MatmulLaunch &,   \
                                                                      const Chip &) noexcept; \
    template cudaError_t launch_matmul_sliced<CTypeOf<ElementType::type>>(                    \
        const MatmulLaunch &, const TileSchedule &, const Chip &, cudaStream_t) noexcept;
CUKERN_INSTANTIATE(float32)
CUKERN_INSTANTIATE(int32)
CUKERN_INSTANTIATE(complex64)
CUKERN_INSTANTIATE(float64)
CUKERN_INSTANTIATE(int64)
CUKERN_INSTANTIATE(complex128)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::cuda
