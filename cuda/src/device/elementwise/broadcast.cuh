// Rows, columns and steps beside a packed result, all of one element type.
//
// broadcast_kernel
//   Idea: out is packed, and a thread takes one 16-byte vector of it. Packed operands are loaded as vectors; of
//   the others the thread finds the place of its first element by dividing its index through the shape, by
//   multiplication, and steps on from there. Rows and columns are read from caches. Limited by device memory.
#pragma once

#include "device/elementwise/operands.cuh"
#include "device/follow.cuh"

#ifndef __CUDACC_RTC__
#include "device/launch_kernel.h"
#endif

namespace cukern::cuda {

// Three operands have twice as many registers.
template <Group group>
inline constexpr int kBroadcastBlocks = kMultiprocessorThreads / kThreads / (arity(group) == 3 ? 2 : 1);

// Block swizzle over `count` rows of out, of `length` blocks each: kRun blocks of every row by turns. Where the
// rows share one of an operand, too long for the caches, all of them need the same part of it at a time.
struct BlockSwizzle {
    static constexpr std::uint32_t kRun = 256;
    std::uint32_t count;
    std::uint32_t length;

    __device__ bool find(std::uint32_t *block) const {
        *block = blockIdx.x;
        if (count == 1) return true;
        const std::uint32_t run = blockIdx.x / kRun;
        const std::uint32_t part = run / count;
        const std::uint32_t at = part * kRun + blockIdx.x % kRun;
        *block = (run - part * count) * length + at;
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
    BlockSwizzle swizzle;
    int ndim;
    Op op;
    InputLayout layouts[inputs];
};

// Loads a vector's elements from flat index `first` on.
template <typename T, typename P>
__device__ Words load_input(const P &p, int input, std::uint32_t first) {
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
    const std::uint32_t length = p.shape[0].by;
    if (index[0] + kSize <= length) {
        if (step == 0) return repeat(*from);
        const bool is_aligned = reinterpret_cast<std::uintptr_t>(from) % sizeof(Words) == 0;
        if (step == 1 && is_aligned) return *reinterpret_cast<const Words *>(from);
        // The neighbours of a vector inside a row are the operand's, too.
        if (step == 1 && kSize > 1 && index[0] >= kSize && index[0] + 2 * kSize <= length)
            return load_shifted(from);
        if (step == 2 && is_aligned && index[0] + kSize < length) {
            // With what lies between them: there is another element behind.
            const auto *const vectors = reinterpret_cast<const Vector<T> *>(from);
            const Vector<T> both[] = {vectors[0], vectors[1]};
            Vector<T> to;
#pragma unroll
            for (int e = 0; e < kSize; ++e) to.values[e] = both[2 * e / kSize].values[2 * e % kSize];
            return bit_cast<Words>(to);
        }
        return load_elements(from, step);
    }
    Words to{};
#pragma unroll 1
    for (int e = 0; e < kSize; ++e) {
        const bool exists = first + e < p.n;
        put_back(to, exists ? p.in[input][offset] : T{});
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
    }
    return to;
}

template <Group group, typename T, int inputs>
__global__ void __launch_bounds__(kThreads, kBroadcastBlocks<group>)
    broadcast_kernel(const __grid_constant__ BroadcastParams<T, group_result_t<group, T>, inputs> p) {
    constexpr int kSize = Vector<T>::kSize;
    std::uint32_t block;
    if (!p.swizzle.find(&block)) return;
    const std::uint32_t first = (block * kThreads + threadIdx.x) * kSize;
    if (first >= p.n) return;
    const bool whole = p.n - first >= kSize;
    follow_kernel_before();
    Words x[inputs];
#pragma unroll
    for (int j = 0; j < inputs; ++j) {
        if (p.layouts[j] == InputLayout::packed && whole)
            x[j] = *reinterpret_cast<const Words *>(p.in[j] + first);
        else if (p.layouts[j] == InputLayout::value)
            x[j] = repeat(p.values[j]);
        else
            x[j] = load_input<T>(p, j, first);
    }
    const auto result = apply_vector_in<group, T, inputs>(p.op, x);
    if (whole) {
        *reinterpret_cast<GroupVector<group, T> *>(p.out + first) = result;
    } else {
#pragma unroll
        for (int e = 0; e < kSize; ++e)
            if (first + e < p.n) p.out[first + e] = result.values[e];
    }
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
// How many rows of out share a long row of an operand.
template <typename T>
std::uint32_t shared_rows(const ElementwiseLaunch &launch) noexcept {
    constexpr std::int64_t kLongRow = 4 << 20;  // bytes: more than stay in the caches from row to row
    if (launch.ndim != 2 || launch.shape[1] * static_cast<std::int64_t>(sizeof(T)) < kLongRow) return 1;
    for (int j = 1; j < launch.num_operands; ++j)
        if (!launch.immediate[j] && launch.strides[j][0] == 0 && launch.strides[j][1] != 0)
            return static_cast<std::uint32_t>(launch.shape[0]);
    return 1;
}

// `kernel`: a broadcast_kernel.
template <typename T, typename R, int inputs>
cudaError_t launch_broadcast(const KernelOf<BroadcastParams<T, R, inputs>> &kernel,
                             const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    constexpr int kSize = Vector<T>::kSize;
    BroadcastParams<T, R, inputs> p{};
    p.op = launch.op;
    p.out = static_cast<R *>(launch.data[0]);
    p.n = static_cast<std::uint32_t>(launch.count);
    p.ndim = launch.ndim;
    for (int d = 0; d < launch.ndim; ++d)
        p.shape[d] = Divider::make(static_cast<std::uint32_t>(launch.shape[launch.ndim - 1 - d]));
    for (int j = 0; j < inputs; ++j) {
        const bool is_value = launch.immediate[j + 1];
        p.layouts[j] = is_value                   ? InputLayout::value
                       : is_packed(launch, j + 1) ? InputLayout::packed
                                                  : InputLayout::strided;
        p.in[j] = static_cast<const T *>(launch.data[j + 1]);
        p.values[j] = is_value ? value_of<T>(launch, j + 1) : T{};
        for (int d = 0; d < launch.ndim && !is_value; ++d)
            p.strides[j][d] = launch.strides[j + 1][launch.ndim - 1 - d];
    }
    const auto blocks = static_cast<std::uint32_t>((launch.count + kSize * kThreads - 1) / (kSize * kThreads));
    const std::uint32_t rows = shared_rows<T>(launch);
    p.swizzle = {rows, (blocks + rows - 1) / rows};
    return launch_kernel(kernel, p.swizzle.blocks(), kThreads, stream, p, launch.prepared);
}
#endif

}  // namespace cukern::cuda
