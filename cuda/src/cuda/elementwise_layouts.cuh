// Elementwise kernels for operands that are not all packed, of one element type: rows, columns and steps beside a
// packed result, and transposed operands. For the operations that meet them most; see has_layouts.
//
// broadcast_kernel
//   Idea: out is packed, and a thread takes one 16-byte vector of it. Packed operands are loaded as vectors; of
//   the others the thread finds the place of its first element by dividing its index through the shape, by
//   multiplication, and walks on from there. Rows and columns are read from caches. Limited by device memory.
// transpose_kernel
//   Idea: an operand's packed dimension is not that of out. A block reads a tile along the operand's, turns it in
//   shared memory, and goes on along out's: all accesses to device memory are of neighbours. Tiles are as narrow
//   as the array. Sixteen loads of a thread are in flight. Limited by device memory.
#pragma once

#include <algorithm>

#include "cuda/launch_kernel.h"
#include "functors.cuh"
#include "launch.h"

namespace cukern::cuda {

constexpr int kLayoutThreads = 256;
constexpr int kLayoutDims = 4;

// Where these kernels are made: elsewhere the strided one serves. A copy of elements as they are moves bits.
constexpr bool has_layouts(Op op, ElementType type) {
    switch (op) {
        case Op::copy: return bits_of(type) == type;
        case Op::add:
        case Op::subtract:
        case Op::multiply: return is_floating(type);
        default: return false;
    }
}

// Division of numbers below 2**31 by one that is known at the launch: the upper half of a product, and a shift.
struct Divider {
    std::uint32_t by;
    std::uint32_t factor;
    std::uint32_t shift;

    static Divider make(std::uint32_t by) noexcept {
        std::uint32_t shift = 0;
        while (shift < 31 && (std::uint32_t{1} << shift) < by) ++shift;
        const std::uint64_t power = std::uint64_t{1} << shift;
        const auto factor = static_cast<std::uint32_t>(((std::uint64_t{1} << 32) * (power - by)) / by + 1);
        return {by, factor, shift};
    }
    __device__ std::uint32_t divide(std::uint32_t n, std::uint32_t *rest) const {
        const std::uint32_t quotient = (__umulhi(n, factor) + n) >> shift;
        *rest = n - quotient * by;
        return quotient;
    }
};

template <typename T, int size>
struct alignas(size * sizeof(T)) Elements {
    T values[size];
};

enum class Walk : std::int8_t { value, packed, strided };

template <typename T, typename R, int inputs>
struct BroadcastParams {
    R *out;
    const T *in[inputs];
    std::int64_t strides[inputs][kLayoutDims];  // from the fastest dimension to the slowest
    T values[inputs];
    Divider shape[kLayoutDims];
    std::uint32_t n;
    std::uint32_t stripes;  // see block_index
    int ndim;
    Walk walks[inputs];
};

// Blocks in the order of `stripes` parts of out side by side: of rows that share what is too long for the caches,
// the same part is worked on at a time.
__device__ inline std::uint32_t block_index(std::uint32_t stripes) {
    if (stripes == 1) return blockIdx.x;
    const std::uint32_t length = gridDim.x / stripes;
    if (blockIdx.x >= length * stripes) return blockIdx.x;
    return blockIdx.x % stripes * length + blockIdx.x / stripes;
}

// Loads `size` elements from flat index `first` on.
template <int size, typename P, typename T>
__device__ void load_walk(const P &p, int input, std::uint32_t first, T (&to)[size]) {
    std::uint32_t index[kLayoutDims] = {};
    std::uint32_t rest = first;
#pragma unroll
    for (int d = 0; d < kLayoutDims; ++d)
        if (d < p.ndim) rest = p.shape[d].divide(rest, &index[d]);
    std::int64_t offset = 0;
#pragma unroll
    for (int d = 0; d < kLayoutDims; ++d)
        if (d < p.ndim) offset += index[d] * p.strides[input][d];
    const T *from = p.in[input] + offset;
    const std::int64_t step = p.strides[input][0];
    if (index[0] + size <= p.shape[0].by) {
        if (step == 1 && reinterpret_cast<std::uintptr_t>(from) % (size * sizeof(T)) == 0) {
            const auto whole = *reinterpret_cast<const Elements<T, size> *>(from);
#pragma unroll
            for (int e = 0; e < size; ++e) to[e] = whole.values[e];
        } else if (step == 2 && index[0] + size < p.shape[0].by &&
                   reinterpret_cast<std::uintptr_t>(from) % (size * sizeof(T)) == 0) {
            // With what lies between them: there is another element behind.
            const auto *const vectors = reinterpret_cast<const Elements<T, size> *>(from);
            const Elements<T, size> both[] = {vectors[0], vectors[1]};
#pragma unroll
            for (int e = 0; e < size; ++e) to[e] = both[2 * e / size].values[2 * e % size];
        } else if (step == 0) {
            const T value = *from;
#pragma unroll
            for (int e = 0; e < size; ++e) to[e] = value;
        } else {
#pragma unroll
            for (int e = 0; e < size; ++e) to[e] = from[e * step];
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < size; ++e) {
        to[e] = p.in[input][offset];
        offset += step;
        ++index[0];
#pragma unroll
        for (int d = 0; d + 1 < kLayoutDims; ++d) {
            if (d + 1 < p.ndim && index[d] == p.shape[d].by) {
                offset += p.strides[input][d + 1] - index[d] * p.strides[input][d];
                index[d] = 0;
                ++index[d + 1];
            }
        }
        if (first + e + 1 >= p.n) return;  // there is no next element
    }
}

template <Op op, typename T, int inputs>
__global__ void __launch_bounds__(kLayoutThreads)
    broadcast_kernel(const __grid_constant__ BroadcastParams<T, result_t<op, T>, inputs> p) {
    using R = result_t<op, T>;
    constexpr int kSize = 16 / static_cast<int>(sizeof(T));
    const std::uint32_t first = (block_index(p.stripes) * kLayoutThreads + threadIdx.x) * kSize;
    if (first >= p.n) return;
    const bool whole = p.n - first >= kSize;
    Elements<T, kSize> x[inputs] = {};
#pragma unroll
    for (int j = 0; j < inputs; ++j) {
        if (p.walks[j] == Walk::packed && whole)
            x[j] = *reinterpret_cast<const Elements<T, kSize> *>(p.in[j] + first);
        else if (p.walks[j] == Walk::value)
            for (int e = 0; e < kSize; ++e) x[j].values[e] = p.values[j];
        else
            load_walk<kSize>(p, j, first, x[j].values);
    }
    Elements<R, kSize> result;
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
        T element[inputs];
#pragma unroll
        for (int j = 0; j < inputs; ++j) element[j] = x[j].values[e];
        if constexpr (inputs == 1)
            result.values[e] = evaluate<op>(element[0]);
        else
            result.values[e] = evaluate<op>(element[0], element[1]);
    }
    if (whole) {
        *reinterpret_cast<Elements<R, kSize> *>(p.out + first) = result;
    } else {
        for (int e = 0; e < kSize; ++e)
            if (first + e < p.n) p.out[first + e] = result.values[e];
    }
}

// A tile has as many elements as threads have loads in flight: 4096 of up to 4 bytes, fewer of more.
template <typename T>
inline constexpr int kTurns = sizeof(T) <= 4 ? 16 : 64 / static_cast<int>(sizeof(T));
template <typename T>
inline constexpr int kTileElements = kTurns<T> * kLayoutThreads;

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

// The elements of a tile that a thread takes: one in kLayoutThreads, counted along `fast`. Element `turn` is
// `slow_of(turn)` further along the slower dimension and `fast_of(turn)` along the faster, the same for all
// threads.
struct TileWalk {
    int bits;  // the tile's length along the faster dimension is 2**bits

    __device__ int fast() const { return static_cast<int>(threadIdx.x) & ((1 << bits) - 1); }
    __device__ int slow() const { return static_cast<int>(threadIdx.x) >> bits; }
    __device__ int fast_of(int turn) const { return turn * kLayoutThreads & ((1 << bits) - 1); }
    __device__ int slow_of(int turn) const { return turn * kLayoutThreads >> bits; }
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
__global__ void __launch_bounds__(kLayoutThreads)
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

// All operands of the type that is computed in, none split, indices of 32 bits.
inline bool is_uniform(const ElementwiseLaunch &launch) noexcept {
    for (int j = 0; j < launch.num_operands; ++j)
        if (!launch.immediate[j] && launch.types[j] != (j == 0 ? launch.result : launch.compute)) return false;
    return !launch.split && launch.ndim <= kLayoutDims && launch.count < (std::int64_t{1} << 31);
}

inline bool is_packed(const ElementwiseLaunch &launch, int operand) noexcept {
    std::int64_t stride = 1;
    for (int d = launch.ndim - 1; d >= 0; --d) {
        if (launch.strides[operand][d] != stride) return false;
        stride *= launch.shape[d];
    }
    return reinterpret_cast<std::uintptr_t>(launch.data[operand]) % 16 == 0;
}

// The dimension, but the last, along which an operand is packed; -1: there is none, or it is packed along the
// last.
inline int turned_dimension(const ElementwiseLaunch &launch, int operand) noexcept {
    const std::int64_t *const strides = launch.strides[operand];
    const int last = launch.ndim - 1;
    if (launch.immediate[operand] || strides[last] == 0 || std::abs(strides[last]) <= 2) return -1;
    for (int d = last - 1; d >= 0; --d)
        if (strides[d] == 1) return d;
    return -1;
}

// How many rows of out share a long row of an operand.
template <typename T>
std::uint32_t stripes_of(const ElementwiseLaunch &launch) noexcept {
    constexpr std::int64_t kLongRow = 4 << 20;  // bytes: more than stay in the caches from row to row
    if (launch.ndim != 2 || launch.shape[1] * static_cast<std::int64_t>(sizeof(T)) < kLongRow) return 1;
    for (int j = 1; j < launch.num_operands; ++j)
        if (!launch.immediate[j] && launch.strides[j][0] == 0 && launch.strides[j][1] != 0)
            return static_cast<std::uint32_t>(launch.shape[0]);
    return 1;
}

template <typename T>
T layout_value(const ElementwiseLaunch &launch, int operand) noexcept {
    return *reinterpret_cast<const T *>(launch.values[operand].bytes);
}

template <Op op, typename T>
cudaError_t launch_broadcast(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    constexpr int kInputs = arity(op);
    constexpr int kSize = 16 / static_cast<int>(sizeof(T));
    BroadcastParams<T, result_t<op, T>, kInputs> p{};
    p.out = static_cast<result_t<op, T> *>(launch.data[0]);
    p.n = static_cast<std::uint32_t>(launch.count);
    p.ndim = launch.ndim;
    for (int d = 0; d < launch.ndim; ++d)
        p.shape[d] = Divider::make(static_cast<std::uint32_t>(launch.shape[launch.ndim - 1 - d]));
    for (int j = 0; j < kInputs; ++j) {
        const bool is_value = launch.immediate[j + 1];
        p.walks[j] = is_value ? Walk::value : is_packed(launch, j + 1) ? Walk::packed : Walk::strided;
        p.in[j] = static_cast<const T *>(launch.data[j + 1]);
        p.values[j] = is_value ? layout_value<T>(launch, j + 1) : T{};
        for (int d = 0; d < launch.ndim && !is_value; ++d)
            p.strides[j][d] = launch.strides[j + 1][launch.ndim - 1 - d];
    }
    p.stripes = stripes_of<T>(launch);
    const std::int64_t vectors = (launch.count + kSize - 1) / kSize;
    return launch_kernel<broadcast_kernel<op, T, kInputs>>(
        static_cast<unsigned>((vectors + kLayoutThreads - 1) / kLayoutThreads), kLayoutThreads, stream, p);
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
        p.values[j] = is_value ? layout_value<T>(launch, j + 1) : T{};
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
    transpose_kernel<op, T, kInputs><<<blocks, kLayoutThreads, tile * turned_inputs, stream>>>(p);
    return cudaPeekAtLastError();
}

// Launches one of the kernels of this file, if one serves the operands' layout: whether it did.
template <Op op, typename T>
bool launch_layout(const ElementwiseLaunch &launch, cudaStream_t stream, cudaError_t *error) noexcept {
    if (!is_uniform(launch)) return false;
    const int last = launch.ndim - 1;
    int turned = -1;
    for (int j = 1; j < launch.num_operands && turned < 0; ++j) turned = turned_dimension(launch, j);
    constexpr std::int64_t kNarrow = 8;  // rows of out: neighbours of the operand meet in caches
    const bool fills = turned >= 0 && launch.shape[turned] * launch.shape[last] >= kTileElements<T> / 4;
    if (fills && launch.strides[0][last] == 1 && launch.shape[last] > kNarrow) {
        *error = launch_transpose<op, T>(launch, turned, stream);
        return true;
    }
    if (!is_packed(launch, 0)) return false;
    *error = launch_broadcast<op, T>(launch, stream);
    return true;
}

}  // namespace cukern::cuda
