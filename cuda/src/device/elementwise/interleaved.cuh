// Operands whose packed dimension is a short one, all of one element type: 3 to 48 rows that lie interleaved.
//
// interleaved_kernel
//   Idea: out has few long rows, and the elements of a column of the operand are neighbours. A block reads some
//   columns as 16-byte vectors into shared memory, and each thread picks the elements of a vector of out from
//   there. Padding between the columns of two vectors of out keeps threads in different banks: without it the
//   kernel took a quarter longer for elements of 2 bytes. Whole vectors are all under way before the first is
//   used.
//   Limited by device memory; the transposing kernel would leave most of each tile empty, or read what lies
//   between tiles twice.
#pragma once

#include "device/elementwise/operands.cuh"
#include "device/follow.cuh"

#ifndef __CUDACC_RTC__
#include "device/launch_kernel.h"
#endif

namespace cukern::cuda {

constexpr std::uint32_t kMostInterleavedRows = 48;
constexpr int kInterleavedVectors = 4;  // vectors of a thread
constexpr int kBlockVectors = kInterleavedVectors * kThreads;

template <typename T>
inline constexpr bool has_interleaved = sizeof(T) <= 8;

template <typename T, int inputs>
struct InterleavedParams {
    T *out;
    const T *in[inputs];
    T values[inputs];
    InputLayout layouts[inputs];
    int transposed;  // the input that is interleaved
    Op op;
    std::uint32_t rows;
    std::uint32_t columns;
    std::uint32_t tile;   // columns of a block, whole vectors of them
    Divider row_vectors;  // of a tile
    Divider by_rows;
};

template <Group group, typename T, int inputs>
__global__ void __launch_bounds__(kThreads)
    interleaved_kernel(const __grid_constant__ InterleavedParams<T, inputs> p) {
    constexpr std::uint32_t kSize = Vector<T>::kSize;
    constexpr std::uint32_t kPaddingWords = sizeof(T) <= 4 ? 1 : sizeof(T) / 4;
    constexpr std::uint32_t kPadding = kPaddingWords * 4 / sizeof(T);
    __shared__ __align__(16) std::uint32_t memory[kBlockVectors * 4 + (kBlockVectors / 3 + 1) * kPaddingWords];
    auto *const shared = reinterpret_cast<T *>(memory);
    const T *const in = p.in[p.transposed];
    const int other = inputs - 1 - p.transposed;
    const bool has_array = inputs == 2 && p.layouts[other] == InputLayout::packed;
    const std::uint32_t left = blockIdx.x * p.tile;
    const std::uint32_t first = left * p.rows;
    const std::uint32_t total = p.rows * p.columns;
    const bool is_last = blockIdx.x == gridDim.x - 1;
    follow_kernel_before();
    Words x[kInterleavedVectors];
#pragma unroll
    for (int k = 0; k < kInterleavedVectors; ++k) {
        const std::uint32_t at = first + (k * kThreads + threadIdx.x) * kSize;
        if (at + kSize <= total) x[k] = *reinterpret_cast<const Words *>(in + at);
    }
    // The whole vectors of out that begin in the tile.
    std::uint32_t row[kInterleavedVectors];
    std::uint32_t column[kInterleavedVectors];
    bool whole[kInterleavedVectors];
    Words y[kInterleavedVectors];
#pragma unroll
    for (int k = 0; k < kInterleavedVectors; ++k) {
        std::uint32_t vector;
        row[k] = p.row_vectors.divide(k * kThreads + threadIdx.x, &vector);
        const std::uint32_t begin = row[k] * p.columns;
        column[k] = (begin + left + kSize - 1) / kSize * kSize + vector * kSize - begin;
        whole[k] = row[k] < p.rows && column[k] + kSize <= p.columns;
        if (has_array && whole[k]) y[k] = *reinterpret_cast<const Words *>(p.in[other] + begin + column[k]);
    }
#pragma unroll
    for (int k = 0; k < kInterleavedVectors; ++k) {
        const std::uint32_t vector = k * kThreads + threadIdx.x;
        if (first + (vector + 1) * kSize > total) continue;
        std::uint32_t rest;
        std::uint32_t *const to = memory + vector * 4 + p.by_rows.divide(vector, &rest) * kPaddingWords;
#pragma unroll
        for (int j = 0; j < 4; ++j) to[j] = x[k].values[j];
    }
    const auto place = [&](std::uint32_t r, std::uint32_t c) {
        return (c - left) * p.rows + r + (c - left) / kSize * kPadding;
    };
    // What of the operand lies behind its last whole vector.
    if (const std::uint32_t at = total - total % kSize + threadIdx.x;
        at < total && at - first < kBlockVectors * kSize)
        shared[place(at % p.rows, at / p.rows)] = in[at];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kInterleavedVectors; ++k) {
        if (!whole[k]) continue;
        Vector<T> picked;
#pragma unroll
        for (std::uint32_t e = 0; e < kSize; ++e) picked.values[e] = shared[place(row[k], column[k] + e)];
        const auto transposed = bit_cast<Words>(picked);
        auto *const to = reinterpret_cast<Vector<T> *>(p.out + row[k] * p.columns + column[k]);
        if constexpr (inputs == 1)
            *to = apply_transposed<group, T>(p.op, transposed);
        else
            *to = apply_transposed<group, T>(p.op, transposed, has_array ? y[k] : repeat(p.values[other]),
                                             p.transposed);
    }
    // Before a row's first vector, and behind its last.
    if (blockIdx.x > 0 && !is_last) return;
    for (std::uint32_t i = threadIdx.x; i < p.rows * kSize; i += kThreads) {
        const std::uint32_t r = i / kSize;
        const std::uint32_t head = (kSize - r * p.columns % kSize) % kSize;
        const std::uint32_t tail = (r + 1) * p.columns % kSize;
        for (int end = 0; end < 2; ++end) {
            std::uint32_t c = i % kSize;
            if (end == 0 ? blockIdx.x > 0 || c >= head : !is_last || c >= tail) continue;
            if (end == 1) c += p.columns - tail;
            const std::uint32_t at = r * p.columns + c;
            T element[inputs];
#pragma unroll
            for (int j = 0; j < inputs; ++j)
                element[j] = j == p.transposed                     ? shared[place(r, c)]
                             : p.layouts[j] == InputLayout::packed ? p.in[j][at]
                                                                   : p.values[j];
            p.out[at] = apply_in<group, T, inputs>(p.op, element);
        }
    }
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
// Whether an operand is the columns of a packed result, one after the other.
inline bool is_interleaved(const ElementwiseLaunch &launch, int operand) noexcept {
    return !launch.immediate[operand] && launch.strides[operand][0] == 1 &&
           launch.strides[operand][1] == launch.shape[0] &&
           reinterpret_cast<std::uintptr_t>(launch.data[operand]) % 16 == 0;
}

// The input that interleaved_kernel reads column by column; 0: it does not serve.
inline int interleaved_operand(const ElementwiseLaunch &launch) noexcept {
    constexpr std::int64_t kLeastColumns = 64;
    if (launch.ndim != 2 || launch.shape[0] < 3 || launch.shape[0] > kMostInterleavedRows ||
        launch.shape[1] < kLeastColumns || !is_packed(launch, 0))
        return 0;
    int found = 0;
    for (int j = 1; j < launch.num_operands; ++j) {
        if (is_interleaved(launch, j) && found == 0)
            found = j;
        else if (!launch.immediate[j] && !is_packed(launch, j))
            return 0;
    }
    return found;
}

template <Group group, typename T>
cudaError_t launch_interleaved(const ElementwiseLaunch &launch, int transposed, cudaStream_t stream) noexcept {
    static_assert(std::is_same_v<T, group_result_t<group, T>>);
    constexpr int kInputs = arity(group);
    constexpr std::uint32_t kSize = Vector<T>::kSize;
    InterleavedParams<T, kInputs> p{};
    p.out = static_cast<T *>(launch.data[0]);
    p.op = launch.op;
    p.transposed = transposed - 1;
    p.rows = static_cast<std::uint32_t>(launch.shape[0]);
    p.columns = static_cast<std::uint32_t>(launch.shape[1]);
    for (int j = 0; j < kInputs; ++j) {
        p.in[j] = static_cast<const T *>(launch.data[j + 1]);
        p.values[j] = launch.immediate[j + 1] ? value_of<T>(launch, j + 1) : T{};
        p.layouts[j] = launch.immediate[j + 1] ? InputLayout::value
                       : j == p.transposed     ? InputLayout::strided
                                               : InputLayout::packed;
    }
    // Shared memory also holds the columns of the vectors that begin in the tile and end behind it.
    p.tile = (kBlockVectors - p.rows) * kSize / p.rows / kSize * kSize;
    p.by_rows = Divider::make(p.rows);
    p.row_vectors = Divider::make(p.tile / kSize);
    // Fewer columns than a vector has are left to the tile before them, which has them in shared memory.
    const std::uint32_t blocks = (p.columns - kSize + p.tile) / p.tile;
    return launch_kernel<interleaved_kernel<group, T, kInputs>>(blocks, kThreads, stream, p, launch.prepared);
}
#endif

}  // namespace cukern::cuda
