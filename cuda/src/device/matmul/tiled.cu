// The tiled matrix product, through shared memory.
//
// Idea: a block of 256 threads computes a kTileM x kTileN tile of c. For each kTileK of k it brings a tile of
// a and one of b into shared memory, both with k slowest; the next tiles are on their way in registers
// meanwhile, into the other of two buffers. Eight warps, 4 x 2, multiply a part of the tile each: by fma in
// registers, or float64 on the tensor cores (warp_product.cuh).
// Transposed operands differ only in how a tile is read. The products of a batch are layers of the grid. Blocks
// walk c in bands of kBand tile rows, so that those in flight share tiles of a and b in L2.
//
// Tile: 128 x 128 x 16 (4-byte types), 128 x 64 x 8 (8-byte types).
// 2 * m * n * k flops; an element is used 128 or 64 times once loaded: limited by the arithmetic units, and
// before them by reads of shared memory, and by the barrier each kTileK.
//
// The build compiles this file for groups of element types, each with those that CUKERN_EACH_TYPE names.

#include <cstdint>

#include "device/kernels.h"
#include "device/matmul/layers.h"
#include "device/matmul/warp_product.cuh"

namespace cukern::cuda {

// One operand's tile: `length` rows of m (or columns of n) by kTileK of k. `k_fast` tells that neighbours
// along k are neighbours in memory.
template <typename T, int length, bool k_fast>
struct TileLoader {
    using Shape = Tile<T>;
    static constexpr int kVector = Shape::kVector;
    static constexpr int kLoads = length * Shape::kTileK / kVector / Shape::kThreads;
    static constexpr int kFast = (k_fast ? Shape::kTileK : length) / kVector;  // vectors along memory

    Vector<T> held[kLoads];

    // Reads the tile at (row, k) into registers; what lies outside the matrix is zero.
    __device__ __forceinline__ void read(const T *data, std::int64_t ld, std::int64_t row, std::int64_t rows,
                                         std::int64_t k, std::int64_t depth, bool vectors) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const int id = static_cast<int>(threadIdx.x) + i * Shape::kThreads;
            const std::int64_t slow = (k_fast ? row : k) + id / kFast;
            const std::int64_t fast = (k_fast ? k : row) + static_cast<std::int64_t>(id % kFast) * kVector;
            const std::int64_t slow_end = k_fast ? rows : depth;
            const std::int64_t fast_end = k_fast ? depth : rows;
            const T *from = data + slow * ld + fast;
            if (vectors && slow < slow_end && fast + kVector <= fast_end) {
                held[i] = *reinterpret_cast<const Vector<T> *>(from);
            } else {
#pragma unroll
                for (int e = 0; e < kVector; ++e)
                    held[i].values[e] = slow < slow_end && fast + e < fast_end ? from[e] : T{};
            }
        }
    }

    template <int pitch>
    __device__ __forceinline__ void write(T (*tile)[pitch]) const {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const int id = static_cast<int>(threadIdx.x) + i * Shape::kThreads;
            if constexpr (k_fast) {
#pragma unroll
                for (int e = 0; e < kVector; ++e) tile[id % kFast * kVector + e][id / kFast] = held[i].values[e];
            } else {
                *reinterpret_cast<Vector<T> *>(&tile[id / kFast][id % kFast * kVector]) = held[i];
            }
        }
    }
};

template <typename T>
struct TiledParams : MatrixParams<T> {
    std::int64_t lda, ldb;
    std::int64_t tiles_m, tiles_n;
    bool vectors_a, vectors_b;  // rows start on 16 bytes
};

template <typename T, bool a_transposed, bool b_transposed>
__global__ void __launch_bounds__(Tile<T>::kThreads, 2) matmul_tiled_kernel(const TiledParams<T> p) {
    using S = Tile<T>;
    __shared__ alignas(16) T tile_a[2][S::kTileK][S::kPitchM];
    __shared__ alignas(16) T tile_b[2][S::kTileK][S::kPitchN];

    const std::int64_t band_tiles = S::kBand * p.tiles_n;
    const std::int64_t first = blockIdx.x / band_tiles * S::kBand;
    const std::int64_t height = min(p.tiles_m - first, static_cast<std::int64_t>(S::kBand));
    const std::int64_t in_band = blockIdx.x % band_tiles;
    const std::int64_t row = (first + in_band % height) * S::kTileM;
    const std::int64_t column = in_band / height * S::kTileN;

    const T *const a = p.a + blockIdx.z * p.batch_a;
    const T *const b = p.b + blockIdx.z * p.batch_b;
    T *const c = p.c + blockIdx.z * p.batch_c;
    TileLoader<T, S::kTileM, !a_transposed> load_a;
    TileLoader<T, S::kTileN, b_transposed> load_b;
    load_a.read(a, p.lda, row, p.m, 0, p.k, p.vectors_a);
    load_b.read(b, p.ldb, column, p.n, 0, p.k, p.vectors_b);
    load_a.write(tile_a[0]);
    load_b.write(tile_b[0]);
    __syncthreads();

    WarpProduct<T> product;
    int buffer = 0;
    for (std::int64_t k0 = 0; k0 < p.k; k0 += S::kTileK) {
        const bool more = k0 + S::kTileK < p.k;
        if (more) {
            load_a.read(a, p.lda, row, p.m, k0 + S::kTileK, p.k, p.vectors_a);
            load_b.read(b, p.ldb, column, p.n, k0 + S::kTileK, p.k, p.vectors_b);
        }
        product.multiply(tile_a[buffer], tile_b[buffer]);
        if (more) {
            buffer ^= 1;  // the other buffer's readers passed the last barrier
            load_a.write(tile_a[buffer]);
            load_b.write(tile_b[buffer]);
            __syncthreads();
        }
    }

    product.for_each([&](int i, int j, T value) {
        if (row + i < p.m && column + j < p.n) c[(row + i) * p.ldc + column + j] = value;
    });
}

template <typename T>
bool starts_on_vectors(const void *data, std::int64_t ld, std::int64_t batch_step) noexcept {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && ld % Tile<T>::kVector == 0 &&
           batch_step % Tile<T>::kVector == 0;
}

template <typename T>
void start(const TiledParams<T> &p, bool a_transposed, bool b_transposed, dim3 grid,
           cudaStream_t stream) noexcept {
    constexpr int kThreads = Tile<T>::kThreads;
    if (a_transposed && b_transposed)
        matmul_tiled_kernel<T, true, true><<<grid, kThreads, 0, stream>>>(p);
    else if (a_transposed)
        matmul_tiled_kernel<T, true, false><<<grid, kThreads, 0, stream>>>(p);
    else if (b_transposed)
        matmul_tiled_kernel<T, false, true><<<grid, kThreads, 0, stream>>>(p);
    else
        matmul_tiled_kernel<T, false, false><<<grid, kThreads, 0, stream>>>(p);
}

template <typename T>
cudaError_t launch_matmul_tiled(const MatmulLaunch &launch, cudaStream_t stream) noexcept {
    using S = Tile<T>;
    TiledParams<T> p;
    p.lda = launch.lda;
    p.ldb = launch.ldb;
    p.tiles_m = (launch.m + S::kTileM - 1) / S::kTileM;
    p.tiles_n = (launch.n + S::kTileN - 1) / S::kTileN;
    p.vectors_a = starts_on_vectors<T>(launch.a, p.lda, launch.batch_a);
    p.vectors_b = starts_on_vectors<T>(launch.b, p.ldb, launch.batch_b);
    const auto blocks = static_cast<unsigned>(p.tiles_m * p.tiles_n);
    return launch_in_layers<T>(launch, p, [&](unsigned layers) {
        start(p, launch.a_transposed, launch.b_transposed, dim3(blocks, 1, layers), stream);
    });
}

#define CUKERN_INSTANTIATE(type)                                                               \
    template cudaError_t launch_matmul_tiled<CTypeOf<ElementType::type>>(const MatmulLaunch &, \
                                                                         cudaStream_t) noexcept;
CUKERN_EACH_TYPE(CUKERN_INSTANTIATE)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::cuda
