// The product of the smallest matrices, of float32 and float64.
//
// Idea: what such a product takes is the time to start, to reach memory once, and to store. So threads load what
// they multiply straight into registers, all of it at once, without stages in shared memory and waits for them.
//
// matmul_direct_kernel: float64, on tensor cores. A block computes a tile of c of 16 rows; its warps share k, and
//   at the end all threads add up the warps' sums in shared memory. A lane loads two neighbours along k, in the
//   order in which memory has them: the instruction's k 0 to 7 are the lanes' first elements, then their second
//   ones.
// matmul_elements_kernel: float32. A thread computes an element of c, with all of k or kDepth of it at a time.
//
// Limited by latency; of larger products by how often an element is loaded, once for 8 or 16 products.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/launch_kernel.h"
#include "device/matmul/operands.cuh"
#include "device/matmul/own_product.h"
#include "device/matmul/tensor_cores.cuh"
#include "device/matmul/tile_work.cuh"
#include "plan/rounding.h"

namespace cukern::cuda {

// Compute capability 12.0 has no tensor cores for float64: the compiler makes many instructions of each.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr bool kIsCompiled = false;
#else
constexpr bool kIsCompiled = uses_tensor_cores<double>;
#endif

// So many blocks of 8 columns a tile has; a warp loads so many slices of 8 along k at once.
template <int blocks, int slices, int warps>
struct Direct {
    static constexpr int kRows = 16;
    static constexpr int kBlocks = blocks;
    static constexpr int kColumns = 8 * blocks;
    static constexpr int kSlices = slices;
    static constexpr int kMostWarps = warps;
    static constexpr int kSums = 4 * blocks;  // of a lane

    // Two elements at neighbouring places along k, of which so many are left; 0 beyond them.
    __device__ __forceinline__ static void load_pair(const double *from, std::int64_t step, int left, double *x,
                                                     double *y) {
        *x = left > 0 ? *from : 0;
        *y = left > 1 ? from[step] : 0;
    }
};

namespace {

template <typename T>
struct DirectParams {
    TileSchedule schedule;
    Operand<T> a, b;
    Result<T> c;
    int k;

    // Where a kept launch gets new addresses.
    static void tell_places(PreparedKernel *prepared) noexcept {
        if (prepared == nullptr) return;
        prepared->places[0] = offsetof(DirectParams, c) + offsetof(Result<T>, data);
        prepared->places[1] = offsetof(DirectParams, a) + offsetof(Operand<T>, data);
        prepared->places[2] = offsetof(DirectParams, b) + offsetof(Operand<T>, data);
    }
};

// On an H100 the first is the fastest up to 128 x 128 x 128, the second above it.
using SmallTiles = Direct<1, 4, 4>;
using WideTiles = Direct<2, 1, 8>;

template <typename D>
__global__ void __launch_bounds__(D::kMostWarps * 32)
    matmul_direct_kernel(const __grid_constant__ DirectParams<double> p) {
    if constexpr (kIsCompiled) {
        __shared__ double shared[D::kMostWarps * D::kSums * 32];
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int warps = static_cast<int>(blockDim.x) / 32;
        const TilePlace place = place_of(p.schedule, static_cast<int>(blockIdx.x));
        const std::int64_t row = place.row + lane / 4;  // of c, and of the lane's elements of a
        const std::int64_t column = place.column + lane / 4;
        const int step = 8 * warps;
        int left = p.k - 8 * warp - lane % 4 * 2;  // of k, from the lane's next pair on
        const double *a = p.a.data + place.product * p.a.batch + row * p.a.row + (p.k - left) * p.a.depth;
        const double *b = p.b.data + place.product * p.b.batch + column * p.b.row + (p.k - left) * p.b.depth;
        const bool has_row[] = {row < p.a.rows, row + 8 < p.a.rows};
        double sum[D::kBlocks][4] = {};
        for (int begin = 8 * warp; begin < p.k; begin += step * D::kSlices) {
            double x[D::kSlices][4];
            double y[D::kSlices][D::kBlocks][2];
#pragma unroll
            for (int s = 0; s < D::kSlices; ++s) {
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    D::load_pair(a + half * 8 * p.a.row, p.a.depth, has_row[half] ? left : 0, &x[s][half],
                                 &x[s][2 + half]);
#pragma unroll
                for (int j = 0; j < D::kBlocks; ++j)
                    D::load_pair(b + j * 8 * p.b.row, p.b.depth, column + j * 8 < p.b.rows ? left : 0, &y[s][j][0],
                                 &y[s][j][1]);
                left -= step;
                a += step * p.a.depth;
                b += step * p.b.depth;
            }
#pragma unroll
            for (int s = 0; s < D::kSlices; ++s)
#pragma unroll
                for (int j = 0; j < D::kBlocks; ++j) multiply_on_tensor_cores(x[s], y[s][j], sum[j]);
        }
#pragma unroll
        for (int i = 0; i < D::kSums; ++i) shared[(warp * D::kSums + i) * 32 + lane] = sum[i / 4][i % 4];
        __syncthreads();
        double *const c = p.c.data + place.product * p.c.batch;
#pragma unroll 1
        for (int e = static_cast<int>(threadIdx.x); e < D::kRows * D::kColumns; e += 32 * warps) {
            const std::int64_t i = place.row + e / D::kColumns;
            const std::int64_t j = place.column + e % D::kColumns;
            // Where a warp has left it (tensor_cores.cuh).
            const int part = e % D::kColumns / 8 * 4 + e / D::kColumns / 8 * 2 + e % 2;
            const int at = part * 32 + e / D::kColumns % 8 * 4 + e % 8 / 2;
            double total = shared[at];
#pragma unroll
            for (int other = 1; other < D::kMostWarps; ++other)
                if (other < warps) total += shared[other * D::kSums * 32 + at];
            if (i < p.a.rows && j < p.b.rows) c[i * p.c.row + j * p.c.column] = total;
        }
    }
}

constexpr int kSide = 16;   // of a tile of matmul_elements_kernel
constexpr int kDepth = 16;  // of k, that it loads at once

__global__ void __launch_bounds__(kSide *kSide)
    matmul_elements_kernel(const __grid_constant__ DirectParams<float> p) {
    const TilePlace place = place_of(p.schedule, static_cast<int>(blockIdx.x));
    const std::int64_t row = place.row + threadIdx.x / kSide;
    const std::int64_t column = place.column + threadIdx.x % kSide;
    if (row >= p.a.rows || column >= p.b.rows) return;
    const float *a = p.a.data + place.product * p.a.batch + row * p.a.row;
    const float *b = p.b.data + place.product * p.b.batch + column * p.b.row;
    float sum = 0;
#pragma unroll 1
    for (int left = p.k; left > 0; left -= kDepth) {
        float x[kDepth];
        float y[kDepth];
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            x[i] = i < left ? *a : 0;
            y[i] = i < left ? *b : 0;
            a += p.a.depth;
            b += p.b.depth;
        }
#pragma unroll
        for (int i = 0; i < kDepth; ++i) sum = fma(x[i], y[i], sum);
    }
    p.c.data[place.product * p.c.batch + row * p.c.row + column * p.c.column] = sum;
}

template <typename T>
DirectParams<T> params_of(const MatmulLaunch &launch, int rows, int columns) noexcept {
    const std::int64_t tiles = divided_up(launch.m, rows) * divided_up(launch.n, columns) * launch.batch;
    // One block for each tile, with all of k.
    const auto k = static_cast<int>(launch.k);
    const TileSchedule schedule = schedule_tiles(launch, rows, columns, k, tiles, {});
    return {schedule, operand_a<T>(launch), operand_b<T>(launch), result_of<T>(launch), k};
}

template <typename D>
cudaError_t launch_tiles(const MatmulLaunch &launch, cudaStream_t stream) noexcept {
    DirectParams<double> p = params_of<double>(launch, D::kRows, D::kColumns);
    const auto warps = static_cast<unsigned>(std::min<std::int64_t>(D::kMostWarps, divided_up(launch.k, 8)));
    DirectParams<double>::tell_places(launch.prepared);
    return launch_kernel<matmul_direct_kernel<D>>(static_cast<unsigned>(p.schedule.blocks), 32 * warps, stream, p,
                                                  launch.prepared);
}

// Microseconds, as measured on an H100: to start, for each further time that a warp loads, and for so many tiles.
double time_of_tiles(const MatmulLaunch &launch, int columns, int depth, double of_work) noexcept {
    const auto tiles =
        static_cast<double>(divided_up(launch.m, 16) * divided_up(launch.n, columns) * launch.batch);
    const auto loads = static_cast<double>(divided_up(launch.k, depth));
    return 1.7 + 0.55 * (loads - 1) + of_work * tiles * static_cast<double>(launch.k);
}

double time_of_small_tiles(const MatmulLaunch &launch) noexcept {
    return time_of_tiles(launch, SmallTiles::kColumns, 8 * SmallTiles::kSlices * SmallTiles::kMostWarps, 28e-6);
}
double time_of_wide_tiles(const MatmulLaunch &launch) noexcept {
    return time_of_tiles(launch, WideTiles::kColumns, 8 * WideTiles::kMostWarps, 24e-6);
}

}  // namespace

template <>
double time_of_direct<double>(const MatmulLaunch &launch) noexcept {
    return std::min(time_of_small_tiles(launch), time_of_wide_tiles(launch));
}

template <>
double time_of_direct<float>(const MatmulLaunch &launch) noexcept {
    const auto elements = static_cast<double>(launch.m * launch.n * launch.batch);
    const auto loads = static_cast<double>(divided_up(launch.k, kDepth));
    // As those of own_product.cu.
    return 1.9 + 0.38 * (loads - 1) + elements * (8.3e-6 + 4.2e-7 * static_cast<double>(launch.k));
}

template <>
cudaError_t launch_matmul_direct<double>(const MatmulLaunch &launch, cudaStream_t stream) noexcept {
    return time_of_small_tiles(launch) <= time_of_wide_tiles(launch) ? launch_tiles<SmallTiles>(launch, stream)
                                                                     : launch_tiles<WideTiles>(launch, stream);
}

template <>
cudaError_t launch_matmul_direct<float>(const MatmulLaunch &launch, cudaStream_t stream) noexcept {
    DirectParams<float> p = params_of<float>(launch, kSide, kSide);
    DirectParams<float>::tell_places(launch.prepared);
    return launch_kernel<matmul_elements_kernel>(static_cast<unsigned>(p.schedule.blocks), kSide * kSide, stream,
                                                 p, launch.prepared);
}

}  // namespace cukern::cuda
