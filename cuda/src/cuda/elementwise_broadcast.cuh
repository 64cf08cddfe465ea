// Rows, columns and steps beside a packed result, all of one element type.
//
// broadcast_kernel
//   Idea: out is packed, and a thread takes one 16-byte vector of it. Packed operands are loaded as vectors; of
//   the others the thread finds the place of its first element by dividing its index through the shape, by
//   multiplication, and walks on from there. Rows and columns are read from caches. Limited by device memory.
#pragma once

#include "cuda/elementwise_operands.cuh"
#include "cuda/launch_kernel.h"

namespace cukern::cuda {

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

// Blocks in the order of `stripes` parts of out side by side, some of each at a time: of rows that share what is
// too long for the caches, the same part is worked on at a time.
__device__ inline std::uint32_t block_index(std::uint32_t stripes) {
    constexpr std::uint32_t kRun = 16;
    if (stripes == 1) return blockIdx.x;
    const std::uint32_t length = gridDim.x / stripes / kRun * kRun;
    if (blockIdx.x >= length * stripes) return blockIdx.x;
    const std::uint32_t run = blockIdx.x / kRun;
    return run % stripes * length + run / stripes * kRun + blockIdx.x % kRun;
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
__global__ void __launch_bounds__(kThreads)
    broadcast_kernel(const __grid_constant__ BroadcastParams<T, result_t<op, T>, inputs> p) {
    using R = result_t<op, T>;
    constexpr int kSize = 16 / static_cast<int>(sizeof(T));
    const std::uint32_t first = (block_index(p.stripes) * kThreads + threadIdx.x) * kSize;
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
        p.values[j] = is_value ? value_of<T>(launch, j + 1) : T{};
        for (int d = 0; d < launch.ndim && !is_value; ++d)
            p.strides[j][d] = launch.strides[j + 1][launch.ndim - 1 - d];
    }
    p.stripes = stripes_of<T>(launch);
    const std::int64_t vectors = (launch.count + kSize - 1) / kSize;
    return launch_kernel<broadcast_kernel<op, T, kInputs>>(
        static_cast<unsigned>((vectors + kThreads - 1) / kThreads), kThreads, stream, p);
}

}  // namespace cukern::cuda
