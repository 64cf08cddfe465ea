// Rows, columns and steps beside a packed result, all of one element type.
//
// broadcast_kernel
//   Idea: out is packed, and a thread takes one 16-byte vector of it. Packed operands are loaded as vectors; of
//   the others the thread finds the place of its first element by dividing its index through the shape, by
//   multiplication, and walks on from there. Rows and columns are read from caches. Limited by device memory.
#pragma once

#include "device/elementwise/operands.cuh"
#include "device/launch_kernel.h"

namespace cukern::cuda {

// Of a multiprocessor, all that its threads suffice for: 32 registers a thread where it has 2048, as the data
// centres' have.
#ifndef __CUDA_ARCH__
constexpr int kMultiprocessorThreads = 2048;
#elif __CUDA_ARCH__ == 750
constexpr int kMultiprocessorThreads = 1024;
#elif __CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1100)
constexpr int kMultiprocessorThreads = 2048;
#else
constexpr int kMultiprocessorThreads = 1536;
#endif
constexpr int kBroadcastBlocks = kMultiprocessorThreads / kThreads;

// The blocks of out, in the order of `count` stripes of `length` blocks that lie one after the other, kRun of each
// at a time: of rows that share one that is too long for the caches, the same part is worked on at a time.
struct Stripes {
    static constexpr std::uint32_t kRun = 256;
    std::uint32_t count;
    std::uint32_t length;

    __device__ bool find(std::uint32_t *block) const {
        *block = blockIdx.x;
        if (count == 1) return true;
        const std::uint32_t run = blockIdx.x / kRun;
        const std::uint32_t turn = run / count;
        const std::uint32_t at = turn * kRun + blockIdx.x % kRun;
        *block = (run - turn * count) * length + at;
        return at < length;
    }
    std::uint32_t blocks() const noexcept {
        return count == 1 ? length : (length + kRun - 1) / kRun * kRun * count;
    }
};

template <typename T, typename R, int inputs>
struct BroadcastParams {
    R *out;
    const T *in[inputs];
    std::int64_t strides[inputs][kLayoutDims];  // from the fastest dimension to the slowest
    T values[inputs];
    Divider shape[kLayoutDims];
    std::uint32_t n;
    Stripes stripes;
    int ndim;
    Walk walks[inputs];
};

// Loads a vector's elements from flat index `first` on.
template <typename T, typename P>
__device__ Words load_walk(const P &p, int input, std::uint32_t first) {
    constexpr int kSize = Vector<T>::kSize;
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
    Vector<T> to{};
    if (index[0] + kSize <= p.shape[0].by) {
        const bool is_aligned = reinterpret_cast<std::uintptr_t>(from) % sizeof(Words) == 0;
        if (step == 1 && is_aligned) return *reinterpret_cast<const Words *>(from);
        if (step == 0) return repeat(*from);
        if (step == 2 && is_aligned && index[0] + kSize < p.shape[0].by) {
            // With what lies between them: there is another element behind.
            const auto *const vectors = reinterpret_cast<const Vector<T> *>(from);
            const Vector<T> both[] = {vectors[0], vectors[1]};
#pragma unroll
            for (int e = 0; e < kSize; ++e) to.values[e] = both[2 * e / kSize].values[2 * e % kSize];
            return bit_cast<Words>(to);
        }
        return load_elements(from, step);
    }
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
        to.values[e] = p.in[input][offset];
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
        if (first + e + 1 >= p.n) break;  // there is no next element
    }
    return bit_cast<Words>(to);
}

template <Op op, typename T, int inputs>
__global__ void __launch_bounds__(kThreads, kBroadcastBlocks)
    broadcast_kernel(const __grid_constant__ BroadcastParams<T, result_t<op, T>, inputs> p) {
    constexpr int kSize = Vector<T>::kSize;
    std::uint32_t block;
    if (!p.stripes.find(&block)) return;
    const std::uint32_t first = (block * kThreads + threadIdx.x) * kSize;
    if (first >= p.n) return;
    const bool whole = p.n - first >= kSize;
    Words x[inputs];
#pragma unroll
    for (int j = 0; j < inputs; ++j) {
        if (p.walks[j] == Walk::packed && whole)
            x[j] = *reinterpret_cast<const Words *>(p.in[j] + first);
        else if (p.walks[j] == Walk::value)
            x[j] = repeat(p.values[j]);
        else
            x[j] = load_walk<T>(p, j, first);
    }
    const auto result = apply_vector<op, T, inputs>(x);
    if (whole) {
        *reinterpret_cast<ResultVector<op, T> *>(p.out + first) = result;
    } else {
        const auto elements = bit_cast<Elements<result_t<op, T>, kSize>>(result);
#pragma unroll
        for (int e = 0; e < kSize; ++e)
            if (first + e < p.n) p.out[first + e] = elements.values[e];
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
    constexpr int kSize = Vector<T>::kSize;
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
    const auto blocks = static_cast<std::uint32_t>((launch.count + kSize * kThreads - 1) / (kSize * kThreads));
    const std::uint32_t stripes = stripes_of<T>(launch);
    p.stripes = {stripes, (blocks + stripes - 1) / stripes};
    return launch_kernel<broadcast_kernel<op, T, kInputs>>(p.stripes.blocks(), kThreads, stream, p);
}

}  // namespace cukern::cuda
