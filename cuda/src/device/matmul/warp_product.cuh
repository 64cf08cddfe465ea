// A warp's part of a tile of the product, from tiles of a and b in shared memory.
//
// FmaProduct: a warp's lanes are 4 x 8; a thread holds kChunksM x kChunksN chunks of 4 x 4 of c, and reads its
//   fragments of a and b as 16-byte vectors: 4 of them for 64 fma of 4-byte types.
// TensorProduct: float64 on the tensor cores, which round as fma does. A warp holds 16 x 8 blocks of c; the lanes
//   read a and b as the instruction wants them spread (PTX ISA, matrix fragments of mma.m16n8k8 and m8n8k4).
#pragma once

#include <type_traits>

#include "device/vector.cuh"
#include "formulas/arithmetic.cuh"

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
    // Rows of shared memory are padded so that they start on 16 bytes, and that lanes which read four rows at
    // once meet different banks: 4 elements do both, for either size of element.
    static constexpr int kPitchM = kTileM + 4;
    static constexpr int kPitchN = kTileN + 4;
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

__device__ __forceinline__ int warp_of_thread() { return static_cast<int>(threadIdx.x) / 32; }
__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % 32; }

template <typename T>
class FmaProduct {
    using S = Tile<T>;
    static constexpr int kRows = S::kChunksM * S::kChunk;
    static constexpr int kColumns = S::kChunksN * S::kChunk;
    static constexpr int kSpacingM = 4 * S::kChunk;  // between a thread's chunks
    static constexpr int kSpacingN = 8 * S::kChunk;

public:
    __device__ __forceinline__ void multiply(const T (*a)[S::kPitchM], const T (*b)[S::kPitchN]) {
#pragma unroll
        for (int k = 0; k < S::kTileK; ++k) {
            T x[kRows];
            T y[kColumns];
            read<S::kChunksM, kSpacingM>(&a[k][at_m_], x);
            read<S::kChunksN, kSpacingN>(&b[k][at_n_], y);
#pragma unroll
            for (int i = 0; i < kRows; ++i)
#pragma unroll
                for (int j = 0; j < kColumns; ++j) sum_[i][j] = multiply_add(x[i], y[j], sum_[i][j]);
        }
    }

    // Calls take(row, column, value) for each element of the tile that this thread holds.
    template <typename Take>
    __device__ __forceinline__ void for_each(Take take) const {
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
            for (int j = 0; j < kColumns; ++j)
                take(at_m_ + i / S::kChunk * kSpacingM + i % S::kChunk,
                     at_n_ + j / S::kChunk * kSpacingN + j % S::kChunk, sum_[i][j]);
    }

private:
    template <int chunks, int spacing>
    __device__ __forceinline__ static void read(const T *from, T (&to)[chunks * S::kChunk]) {
#pragma unroll
        for (int chunk = 0; chunk < chunks; ++chunk)
#pragma unroll
            for (int v = 0; v < S::kChunk; v += S::kVector) {
                const auto f = *reinterpret_cast<const Vector<T> *>(from + chunk * spacing + v);
#pragma unroll
                for (int e = 0; e < S::kVector; ++e) to[chunk * S::kChunk + v + e] = f.values[e];
            }
    }

    const int at_m_ = warp_of_thread() / 2 * S::kWarpM + lane_of_thread() / 8 * S::kChunk;
    const int at_n_ = warp_of_thread() % 2 * S::kWarpN + lane_of_thread() % 8 * S::kChunk;
    T sum_[kRows][kColumns] = {};
};

class TensorProduct {
    using S = Tile<double>;
    // A block of c is 16 x 8; a step takes 8 of k. Compute capability 9.0 does it in one instruction, at twice
    // the rate of the 8 x 8 x 4 that 8.0 has, of which it takes four.
    static constexpr int kBlocksM = S::kWarpM / 16;
    static constexpr int kBlocksN = S::kWarpN / 8;

public:
    __device__ __forceinline__ void multiply(const double (*a)[S::kPitchM], const double (*b)[S::kPitchN]) {
        const int along = lane_of_thread() / 4;  // the lane's row of a, and column of b
        const int k = lane_of_thread() % 4;
#pragma unroll
        for (int k0 = 0; k0 < S::kTileK; k0 += 8) {
            double x[kBlocksM][4];
            double y[kBlocksN][2];
#pragma unroll
            for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
                for (int e = 0; e < 4; ++e) x[i][e] = a[k0 + k + e / 2 * 4][at_m_ + i * 16 + along + e % 2 * 8];
#pragma unroll
            for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) y[j][e] = b[k0 + k + e * 4][at_n_ + j * 8 + along];
#pragma unroll
            for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
                for (int j = 0; j < kBlocksN; ++j) multiply_block(x[i], y[j], sum_[i][j]);
        }
    }

    template <typename Take>
    __device__ __forceinline__ void for_each(Take take) const {
        const int row = at_m_ + lane_of_thread() / 4;
        const int column = at_n_ + lane_of_thread() % 4 * 2;
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
            for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) take(row + i * 16 + e / 2 * 8, column + j * 8 + e % 2, sum_[i][j][e]);
    }

private:
    // The lane's elements: a at rows +0 and +8 for k, then for k + 4; b for k and k + 4; c two columns at row
    // +0, then at row +8.
    __device__ __forceinline__ static void multiply_block(const double (&a)[4], const double (&b)[2],
                                                          double (&c)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
            : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
        for (int k = 0; k < 2; ++k)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                    : "+d"(c[half * 2]), "+d"(c[half * 2 + 1])
                    : "d"(a[k * 2 + half]), "d"(b[k]));
#endif
    }

    const int at_m_ = warp_of_thread() / 2 * S::kWarpM;
    const int at_n_ = warp_of_thread() % 2 * S::kWarpN;
    double sum_[kBlocksM][kBlocksN][4] = {};
};

// Tensor cores take float64 from compute capability 8.0 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <typename T>
using WarpProduct = std::conditional_t<std::is_same_v<T, double>, TensorProduct, FmaProduct<T>>;
#else
template <typename T>
using WarpProduct = FmaProduct<T>;
#endif

}  // namespace cukern::cuda
