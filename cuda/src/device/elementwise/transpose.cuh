// Operands that are packed along another dimension than the result, all of one element type.
//
// transpose_kernel
//   Idea: an operand's packed dimension is not that of out. A block reads a tile of it as 16-byte vectors along
//   the operand's columns into shared memory, and each thread picks the elements of a vector of out from there.
//   Where columns of the operand and rows of out begin in the middle of a vector, the tile has the vectors that
//   they share with their neighbours too; what is left before a row's first vector and behind its last moves by
//   elements. Padding keeps threads that write, and threads that pick, in different banks.
//   All vectors of a thread are under way before the first is used. Limited by device memory.
#pragma once

#include <type_traits>

#include "device/elementwise/operands.cuh"
#include "device/follow.cuh"

#ifndef __CUDACC_RTC__
#include <algorithm>

#include "device/launch_kernel.h"
#endif

namespace cukern::cuda {

constexpr std::uint32_t kTileLoads = 5;   // vectors that a thread reads of an operand
constexpr std::uint32_t kTileStores = 4;  // vectors that it writes

constexpr int kTileBlocks = 4;  // of a multiprocessor, where its shared memory suffices

// How a tile lies in shared memory: column by column, in units as wide as an element, and at least a word.
template <typename T>
struct TileMemory {
    using Unit = std::conditional_t<(sizeof(T) < 4), std::uint32_t, T>;
    static constexpr std::uint32_t kSize = Vector<T>::kSize;
    static constexpr std::uint32_t kUnits = 16 / sizeof(Unit);  // of a vector
    static constexpr std::uint32_t kReach = kSize > 1 ? 1 : 0;  // vectors that a row or a column may reach further
    static constexpr std::uint32_t kMostColumns = 256;
    static constexpr std::uint32_t kPadding = sizeof(T) <= 4 ? 2 : sizeof(T) == 8 ? 1 : 0;  // behind kSize columns
    static constexpr std::uint32_t kTotal =
        kTileLoads * kThreads * kUnits + (kMostColumns + kSize) * (kSize + kPadding) / kSize;

    // Where a column of `vectors` vectors begins.
    static __device__ std::uint32_t place(std::uint32_t column, std::uint32_t vectors) {
        return column * (vectors * kUnits + 1) + column / kSize * kPadding;
    }
};

template <typename T, int inputs>
struct TransposeParams {
    T *out;
    const T *in[inputs];
    T values[inputs];
    std::int64_t out_row;      // from a row of out to the next; along a row elements are packed
    std::int64_t row[inputs];  // from out's row to the next, and along it
    std::int64_t column[inputs];
    std::int64_t begin[inputs];  // of the memory that in spans, from in on, and its end
    std::int64_t end[inputs];
    std::int64_t out_batch[2];  // of the other dimensions
    std::int64_t batch[inputs][2];
    std::uint32_t rows, columns;
    std::uint32_t tile_rows, tile_columns;  // whole vectors of them
    Divider tiles_across, tiles_down;
    Divider batches;       // of the faster of them
    Divider row_vectors;   // of a tile's row of out
    Divider read_vectors;  // of a tile's column
    InputLayout layouts[inputs];
    int transposed;  // an input
    Op op;
};

// The elements of a vector of memory, counted from `at` on.
template <typename T>
__device__ std::uint32_t place_in_vector(const T *at) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at) / sizeof(T)) % Vector<T>::kSize;
}

// What is computed from the result is not kept from before.
__device__ inline std::uint32_t rematerialised(std::uint32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}

// Reads a tile of an operand, whose first element is `in`, into shared memory. All threads call it.
template <typename T, int inputs>
__device__ void stage_tile(const TransposeParams<T, inputs> &p, int input, const T *in, std::uint32_t rows,
                           std::uint32_t columns, typename TileMemory<T>::Unit *memory) {
    using M = TileMemory<T>;
    using Units = Elements<typename M::Unit, M::kUnits>;
    const T *const begin = p.in[input] + p.begin[input];
    const T *const end = p.in[input] + p.end[input];
    const std::int64_t step = p.column[input];
    const std::uint32_t first = place_in_vector(in);
    const auto vector_at = [&](std::uint32_t column, std::uint32_t v) {
        return vector_around(in + column * step) + v;
    };
    const auto is_needed = [&](std::uint32_t column, std::uint32_t v) {
        return column < columns &&
               v * M::kSize < (first + column * static_cast<std::uint32_t>(step)) % M::kSize + rows;
    };
    const auto is_inside = [&](const Words *vector) {
        return reinterpret_cast<const T *>(vector) >= begin && reinterpret_cast<const T *>(vector + 1) <= end;
    };
    const std::int64_t reach = (columns - 1) * step;
    const bool is_inner = in + min(reach, std::int64_t{0}) >= begin + M::kSize &&
                          in + max(reach, std::int64_t{0}) + rows + M::kSize <= end;
    Words x[kTileLoads];
    bool is_loaded[kTileLoads];
#pragma unroll
    for (std::uint32_t k = 0; k < kTileLoads; ++k) {
        std::uint32_t v;
        const std::uint32_t column = p.read_vectors.divide(k * kThreads + threadIdx.x, &v);
        const Words *const vector = vector_at(column, v);
        is_loaded[k] = is_needed(column, v) && (is_inner || is_inside(vector));
        if (is_loaded[k]) x[k] = *vector;
    }
    const std::uint32_t thread = rematerialised(threadIdx.x);
#pragma unroll
    for (std::uint32_t k = 0; k < kTileLoads; ++k) {
        if (!is_loaded[k]) continue;
        std::uint32_t v;
        const std::uint32_t column = p.read_vectors.divide(k * kThreads + thread, &v);
        auto *const to = memory + M::place(column, p.read_vectors.by) + v * M::kUnits;
        const auto units = bit_cast<Units>(x[k]);
#pragma unroll
        for (std::uint32_t j = 0; j < M::kUnits; ++j) to[j] = units.values[j];
    }
    // Vectors that are only partly the operand's.
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; !is_inner && i < kTileLoads * kThreads; i += kThreads) {
        std::uint32_t v;
        const std::uint32_t column = p.read_vectors.divide(i, &v);
        const Words *const vector = vector_at(column, v);
        if (!is_needed(column, v) || is_inside(vector)) continue;
        auto *const to = reinterpret_cast<T *>(memory + M::place(column, p.read_vectors.by) + v * M::kUnits);
        const T *const from = reinterpret_cast<const T *>(vector);
#pragma unroll 1
        for (std::uint32_t e = 0; e < M::kSize; ++e)
            if (from + e >= begin && from + e < end) to[e] = from[e];
    }
    __syncthreads();
}

// Picks a vector of out from a tile: from local row and column on, of a tile whose first element is `in`.
template <typename T>
__device__ Words pick_vector(const typename TileMemory<T>::Unit *memory, const T *in, std::int64_t step,
                             std::uint32_t vectors, std::uint32_t row, std::uint32_t column) {
    using M = TileMemory<T>;
    Vector<T> picked;
    std::uint32_t begin = place_in_vector(in) + column * static_cast<std::uint32_t>(step);  // of a column
#pragma unroll
    for (std::uint32_t e = 0; e < M::kSize; ++e) {
        const auto *const at = reinterpret_cast<const T *>(memory + M::place(column + e, vectors));
        picked.values[e] = at[begin % M::kSize + row];
        begin += static_cast<std::uint32_t>(step);
    }
    return bit_cast<Words>(picked);
}

template <Group group, typename T, int inputs>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    transpose_kernel(const __grid_constant__ TransposeParams<T, inputs> p) {
    using M = TileMemory<T>;
    constexpr std::uint32_t kSize = M::kSize;
    __shared__ typename M::Unit memory[M::kTotal];
    std::uint32_t left;
    std::uint32_t top;
    std::uint32_t fast;
    std::uint32_t tile = p.tiles_across.divide(blockIdx.x, &left);
    tile = p.tiles_down.divide(tile, &top);
    const std::uint32_t slow = p.batches.divide(tile, &fast);
    left *= p.tile_columns;
    top *= p.tile_rows;
    const std::uint32_t rows = min(p.tile_rows, p.rows - top);
    const std::uint32_t columns = min(p.tile_columns + M::kReach * kSize, p.columns - left);
    T *const out = p.out + fast * p.out_batch[0] + slow * p.out_batch[1] + top * p.out_row + left;
    const auto tile_of = [&](int j) {
        return p.in[j] + fast * p.batch[j][0] + slow * p.batch[j][1] + top * p.row[j] + left * p.column[j];
    };
    // Of a row.
    const auto columns_before_vector = [&](std::uint32_t row) {
        return (0 - place_in_vector(out) - row * static_cast<std::uint32_t>(p.out_row)) % kSize;
    };
    // The whole vectors of out that begin in the tile.
    const auto find_vector = [&](std::uint32_t pass, std::uint32_t *row, std::uint32_t *column) {
        std::uint32_t v;
        *row = p.row_vectors.divide(pass * kThreads + rematerialised(threadIdx.x), &v);
        *column = columns_before_vector(*row) + v * kSize;
        return *row < rows && left + *column + kSize <= p.columns;
    };
    const int other = inputs - 1 - p.transposed;
    Words y[kTileStores];
    follow_kernel_before();
    if constexpr (inputs == 2) {
        const T *const in = tile_of(other);
        if (p.layouts[other] == InputLayout::transposed) stage_tile(p, other, in, rows, columns, memory);
#pragma unroll
        for (std::uint32_t k = 0; k < kTileStores; ++k) {
            std::uint32_t row;
            std::uint32_t column;
            if (!find_vector(k, &row, &column)) continue;
            if (p.layouts[other] == InputLayout::packed)
                y[k] = *reinterpret_cast<const Words *>(in + row * p.row[other] + column);
            else if (p.layouts[other] == InputLayout::transposed)
                y[k] = pick_vector(memory, in, p.column[other], p.read_vectors.by, row, column);
        }
        if (p.layouts[other] == InputLayout::transposed) __syncthreads();
    }
    const T *const in = tile_of(p.transposed);
    stage_tile(p, p.transposed, in, rows, columns, memory);
#pragma unroll
    for (std::uint32_t k = 0; k < kTileStores; ++k) {
        std::uint32_t row;
        std::uint32_t column;
        if (!find_vector(k, &row, &column)) continue;
        const Words x = pick_vector(memory, in, p.column[p.transposed], p.read_vectors.by, row, column);
        auto *const to = reinterpret_cast<Vector<T> *>(out + row * p.out_row + column);
        if constexpr (inputs == 2) {
            if (p.layouts[other] == InputLayout::value)
                y[k] = repeat(p.values[other]);
            else if (p.layouts[other] == InputLayout::strided)
                y[k] =
                    load_elements(tile_of(other) + row * p.row[other] + column * p.column[other], p.column[other]);
            *to = apply_transposed<group, T>(p.op, x, y[k], p.transposed);
        } else {
            *to = apply_transposed<group, T>(p.op, x);
        }
    }
    // Before a row's first vector, and behind its last.
    if constexpr (kSize > 1) {
        if (left > 0 || (p.out_row % kSize == 0 && columns_before_vector(0) == 0 && p.columns % kSize == 0))
            return;
        constexpr std::uint32_t kSide = 64;  // rows at a time
        for (std::uint32_t e = threadIdx.x / kSide; e < 2 * kSize; e += kThreads / kSide) {
            for (std::uint32_t r = threadIdx.x % kSide; r < rows; r += kSide) {
                const std::uint32_t head = min(columns_before_vector(r), p.columns);
                const std::uint32_t tail = (p.columns - head) % kSize;
                if (e >= head + tail) continue;
                const std::uint32_t c = e < head ? e : p.columns - head - tail + e;
                T element[inputs];
#pragma unroll
                for (int j = 0; j < inputs; ++j)
                    element[j] = p.layouts[j] == InputLayout::value ? p.values[j]
                                                                    : tile_of(j)[r * p.row[j] + c * p.column[j]];
                out[r * p.out_row + c] = apply_in<group, T, inputs>(p.op, element);
            }
        }
    }
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
// Whether vectors of an operand lie as those of out do.
inline bool is_in_phase(const ElementwiseLaunch &launch, int operand, std::uint32_t size) noexcept {
    const auto address = [&](int j) { return reinterpret_cast<std::uintptr_t>(launch.data[j]); };
    if ((address(operand) - address(0)) % 16 != 0 || launch.strides[operand][launch.ndim - 1] != 1) return false;
    for (int d = 0; d < launch.ndim - 1; ++d)
        if ((launch.strides[operand][d] - launch.strides[0][d]) % size != 0) return false;
    return true;
}

// The memory that an operand spans.
inline void find_span(const ElementwiseLaunch &launch, int operand, std::int64_t *begin,
                      std::int64_t *end) noexcept {
    *begin = 0;
    *end = 1;
    for (int d = 0; d < launch.ndim; ++d) {
        const std::int64_t reach = (launch.shape[d] - 1) * launch.strides[operand][d];
        (reach < 0 ? *begin : *end) += reach;
    }
}

template <Group group, typename T>
cudaError_t launch_transpose(const ElementwiseLaunch &launch, int transposed, cudaStream_t stream) noexcept {
    static_assert(std::is_same_v<T, group_result_t<group, T>>);
    using M = TileMemory<T>;
    constexpr int kInputs = arity(group);
    constexpr std::uint32_t kSize = M::kSize;
    TransposeParams<T, kInputs> p{};
    const int last = launch.ndim - 1;
    int others[2] = {-1, -1};  // the faster first
    int count = 0;
    for (int d = last - 1; d >= 0; --d)
        if (d != transposed) others[count++] = d;
    p.op = launch.op;
    p.out = static_cast<T *>(launch.data[0]);
    p.rows = static_cast<std::uint32_t>(launch.shape[transposed]);
    p.columns = static_cast<std::uint32_t>(launch.shape[last]);
    p.out_row = launch.strides[0][transposed];
    std::uint32_t all_batches = 1;
    for (int i = 0; i < 2; ++i) {
        if (others[i] < 0) continue;
        p.out_batch[i] = launch.strides[0][others[i]];
        all_batches *= static_cast<std::uint32_t>(launch.shape[others[i]]);
    }
    p.batches = Divider::make(others[0] < 0 ? 1 : static_cast<std::uint32_t>(launch.shape[others[0]]));
    for (int j = 0; j < kInputs; ++j) {
        const bool is_value = launch.immediate[j + 1];
        p.values[j] = is_value ? value_of<T>(launch, j + 1) : T{};
        p.in[j] = static_cast<const T *>(launch.data[j + 1]);
        p.layouts[j] = is_value                                            ? InputLayout::value
                       : transposed_dimension(launch, j + 1) == transposed ? InputLayout::transposed
                       : is_in_phase(launch, j + 1, kSize)                 ? InputLayout::packed
                                                                           : InputLayout::strided;
        if (p.layouts[j] == InputLayout::transposed) p.transposed = j;
        if (is_value) continue;
        find_span(launch, j + 1, &p.begin[j], &p.end[j]);
        p.row[j] = launch.strides[j + 1][transposed];
        p.column[j] = launch.strides[j + 1][last];
        for (int i = 0; i < 2; ++i) p.batch[j][i] = others[i] < 0 ? 0 : launch.strides[j + 1][others[i]];
    }
    // As many vectors as threads read and write; about as wide as high in bytes, but where the array is narrower.
    const auto divide_up = [](std::uint32_t n, std::uint32_t by) { return (n + by - 1) / by; };
    const auto up = [&](std::uint32_t length) { return divide_up(length, kSize) * kSize; };
    constexpr std::uint32_t kRead = kTileLoads * kThreads;
    constexpr std::uint32_t kWritten = kTileStores * kThreads;
    constexpr std::uint32_t kReach = M::kReach * kSize;  // elements
    constexpr std::uint32_t kRows = sizeof(T) <= 4 ? 64 : 32;
    p.tile_rows = up(divide_up(p.rows, divide_up(p.rows, kRows)));
    p.tile_columns = std::min(kRead / (p.tile_rows / kSize + M::kReach) - kReach, kWritten / p.tile_rows * kSize);
    p.tile_columns = std::min(p.tile_columns / kSize * kSize, M::kMostColumns);
    if (p.columns < p.tile_columns) {
        p.tile_columns = up(p.columns);
        p.tile_rows =
            std::min((kRead / (p.tile_columns + kReach) - M::kReach) * kSize, kWritten / p.tile_columns * kSize);
        p.tile_rows = std::min(p.tile_rows / kSize * kSize, up(p.rows));
    }
    const std::uint32_t tiles_down = divide_up(p.rows, p.tile_rows);
    const std::uint32_t tiles_across = divide_up(p.columns, p.tile_columns);
    p.tiles_down = Divider::make(tiles_down);
    p.tiles_across = Divider::make(tiles_across);
    p.row_vectors = Divider::make(p.tile_columns / kSize);
    p.read_vectors = Divider::make(p.tile_rows / kSize + M::kReach);
    return launch_kernel<transpose_kernel<group, T, kInputs>>(tiles_down * tiles_across * all_batches, kThreads,
                                                              stream, p, launch.prepared);
}
#endif

}  // namespace cukern::cuda
