// Operands that are packed along another dimension than the result, all of one element type.
//
// transpose_kernel
//   Idea: an operand's packed dimension is not that of out. A block reads a tile along the operand's, turns it in
//   shared memory, and goes on along out's: all accesses to device memory are of neighbours. Tiles are as narrow
//   as the array. Sixteen loads of a thread are in flight. Limited by device memory.
#pragma once

#include <algorithm>

#include "cuda/elementwise_operands.cuh"

namespace cukern::cuda {

// A tile has as many elements as threads have loads in flight: 4096 of up to 4 bytes, fewer of more.
template <typename T>
inline constexpr int kTurns = sizeof(T) <= 4 ? 16 : 64 / static_cast<int>(sizeof(T));
template <typename T>
inline constexpr int kTileElements = kTurns<T> * kThreads;

// What is added to a tile's rows so that columns lie in different banks.
template <typename T>
inline constexpr int kPadding = sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : 1;

template <typename T, typename R, int inputs>
struct TransposeParams {
    R *out;
    const T *in[inputs];
    T values[inputs];
    std::int64_t out_row;      // from a row of out to the next; along a row elements are packed
    std::int64_t row[inputs];  // from out's row to the next, and along it
    std::int64_t column[inputs];
    std::int64_t out_batch[2];  // of the other dimensions
    std::int64_t batch[inputs][2];
    std::uint32_t rows, columns;
    std::uint32_t tiles_across, tiles_down;
    std::uint32_t batches;  // of the faster of them
    int row_bits;           // a tile has 2**row_bits rows
    Walk walks[inputs];     // packed: along rows of out; strided: turned in shared memory
};

// The elements of a tile that a thread takes: one in kThreads, counted along `fast`. Element `turn` is
// `slow_of(turn)` further along the slower dimension and `fast_of(turn)` along the faster, the same for all
// threads.
struct TileWalk {
    int bits;  // the tile's length along the faster dimension is 2**bits

    __device__ int fast() const { return static_cast<int>(threadIdx.x) & ((1 << bits) - 1); }
    __device__ int slow() const { return static_cast<int>(threadIdx.x) >> bits; }
    __device__ int fast_of(int turn) const { return turn * kThreads & ((1 << bits) - 1); }
    __device__ int slow_of(int turn) const { return turn * kThreads >> bits; }
};

// `whole`: the tile lies in the array.
template <Op op, typename T, int inputs, bool whole>
__device__ void transpose_tile(const TransposeParams<T, result_t<op, T>, inputs> &p, T *memory, std::uint32_t top,
                               std::uint32_t left, std::uint32_t fast, std::uint32_t slow) {
    constexpr int kCount = kTurns<T>;
    const int column_bits = __ffs(kTileElements<T>) - 1 - p.row_bits;
    const int pitch = (1 << column_bits) + kPadding<T>;
    const TileWalk down{p.row_bits};  // along a column
    const TileWalk across{column_bits};
    T x[inputs][kCount];
    // Along each operand's own packed dimension.
#pragma unroll
    for (int j = 0; j < inputs; ++j) {
        if (p.walks[j] == Walk::value) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) x[j][k] = p.values[j];
            continue;
        }
        const T *const from = p.in[j] + fast * p.batch[j][0] + slow * p.batch[j][1];
        if (p.walks[j] == Walk::strided) {
            const std::uint32_t r = top + down.fast();
            const std::uint32_t c = left + down.slow();
            const T *const own = from + r * p.row[j] + c * p.column[j];
#pragma unroll
            for (int k = 0; k < kCount; ++k)
                if (whole || (r + down.fast_of(k) < p.rows && c + down.slow_of(k) < p.columns))
                    x[j][k] = own[down.fast_of(k) * p.row[j] + down.slow_of(k) * p.column[j]];
        } else {
            const std::uint32_t r = top + across.slow();
            const std::uint32_t c = left + across.fast();
            const T *const own = from + r * p.row[j] + c * p.column[j];
#pragma unroll
            for (int k = 0; k < kCount; ++k)
                if (whole || (r + across.slow_of(k) < p.rows && c + across.fast_of(k) < p.columns))
                    x[j][k] = own[across.slow_of(k) * p.row[j] + across.fast_of(k) * p.column[j]];
        }
    }
    const int tile = (1 << p.row_bits) * pitch;
    T *shared = memory + down.fast() * pitch + down.slow();
#pragma unroll
    for (int j = 0; j < inputs; ++j) {
        if (p.walks[j] != Walk::strided) continue;
#pragma unroll
        for (int k = 0; k < kCount; ++k) shared[down.fast_of(k) * pitch + down.slow_of(k)] = x[j][k];
        shared += tile;
    }
    __syncthreads();
    // Along out's rows.
    shared = memory + across.slow() * pitch + across.fast();
#pragma unroll
    for (int j = 0; j < inputs; ++j) {
        if (p.walks[j] != Walk::strided) continue;
#pragma unroll
        for (int k = 0; k < kCount; ++k) x[j][k] = shared[across.slow_of(k) * pitch + across.fast_of(k)];
        shared += tile;
    }
    const std::uint32_t r = top + across.slow();
    const std::uint32_t c = left + across.fast();
    result_t<op, T> *const to = p.out + fast * p.out_batch[0] + slow * p.out_batch[1] + r * p.out_row + c;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
        if (!whole && (r + across.slow_of(k) >= p.rows || c + across.fast_of(k) >= p.columns)) continue;
        if constexpr (inputs == 1)
            to[across.slow_of(k) * p.out_row + across.fast_of(k)] = evaluate<op>(x[0][k]);
        else
            to[across.slow_of(k) * p.out_row + across.fast_of(k)] = evaluate<op>(x[0][k], x[1][k]);
    }
}

template <Op op, typename T, int inputs>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const __grid_constant__ TransposeParams<T, result_t<op, T>, inputs> p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int column_bits = __ffs(kTileElements<T>) - 1 - p.row_bits;
    std::uint32_t tile = blockIdx.x;
    const std::uint32_t left = tile % p.tiles_across << column_bits;
    tile /= p.tiles_across;
    const std::uint32_t top = tile % p.tiles_down << p.row_bits;
    tile /= p.tiles_down;
    const std::uint32_t fast = tile % p.batches;
    const std::uint32_t slow = tile / p.batches;
    auto *shared = reinterpret_cast<T *>(memory);
    if (top + (1U << p.row_bits) <= p.rows && left + (1U << column_bits) <= p.columns)
        transpose_tile<op, T, inputs, true>(p, shared, top, left, fast, slow);
    else
        transpose_tile<op, T, inputs, false>(p, shared, top, left, fast, slow);
}

template <Op op, typename T>
cudaError_t launch_transpose(const ElementwiseLaunch &launch, int turned, cudaStream_t stream) noexcept {
    constexpr int kInputs = arity(op);
    constexpr int kBits = sizeof(T) <= 4 ? 12 : sizeof(T) == 8 ? 11 : 10;
    static_assert(kTileElements<T> == 1 << kBits);
    TransposeParams<T, result_t<op, T>, kInputs> p{};
    const int last = launch.ndim - 1;
    int others[2] = {-1, -1};  // the faster first
    int count = 0;
    for (int d = last - 1; d >= 0; --d)
        if (d != turned) others[count++] = d;
    p.out = static_cast<result_t<op, T> *>(launch.data[0]);
    p.rows = static_cast<std::uint32_t>(launch.shape[turned]);
    p.columns = static_cast<std::uint32_t>(launch.shape[last]);
    p.out_row = launch.strides[0][turned];
    std::uint32_t all_batches = 1;
    for (int i = 0; i < 2; ++i) {
        if (others[i] < 0) continue;
        p.out_batch[i] = launch.strides[0][others[i]];
        all_batches *= static_cast<std::uint32_t>(launch.shape[others[i]]);
    }
    p.batches = others[0] < 0 ? 1 : static_cast<std::uint32_t>(launch.shape[others[0]]);
    int turned_inputs = 0;
    for (int j = 0; j < kInputs; ++j) {
        const bool is_value = launch.immediate[j + 1];
        p.values[j] = is_value ? value_of<T>(launch, j + 1) : T{};
        p.in[j] = static_cast<const T *>(launch.data[j + 1]);
        p.walks[j] = is_value                                    ? Walk::value
                     : turned_dimension(launch, j + 1) == turned ? Walk::strided
                                                                 : Walk::packed;
        if (p.walks[j] == Walk::strided) ++turned_inputs;
        if (is_value) continue;
        p.row[j] = launch.strides[j + 1][turned];
        p.column[j] = launch.strides[j + 1][last];
        for (int i = 0; i < 2; ++i) p.batch[j][i] = others[i] < 0 ? 0 : launch.strides[j + 1][others[i]];
    }
    // Square tiles, but where the array is narrower.
    const auto bits_for = [](std::uint32_t length, int most) {
        int bits = 2;
        while (bits < most && (std::uint32_t{1} << bits) < length) ++bits;
        return bits;
    };
    p.row_bits = bits_for(p.rows, (kBits + 1) / 2);
    const int column_bits = bits_for(p.columns, kBits - p.row_bits);
    p.row_bits = kBits - column_bits;
    p.tiles_down = (p.rows + (1U << p.row_bits) - 1) >> p.row_bits;
    p.tiles_across = (p.columns + (1U << column_bits) - 1) >> column_bits;
    const std::size_t tile = (std::size_t{1} << p.row_bits) * ((1U << column_bits) + kPadding<T>)*sizeof(T);
    const unsigned blocks = p.tiles_down * p.tiles_across * all_batches;
    transpose_kernel<op, T, kInputs><<<blocks, kThreads, tile * turned_inputs, stream>>>(p);
    return cudaPeekAtLastError();
}

}  // namespace cukern::cuda
