// The tiled matrix product: shared memory and registers, no tensor cores.
//
// Idea: a block of 256 threads computes a kTileM x kTileN tile of c. For each kTileK of k it brings a tile of
// a and one of b into shared memory, both with k slowest, so that a thread reads its fragments as 16-byte
// vectors; the next tiles are on their way in registers meanwhile, into the other of two buffers. Eight
// warps, 4 x 2; a warp's lanes are 4 x 8; a thread holds kChunksM x kChunksN chunks of 4 x 4 of c.
// Transposed operands differ only in how a tile is read. Blocks walk c in bands of kBand tile rows, so that
// those in flight share tiles of a and b in L2.
//
// Tile: 128 x 128 x 16 (4-byte types), 128 x 64 x 8 (8-byte types).
// 2 * m * n * k flops; a tile row of a or b is used 128 (64) times once loaded: limited by the fma units, and
// before them by shared memory, of which a thread reads 4 vectors for 64 fma.
#pragma once

#include <cstdint>

#include "cuda/kernels.h"
#include "functors.cuh"

namespace cukern::cuda {

template <typename T>
struct Tile {
    static constexpr int kThreads = 256;
    static constexpr int kChunk = 4;  // elements of a side of a thread's chunk
    static constexpr int kChunksM = 2;
    static constexpr int kChunksN = sizeof(T) == 4 ? 2 : 1;
    static constexpr int kWarpM = 4 * kChunk * kChunksM;
    static constexpr int kWarpN = 8 * kChunk * kChunksN;
    static constexpr int kTileM = 4 * kWarpM;
    static constexpr int kTileN = 2 * kWarpN;
    static constexpr int kTileK = sizeof(T) == 4 ? 16 : 8;
    static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
    static constexpr int kBand = 8;
};

template <typename T>
struct alignas(16) Fragment {
    T values[16 / sizeof(T)];
};

// One operand's tile: `length` rows of m (or columns of n) by kTileK of k. `k_fast` tells that neighbours
// along k are neighbours in memory.
template <typename T, int length, bool k_fast>
struct TileLoader {
    using Shape = Tile<T>;
    static constexpr int kVector = Shape::kVector;
    static constexpr int kLoads = length * Shape::kTileK / kVector / Shape::kThreads;
    static constexpr int kFast = (k_fast ? Shape::kTileK : length) / kVector;  // vectors along memory

    Fragment<T> held[kLoads];

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
                held[i] = *reinterpret_cast<const Fragment<T> *>(from);
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
                *reinterpret_cast<Fragment<T> *>(&tile[id / kFast][id % kFast * kVector]) = held[i];
            }
        }
    }
};

template <typename T>
struct TiledParams {
    const T *a, *b;
    T *c;
    std::int64_t lda, ldb, ldc, m, n, k;
    std::int64_t tiles_m, tiles_n;
    bool vectors_a, vectors_b;  // rows start on 16 bytes
};

template <typename T>
__device__ __forceinline__ T multiply_add(T a, T b, T c) {
    if constexpr (std::is_integral_v<T>) {
        using U = wrapping_t<T>;
        return static_cast<T>(static_cast<U>(a) * static_cast<U>(b) + static_cast<U>(c));
    } else {
        return fma(a, b, c);
    }
}

template <typename T, int chunks, int spacing, int pitch>
__device__ __forceinline__ void read_fragment(const T (*tile)[pitch], int k, int at, T (&to)[chunks * 4]) {
    constexpr int kVector = Tile<T>::kVector;
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk)
#pragma unroll
        for (int v = 0; v < 4; v += kVector) {
            const auto f = *reinterpret_cast<const Fragment<T> *>(&tile[k][at + chunk * spacing + v]);
#pragma unroll
            for (int e = 0; e < kVector; ++e) to[chunk * 4 + v + e] = f.values[e];
        }
}

template <typename T, bool a_transposed, bool b_transposed>
__global__ void __launch_bounds__(Tile<T>::kThreads, sizeof(T) == 4 ? 2 : 1)
    matmul_tiled_kernel(const TiledParams<T> p) {
    using S = Tile<T>;
    constexpr int kPitchM = S::kTileM + S::kVector;
    constexpr int kPitchN = S::kTileN + S::kVector;
    __shared__ alignas(16) T tile_a[2][S::kTileK][kPitchM];
    __shared__ alignas(16) T tile_b[2][S::kTileK][kPitchN];

    const std::int64_t band_tiles = S::kBand * p.tiles_n;
    const std::int64_t first = blockIdx.x / band_tiles * S::kBand;
    const std::int64_t height = min(p.tiles_m - first, static_cast<std::int64_t>(S::kBand));
    const std::int64_t in_band = blockIdx.x % band_tiles;
    const std::int64_t row = (first + in_band % height) * S::kTileM;
    const std::int64_t column = in_band / height * S::kTileN;

    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int at_m = warp / 2 * S::kWarpM + lane / 8 * S::kChunk;
    const int at_n = warp % 2 * S::kWarpN + lane % 8 * S::kChunk;

    TileLoader<T, S::kTileM, !a_transposed> load_a;
    TileLoader<T, S::kTileN, b_transposed> load_b;
    load_a.read(p.a, p.lda, row, p.m, 0, p.k, p.vectors_a);
    load_b.read(p.b, p.ldb, column, p.n, 0, p.k, p.vectors_b);
    load_a.write(tile_a[0]);
    load_b.write(tile_b[0]);
    __syncthreads();

    T sum[S::kChunksM * 4][S::kChunksN * 4] = {};
    int buffer = 0;
    for (std::int64_t k0 = 0; k0 < p.k; k0 += S::kTileK) {
        const bool more = k0 + S::kTileK < p.k;
        if (more) {
            load_a.read(p.a, p.lda, row, p.m, k0 + S::kTileK, p.k, p.vectors_a);
            load_b.read(p.b, p.ldb, column, p.n, k0 + S::kTileK, p.k, p.vectors_b);
        }
#pragma unroll
        for (int k = 0; k < S::kTileK; ++k) {
            T x[S::kChunksM * 4];
            T y[S::kChunksN * 4];
            read_fragment<T, S::kChunksM, 4 * S::kChunk>(tile_a[buffer], k, at_m, x);
            read_fragment<T, S::kChunksN, 8 * S::kChunk>(tile_b[buffer], k, at_n, y);
#pragma unroll
            for (int i = 0; i < S::kChunksM * 4; ++i)
#pragma unroll
                for (int j = 0; j < S::kChunksN * 4; ++j) sum[i][j] = multiply_add(x[i], y[j], sum[i][j]);
        }
        if (more) {
            buffer ^= 1;  // the other buffer's readers passed the last barrier
            load_a.write(tile_a[buffer]);
            load_b.write(tile_b[buffer]);
            __syncthreads();
        }
    }

#pragma unroll
    for (int i = 0; i < S::kChunksM * 4; ++i) {
        const std::int64_t to_row = row + at_m + i / 4 * 4 * S::kChunk + i % 4;
        if (to_row >= p.m) continue;
#pragma unroll
        for (int j = 0; j < S::kChunksN * 4; ++j) {
            const std::int64_t to_column = column + at_n + j / 4 * 8 * S::kChunk + j % 4;
            if (to_column < p.n) p.c[to_row * p.ldc + to_column] = sum[i][j];
        }
    }
}

template <typename T>
bool starts_on_vectors(const void *data, std::int64_t ld) noexcept {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && ld % Tile<T>::kVector == 0;
}

template <typename T>
cudaError_t launch_matmul_tiled(const MatmulLaunch &launch, cudaStream_t stream) noexcept {
    using S = Tile<T>;
    TiledParams<T> p;
    p.a = static_cast<const T *>(launch.a);
    p.b = static_cast<const T *>(launch.b);
    p.c = static_cast<T *>(launch.c);
    p.lda = launch.lda;
    p.ldb = launch.ldb;
    p.ldc = launch.ldc;
    p.m = launch.m;
    p.n = launch.n;
    p.k = launch.k;
    p.tiles_m = (p.m + S::kTileM - 1) / S::kTileM;
    p.tiles_n = (p.n + S::kTileN - 1) / S::kTileN;
    p.vectors_a = starts_on_vectors<T>(p.a, p.lda);
    p.vectors_b = starts_on_vectors<T>(p.b, p.ldb);
    const auto blocks = static_cast<unsigned>(p.tiles_m * p.tiles_n);
    if (launch.a_transposed && launch.b_transposed)
        matmul_tiled_kernel<T, true, true><<<blocks, S::kThreads, 0, stream>>>(p);
    else if (launch.a_transposed)
        matmul_tiled_kernel<T, true, false><<<blocks, S::kThreads, 0, stream>>>(p);
    else if (launch.b_transposed)
        matmul_tiled_kernel<T, false, true><<<blocks, S::kThreads, 0, stream>>>(p);
    else
        matmul_tiled_kernel<T, false, false><<<blocks, S::kThreads, 0, stream>>>(p);
    return cudaGetLastError();
}

}  // namespace cukern::cuda
