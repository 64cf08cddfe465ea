// Tiles of an operand, on their way to shared memory.
//
// A tile is `length` rows of a (columns of b) by kTileK of k, with k slowest. Copies are asynchronous: of 16 bytes
// where whole vectors follow each other along rows; else of one element. A warp then copies 32 neighbours along
// rows, or, where neighbours lie along k, 4 rows by 8 of k: 32 bytes of a row, to 32 different banks. Elements are
// copied by one loop for both layouts, with an inner and an outer step. Two loops would need a branch, and a
// branch that is taken costs more time than it saves, because the instructions at its target are fetched anew.
#pragma once

#include <cstdint>

#include "device/async_copy.cuh"
#include "device/matmul/operands.cuh"
#include "device/matmul/tile.cuh"

namespace cukern::cuda {

enum class Neighbours { vectors, rows, depth };

#ifndef __CUDACC_RTC__  // which compiles the kernels alone

template <typename T>
Neighbours neighbours_in(const Operand<T> &operand) noexcept {
    if (has_vectors<T>(operand.data, operand.row, operand.depth, operand.batch)) return Neighbours::vectors;
    return operand.row == 1 ? Neighbours::rows : Neighbours::depth;
}

#endif

template <typename T, int length, int pitch>
class TileLoader {
    using S = Tile<T>;
    static constexpr int kSize = sizeof(T);
    static constexpr int kVectorsOfRow = length / S::kVector;
    static constexpr int kVectors = kVectorsOfRow * S::kTileK / S::kThreads;  // that a thread copies
    static constexpr int kVectorsApart = S::kThreads / kVectorsOfRow;         // along k
    static constexpr int kElements = length * S::kTileK / S::kThreads;
    static constexpr int kDepthAtOnce = 8;

public:
    // The tile at a row, from a place along k on.
    __device__ __forceinline__ void start(const Operand<T> &operand, Neighbours neighbours, std::int64_t product,
                                          std::int64_t row, std::int64_t depth) {
        has_all_rows_ = row + length <= operand.rows;
        has_vectors_ = neighbours == Neighbours::vectors && has_all_rows_;
        const int thread = static_cast<int>(threadIdx.x);
        int r = thread % length;
        int k = thread / length;
        int step_k = S::kThreads / length;  // of the inner one of two steps; the outer one takes two of them
        int step_rows = 0;
        if (neighbours == Neighbours::depth) {
            r = thread / 32 * 4 + thread % 4;
            k = thread % 32 / 4;
            step_k = kDepthAtOnce;
            step_rows = S::kThreads / kDepthAtOnce;
        }
        inner_ = operand.depth * step_k;
        outer_ = step_rows == 0 ? 2 * inner_ : operand.row * step_rows;
        inner_to_ = step_k * pitch * kSize;
        outer_to_ = step_rows == 0 ? 2 * inner_to_ : step_rows * kSize;
        if (has_vectors_) {
            r = thread % kVectorsOfRow * S::kVector;
            k = thread / kVectorsOfRow;
        }
        from_ = operand.data + product * operand.batch + (row + r) * operand.row + (depth + k) * operand.depth;
        to_ = static_cast<SharedAddress>((k * pitch + r) * kSize);
        rows_left_ = static_cast<int>(min(operand.rows - row - r, static_cast<std::int64_t>(length)));
        is_deep_ = step_rows != 0;
    }

    // Begins to copy a tile, of which so much of k is left, and goes on to the next along k. What lies outside the
    // matrix becomes zero.
    __device__ __forceinline__ void copy_next(const Operand<T> &operand, SharedAddress tile, int depth_left) {
        tile += to_;
        if (__builtin_expect(depth_left < S::kTileK || !has_all_rows_, false)) {
            copy_part(operand, tile, depth_left);
        } else {
            const T *from = from_;
#pragma unroll
            for (int i = 0; i < kVectors; ++i) {
                copy_vector_if(tile + i * kVectorsApart * pitch * kSize, from, has_vectors_);
                from += operand.depth * kVectorsApart;
            }
            if (__builtin_expect(!has_vectors_, true)) {
                from = from_;
#pragma unroll
                for (int i = 0; i < kElements; i += 2) {
                    copy<kSize>(tile, from);
                    copy<kSize>(tile + inner_to_, from + inner_);
                    tile += outer_to_;
                    from += outer_;
                }
            }
        }
        from_ += operand.depth * S::kTileK;
    }

private:
    __device__ __forceinline__ void copy_part(const Operand<T> &operand, SharedAddress to, int depth_left) const {
        const int first_k = static_cast<int>(to_) / (pitch * kSize);
        if (has_vectors_) {
            const T *from = from_;
#pragma unroll 1
            for (int i = 0; i < kVectors; ++i) {
                copy_or_clear<16>(to, from, first_k + i * kVectorsApart < depth_left);
                to += kVectorsApart * pitch * kSize;
                from += operand.depth * kVectorsApart;
            }
            return;
        }
        int rows = rows_left_;
        int k = first_k;
        const T *from = from_;
        const int step_k = inner_to_ / (pitch * kSize);
#pragma unroll 1
        for (int i = 0; i < kElements; i += 2) {
            copy_or_clear<kSize>(to, from, rows > 0 && k < depth_left);
            copy_or_clear<kSize>(to + inner_to_, from + inner_, rows > 0 && k + step_k < depth_left);
            to += outer_to_;
            from += outer_;
            if (is_deep_)
                rows -= S::kThreads / kDepthAtOnce;
            else
                k += 2 * step_k;
        }
    }

    const T *from_;
    std::int64_t inner_, outer_;  // steps in elements
    int inner_to_, outer_to_;     // in bytes
    SharedAddress to_;
    int rows_left_;
    bool has_all_rows_, has_vectors_, is_deep_;
};

}  // namespace cukern::cuda
