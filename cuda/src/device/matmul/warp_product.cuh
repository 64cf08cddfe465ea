// A warp's part of a tile of the product, from tiles of a and b in shared memory.
//
// Both kinds read fragments of both tiles for a step of k, and while they multiply those they read the ones for
// the next step; the sums stay in registers.
//
// FmaProduct: a thread holds kChunksM x kChunksN chunks of 4 x 4 of c, and reads 6 vectors of 16 bytes for 128
// fma.
//   It reads a chunk of a's next fragment as soon as it has multiplied the same chunk of this one, so that reads
//   and multiplications alternate. b has two fragments.
// TensorProduct: float64 on the tensor cores. A warp holds 16 x 8 blocks of c (tensor_cores.cuh).
#pragma once

#include <type_traits>

#include "device/matmul/multiply_add.cuh"
#include "device/matmul/tensor_cores.cuh"
#include "device/matmul/tile.cuh"
#include "device/vector.cuh"

namespace cukern::cuda {

__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % 32; }

// The place of a warp in the tile. Warps of the lower rows begin elsewhere along columns, so that where half of
// the tile lies outside c, those of the other half still are on different schedulers: these take every fourth
// warp.
template <typename T>
struct WarpPlace {
    using S = Tile<T>;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int down = warp / S::kWarpsN;
    const int row = down * S::kWarpM;
    const int column = (warp + 2 * down) % S::kWarpsN * S::kWarpN;
};

template <typename T>
class FmaProduct {
    using S = Tile<T>;
    static constexpr int kRows = S::kChunksM * S::kChunk;
    static constexpr int kColumns = S::kChunksN * S::kChunk;
    static constexpr int kSpacingM = 4 * S::kChunk;  // between a thread's chunks
    static constexpr int kSpacingN = 8 * S::kChunk;

public:
    static constexpr int kStep = 1;  // of k

    // Takes the tiles of a stage, of which the one of b follows the one of a.
    __device__ __forceinline__ void take(const T *stage) {
        a_at_ = stage + row();
        b_at_ = stage + S::kTileK * S::kPitchM + column();
    }

    // Reads the fragments of the first step.
    __device__ __forceinline__ void read_first() {
        read<S::kChunksM, kSpacingM>(a_at_, a_);
        read<S::kChunksN, kSpacingN>(b_at_, b_[0]);
    }

    // Multiplies the fragments of an even (parity 0) or odd step, and reads those of the next one. Every second
    // row goes backwards, so that it begins with the element of b that the row before has ended with.
    template <int parity>
    __device__ __forceinline__ void multiply(int next_step) {
        const T(&b)[kColumns] = b_[parity];
        read<S::kChunksN, kSpacingN>(b_at_ + next_step * S::kPitchN, b_[1 - parity]);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                const int j = i % 2 == 0 ? n : kColumns - 1 - n;
                sum_[i][j] = multiply_add(a_[i], b[j], sum_[i][j]);
            }
            if (i % S::kChunk == S::kChunk - 1)
                read_chunk(a_at_ + next_step * S::kPitchM + i / S::kChunk * kSpacingM, a_ + i - (S::kChunk - 1));
        }
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
            for (int j = 0; j < kColumns; ++j) sum_[i][j] = T{};
    }

    // Calls take(row, column, values) for each vector along a row of the tile that this thread holds.
    template <typename Take>
    __device__ __forceinline__ void for_each_vector(Take take) const {
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
            for (int j = 0; j < kColumns; j += S::kVector) {
                Vector<T> values;
#pragma unroll
                for (int e = 0; e < S::kVector; ++e) values.values[e] = sum_[i][j + e];
                take(row() + i / S::kChunk * kSpacingM + i % S::kChunk,
                     column() + j / S::kChunk * kSpacingN + j % S::kChunk, values);
            }
    }

private:
    __device__ __forceinline__ static void read_chunk(const T *from, T *to) {
#pragma unroll
        for (int v = 0; v < S::kChunk; v += S::kVector) {
            const auto vector = *reinterpret_cast<const Vector<T> *>(from + v);
#pragma unroll
            for (int e = 0; e < S::kVector; ++e) to[v + e] = vector.values[e];
        }
    }

    template <int chunks, int spacing>
    __device__ __forceinline__ static void read(const T *from, T (&to)[chunks * S::kChunk]) {
#pragma unroll
        for (int chunk = 0; chunk < chunks; ++chunk) read_chunk(from + chunk * spacing, to + chunk * S::kChunk);
    }

    // Of the thread's first element.
    __device__ __forceinline__ static int row() { return WarpPlace<T>().row + lane_of_thread() / 8 * S::kChunk; }
    __device__ __forceinline__ static int column() {
        return WarpPlace<T>().column + lane_of_thread() % 8 * S::kChunk;
    }

    const T *a_at_;
    const T *b_at_;
    T a_[kRows];
    T b_[2][kColumns];
    T sum_[kRows][kColumns];
};

class TensorProduct {
    using S = Tile<double>;
    static constexpr int kBlocksM = S::kWarpM / 16;
    static constexpr int kBlocksN = S::kWarpN / 8;

public:
    static constexpr int kStep = 8;

    __device__ __forceinline__ void take(const double *stage) {
        const int k = lane_of_thread() % 4;
        a_at_ = stage + k * S::kPitchM + row();
        b_at_ =
            stage + S::kTileK * S::kPitchM + k * S::kPitchN + WarpPlace<double>().column + lane_of_thread() / 4;
    }

    __device__ __forceinline__ void read_first() { read(0, &fragments_[0]); }

    template <int parity>
    __device__ __forceinline__ void multiply(int next_step) {
        read(next_step, &fragments_[1 - parity]);
        const Fragment &f = fragments_[parity];
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
            for (int j = 0; j < kBlocksN; ++j) multiply_on_tensor_cores(f.a[i], f.b[j], sum_[i][j]);
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
            for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sum_[i][j][e] = 0;
    }

    template <typename Take>
    __device__ __forceinline__ void for_each_vector(Take take) const {
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
            for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    take(row() + i * 16 + half * 8, WarpPlace<double>().column + j * 8 + lane_of_thread() % 4 * 2,
                         Vector<double>{{sum_[i][j][half * 2], sum_[i][j][half * 2 + 1]}});
    }

private:
    struct Fragment {
        double a[kBlocksM][4];
        double b[kBlocksN][2];
    };

    __device__ __forceinline__ void read(int step, Fragment *to) const {
        const int k = step * kStep;
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) to->a[i][e] = a_at_[(k + e / 2 * 4) * S::kPitchM + i * 16 + e % 2 * 8];
#pragma unroll
        for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) to->b[j][e] = b_at_[(k + e * 4) * S::kPitchN + j * 8];
    }

    __device__ __forceinline__ static int row() { return WarpPlace<double>().row + lane_of_thread() / 4; }

    const double *a_at_;
    const double *b_at_;
    Fragment fragments_[2];
    double sum_[kBlocksM][kBlocksN][4];
};

template <typename T>
using WarpProduct = std::conditional_t<uses_tensor_cores<T>, TensorProduct, FmaProduct<T>>;

}  // namespace cukern::cuda
