// Products of complex numbers without cuBLAS.
//
// Idea: a block of 256 threads computes a tile of kSide x kSide elements of c, four a thread. For each kDepth of k
// it brings a tile of a and one of b into shared memory, both with k slowest. Operands have any strides; a tile is
// read along the dimension whose elements follow each other.
//
// Tile: 32 x 32 x 16. 8 * m * n * k flops, an element is used 32 times once loaded: limited by reads of shared
// memory, some tenths of what cuBLAS reaches, which takes these products where it is installed.
#include <cstdint>

#include "device/kernels.h"
#include "device/matmul/layers.h"

namespace cukern::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSide = 32;
constexpr int kDepth = 16;
constexpr int kApart = kSide / 2;  // of a thread's two rows, and columns

template <typename T>
struct ComplexParams : MatrixParams<T> {
    std::int64_t a_row, a_column, b_row, b_column;
    std::int64_t tiles_n;
};

// Reads kSide rows (columns of b) by kDepth of k; what lies outside the matrix is zero.
template <typename T>
__device__ __forceinline__ void read_tile(T (*tile)[kSide + 1], const T *data, std::int64_t row, std::int64_t rows,
                                          std::int64_t row_stride, std::int64_t k, std::int64_t depth,
                                          std::int64_t k_stride) {
#pragma unroll
    for (int i = 0; i < kSide * kDepth / kThreads; ++i) {
        const int id = static_cast<int>(threadIdx.x) + i * kThreads;
        const int r = k_stride == 1 ? id / kDepth : id % kSide;
        const int d = k_stride == 1 ? id % kDepth : id / kSide;
        const bool is_inside = row + r < rows && k + d < depth;
        tile[d][r] = is_inside ? data[(row + r) * row_stride + (k + d) * k_stride] : T{};
    }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) matmul_complex_kernel(const __grid_constant__ ComplexParams<T> p) {
    __shared__ T tile_a[kDepth][kSide + 1];
    __shared__ T tile_b[kDepth][kSide + 1];
    const std::int64_t row = blockIdx.x / p.tiles_n * kSide;
    const std::int64_t column = blockIdx.x % p.tiles_n * kSide;
    const T *const a = p.a + blockIdx.z * p.batch_a;
    const T *const b = p.b + blockIdx.z * p.batch_b;
    T *const c = p.c + blockIdx.z * p.batch_c;
    const int y = static_cast<int>(threadIdx.x) / kApart;
    const int x = static_cast<int>(threadIdx.x) % kApart;
    T sums[2][2] = {};
    for (std::int64_t k = 0; k < p.k; k += kDepth) {
        read_tile(tile_a, a, row, p.m, p.a_row, k, p.k, p.a_column);
        read_tile(tile_b, b, column, p.n, p.b_column, k, p.k, p.b_row);
        __syncthreads();
#pragma unroll 4
        for (int d = 0; d < kDepth; ++d) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const T u = tile_a[d][y + i * kApart];
                    const T v = tile_b[d][x + j * kApart];
                    T &sum = sums[i][j];
                    sum.real = fma(-u.imag, v.imag, fma(u.real, v.real, sum.real));
                    sum.imag = fma(u.imag, v.real, fma(u.real, v.imag, sum.imag));
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const std::int64_t r = row + y + i * kApart;
            const std::int64_t s = column + x + j * kApart;
            if (r < p.m && s < p.n) c[r * p.ldc + s] = sums[i][j];
        }
    }
}

}  // namespace

template <typename T>
cudaError_t launch_matmul_complex(const MatmulLaunch &launch, cudaStream_t stream) noexcept {
    ComplexParams<T> p;
    p.a_row = launch.a_transposed ? 1 : launch.lda;
    p.a_column = launch.a_transposed ? launch.lda : 1;
    p.b_row = launch.b_transposed ? 1 : launch.ldb;
    p.b_column = launch.b_transposed ? launch.ldb : 1;
    p.tiles_n = (launch.n + kSide - 1) / kSide;
    const auto blocks = static_cast<unsigned>((launch.m + kSide - 1) / kSide * p.tiles_n);
    return launch_in_layers<T>(launch, p, [&](unsigned layers) {
        matmul_complex_kernel<T><<<dim3(blocks, 1, layers), kThreads, 0, stream>>>(p);
    });
}

template cudaError_t launch_matmul_complex<Complex64>(const MatmulLaunch &, cudaStream_t) noexcept;
template cudaError_t launch_matmul_complex<Complex128>(const MatmulLaunch &, cudaStream_t) noexcept;

}  // namespace cukern::cuda
