// The product of the smallest matrices, of float32 and float64.
//
// Idea: what such a product takes is the time to start, to reach memory once, and to store. So threads load what
// they multiply straight into registers, as much as they hold at once, without stages in shared memory and waits
// for them.
//
// matmul_direct_kernel: float64, on tensor cores. A block computes a tile of c of 16 rows; its warps share k, and
//   at the end all threads add up the warps' sums in shared memory. A lane loads two neighbours along k, in the
//   order in which memory has them: the instruction's k 0 to 7 are the lanes' first elements, then their second
//   ones. Longer sums are limited by what the L2 cache delivers: a tile of 16 x 32 reads three quarters of what
//   two of 16 x 16 do.
// matmul_elements_kernel: float32. A thread computes an element of c, with all of k or kDepth of it at a time.
//
// Limited by latency; of larger products by how often an element is loaded, once for 8 to 32 products.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/follow.cuh"
#include "device/grid.cuh"
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
    static constexpr int kWarps = warps;
    static constexpr int kStep = 8 * warps;            // from a slice to a warp's next one
    static constexpr int kSums = 4 * blocks;           // of a lane
    static constexpr bool kLoadsVectors = blocks > 1;  // where memory allows it
};

namespace {

// A block computes a tile. What a kernel reads of this it waits for, once for each 64 bytes: so it is short.
template <typename T>
struct DirectParams {
    Divider of_product, of_row;  // by the tiles of a product, and of a row of them
    int k;
    Operand<T> a, b;
    Result<T> c;

    // Where a kept launch gets new addresses.
    static void tell_places(PreparedKernel *prepared, bool is_transposed) noexcept {
        if (prepared == nullptr) return;
        prepared->places[0] = offsetof(DirectParams, c) + offsetof(Result<T>, data);
        prepared->places[is_transposed ? 2 : 1] = offsetof(DirectParams, a) + offsetof(Operand<T>, data);
        prepared->places[is_transposed ? 1 : 2] = offsetof(DirectParams, b) + offsetof(Operand<T>, data);
    }
};

// The block's tile.
template <typename T>
__device__ __forceinline__ TilePlace place_of(const DirectParams<T> &p, int rows, int columns) {
    std::uint32_t in_product;
    std::uint32_t column;
    const std::uint32_t product = p.of_product.divide(blockIdx.x, &in_product);
    const std::uint32_t row = p.of_row.divide(in_product, &column);
    return {product, static_cast<std::int64_t>(row) * rows, static_cast<std::int64_t>(column) * columns};
}

// On an H100 the first is the fastest up to 160 x 160 x 160, the second above it.
using SmallTiles = Direct<1, 4, 4>;
using WideTiles = Direct<4, 1, 8>;

// What a lane loads of an operand in a slice of 8 along k: of its rows +0, +8 and so on (of b: columns) two
// neighbours along k. Which of its strides is 1 is known to the compiler, so that two of them, or all of a k, are
// constants away from one address. `has_vectors`: where they lie side by side, every pair is one vector.
template <int rows, bool is_deep, bool has_vectors>
class PairLoader {
public:
    // `step`: along k, from a slice to the warp's next one.
    __device__ __forceinline__ void start(const Operand<double> &operand, std::int64_t product, std::int64_t row,
                                          int k, int step) {
        const std::int64_t stride = is_deep ? operand.row : operand.depth;
        const double *const first =
            operand.data + product * operand.batch + (is_deep ? row * stride + k : row + k * stride);
#pragma unroll
        for (int i = 0; i < kAddresses; ++i) at_[i] = first + i * (is_deep ? 8 * stride : stride);
        step_ = is_deep ? step : step * stride;
#pragma unroll
        for (int i = 0; i < rows; ++i) is_inside_[i] = row + 8 * i < operand.rows;
    }

    // So many elements along k are left from the lane's first one on. What lies beyond them, or beyond the rows,
    // is 0.
    __device__ __forceinline__ void load_next(int left, double (&pairs)[rows][2]) {
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            if constexpr (is_deep && has_vectors) {  // and k is even
                const Vector pair =
                    is_inside_[i] && left > 0 ? *reinterpret_cast<const Vector *>(at_[i]) : Vector{};
                pairs[i][0] = pair.first;
                pairs[i][1] = pair.second;
                continue;
            }
            pairs[i][0] = is_inside_[i] && left > 0 ? (is_deep ? at_[i][0] : at_[0][8 * i]) : 0;
            pairs[i][1] = is_inside_[i] && left > 1 ? (is_deep ? at_[i][1] : at_[1][8 * i]) : 0;
        }
#pragma unroll
        for (int i = 0; i < kAddresses; ++i) at_[i] += step_;
    }

private:
    struct alignas(16) Vector {
        double first, second;
    };
    static constexpr int kAddresses = is_deep ? rows : 2;
    const double *at_[kAddresses];
    std::int64_t step_;
    bool is_inside_[rows];
};

// What a lane holds of a warp's slices.
template <typename D>
struct Slices {
    double a[D::kSlices][2][2];
    double b[D::kSlices][D::kBlocks][2];
};

template <typename D, bool is_a_deep, bool is_b_deep, bool has_vectors>
__global__ void __launch_bounds__(D::kWarps * 32)
    matmul_direct_kernel(const __grid_constant__ DirectParams<double> p) {
    if constexpr (kIsCompiled) {
        __shared__ double shared[D::kWarps * D::kSums * 32];
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const TilePlace place = place_of(p, D::kRows, D::kColumns);
        const int first = 8 * warp + lane % 4 * 2;
        PairLoader<2, is_a_deep, has_vectors> a;
        PairLoader<D::kBlocks, is_b_deep, has_vectors> b;
        a.start(p.a, place.product, place.row + lane / 4, first, D::kStep);
        b.start(p.b, place.product, place.column + lane / 4, first, D::kStep);
        int left = p.k - first;
        const auto load = [&](Slices<D> &slices) {
#pragma unroll
            for (int s = 0; s < D::kSlices; ++s, left -= D::kStep) {
                a.load_next(left, slices.a[s]);
                b.load_next(left, slices.b[s]);
            }
        };
        double sum[D::kBlocks][4] = {};
        const auto multiply = [&](const Slices<D> &slices) {
#pragma unroll
            for (int s = 0; s < D::kSlices; ++s) {
                const auto &pairs = slices.a[s];
                const double x[] = {pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]};
#pragma unroll
                for (int j = 0; j < D::kBlocks; ++j) multiply_on_tensor_cores(x, slices.b[s][j], sum[j]);
            }
        };
        // The next slices are on their way while these are multiplied.
        int begin = 8 * warp;
        const auto multiply_and_load = [&](const Slices<D> &now, Slices<D> &next) {
            begin += D::kStep * D::kSlices;
            if (begin < p.k) load(next);
            multiply(now);
            return begin < p.k;
        };
        follow_kernel_before();
        Slices<D> even;
        Slices<D> odd;
        load(even);
        while (multiply_and_load(even, odd) && multiply_and_load(odd, even));
#pragma unroll
        for (int i = 0; i < D::kSums; ++i) shared[(warp * D::kSums + i) * 32 + lane] = sum[i / 4][i % 4];
        __syncthreads();
        double *const c = p.c.data + place.product * p.c.batch;
        // In the order in which the warps have left them (tensor_cores.cuh), without conflicts of banks.
#pragma unroll
        for (int part = warp; part < D::kSums; part += D::kWarps) {
            const double *const at = shared + part * 32 + lane;
            double total = *at;
#pragma unroll
            for (int other = 1; other < D::kWarps; ++other) total += at[other * D::kSums * 32];
            const std::int64_t i = place.row + part % 4 / 2 * 8 + lane / 4;
            const std::int64_t j = place.column + part / 4 * 8 + lane % 4 * 2 + part % 2;
            if (i < p.a.rows && j < p.b.rows) c[i * p.c.row + j * p.c.column] = total;
        }
    }
}

constexpr int kSide = 16;   // of a tile of matmul_elements_kernel
constexpr int kDepth = 16;  // of k, that it loads at once

__global__ void __launch_bounds__(kSide *kSide)
    matmul_elements_kernel(const __grid_constant__ DirectParams<float> p) {
    const TilePlace place = place_of(p, kSide, kSide);
    const std::int64_t row = place.row + threadIdx.x / kSide;
    const std::int64_t column = place.column + threadIdx.x % kSide;
    if (row >= p.a.rows || column >= p.b.rows) return;
    const float *a = p.a.data + place.product * p.a.batch + row * p.a.row;
    const float *b = p.b.data + place.product * p.b.batch + column * p.b.row;
    follow_kernel_before();
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
DirectParams<T> params_of(const MatmulLaunch &launch, int rows, int columns, unsigned *blocks) noexcept {
    const auto across = static_cast<std::uint32_t>(divided_up(launch.n, columns));
    const auto tiles = static_cast<std::uint32_t>(divided_up(launch.m, rows)) * across;
    *blocks = tiles * static_cast<unsigned>(launch.batch);
    return {Divider::make(tiles), Divider::make(across), static_cast<int>(launch.k),
            operand_a<T>(launch), operand_b<T>(launch),  result_of<T>(launch)};
}

// a' @ b' is computed as the transposed product, b @ a, whose operands are not transposed: one kernel less.
bool runs_transposed(const MatmulLaunch &launch) noexcept { return launch.a_transposed && launch.b_transposed; }
MatmulLaunch as_run(const MatmulLaunch &launch) noexcept {
    return runs_transposed(launch) ? transposed(launch) : launch;
}

// Whether both operands have all their pairs along k in vectors, as far as those lie side by side.
bool has_pairs(const MatmulLaunch &launch) noexcept {
    const bool has_a = launch.a_transposed || has_vectors<double>(launch.a, 1, launch.lda, launch.batch_a);
    const bool has_b = !launch.b_transposed || has_vectors<double>(launch.b, 1, launch.ldb, launch.batch_b);
    return launch.k % 2 == 0 && has_a && has_b;
}

template <typename D>
cudaError_t launch_tiles(const MatmulLaunch &launch, bool is_transposed, cudaStream_t stream) noexcept {
    unsigned blocks = 0;
    DirectParams<double> p = params_of<double>(launch, D::kRows, D::kColumns, &blocks);
    DirectParams<double>::tell_places(launch.prepared, is_transposed);
    const auto launch_form = [&](auto is_a_deep, auto is_b_deep, auto has_vectors) {
        return launch_kernel<matmul_direct_kernel<D, is_a_deep.value, is_b_deep.value, has_vectors.value>>(
            blocks, D::kWarps * 32, stream, p, launch.prepared);
    };
    using Yes = std::true_type;
    using No = std::false_type;
    if (launch.a_transposed) return launch_form(No(), No(), No());
    if constexpr (D::kLoadsVectors)
        if (has_pairs(launch))
            return launch.b_transposed ? launch_form(Yes(), Yes(), Yes()) : launch_form(Yes(), No(), Yes());
    return launch.b_transposed ? launch_form(Yes(), Yes(), No()) : launch_form(Yes(), No(), No());
}

// What a kernel takes in microseconds: to start, for each further time that a warp loads, for a tile, and for each
// element along k of a tile beyond those that run at once.
struct Cost {
    double start, load, tile, element, tiles_at_once;
};

template <typename D>
double time_of_tiles(const MatmulLaunch &launch, const Cost &cost) noexcept {
    const auto tiles =
        static_cast<double>(divided_up(launch.m, D::kRows) * divided_up(launch.n, D::kColumns) * launch.batch);
    const auto loads = static_cast<double>(divided_up(launch.k, D::kStep * D::kSlices));
    return cost.start + cost.load * (loads - 1) + cost.tile * tiles +
           cost.element * static_cast<double>(launch.k) * std::max(0.0, tiles - cost.tiles_at_once);
}

// Fitted to 27 products on an H100, which has 132 multiprocessors.
double time_of_small_tiles(const MatmulLaunch &launch) noexcept {
    return time_of_tiles<SmallTiles>(launch, {1.7, 0.5, 1.3e-3, 22e-6, 0});
}
double time_of_wide_tiles(const MatmulLaunch &launch) noexcept {
    return time_of_tiles<WideTiles>(launch, {2.0, 0.42, 4e-3, 80e-6, 132});
}

}  // namespace

template <>
double time_of_direct<double>(const MatmulLaunch &launch) noexcept {
    const MatmulLaunch side = as_run(launch);
    return std::min(time_of_small_tiles(side), time_of_wide_tiles(side));
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
    const MatmulLaunch side = as_run(launch);
    const bool is_transposed = runs_transposed(launch);
    return time_of_small_tiles(side) <= time_of_wide_tiles(side)
               ? launch_tiles<SmallTiles>(side, is_transposed, stream)
               : launch_tiles<WideTiles>(side, is_transposed, stream);
}

template <>
cudaError_t launch_matmul_direct<float>(const MatmulLaunch &launch, cudaStream_t stream) noexcept {
    unsigned blocks = 0;
    DirectParams<float> p = params_of<float>(launch, kSide, kSide, &blocks);
    DirectParams<float>::tell_places(launch.prepared, false);
    return launch_kernel<matmul_elements_kernel>(blocks, kSide * kSide, stream, p, launch.prepared);
}

}  // namespace cukern::cuda
