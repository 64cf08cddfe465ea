// where with a condition of bytes, of packed operands of one element type.
//
// where_kernel
//   Idea: a thread takes one 16-byte vector of out, as contiguous_kernel does, and as many bytes of the condition.
//   Limited by device memory.
#pragma once

#include "device/elementwise/operands.cuh"
#include "device/follow.cuh"

#ifndef __CUDACC_RTC__
#include "device/launch_kernel.h"
#endif

namespace cukern::cuda {

template <typename T>
struct WhereParams {
    T *out;
    const std::uint8_t *condition;
    const T *in[2];  // null: the value below
    T values[2];
    std::int64_t n;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) where_kernel(const WhereParams<T> p) {
    constexpr int kSize = Vector<T>::kSize;
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const std::int64_t vectors = p.n / kSize;
    follow_kernel_before();
    if (i < vectors) {
        const auto condition = reinterpret_cast<const Elements<std::uint8_t, kSize> *>(p.condition)[i];
        Vector<T> x[2];
#pragma unroll
        for (int j = 0; j < 2; ++j)
            x[j] = bit_cast<Vector<T>>(p.in[j] != nullptr ? reinterpret_cast<const Words *>(p.in[j])[i]
                                                          : repeat(p.values[j]));
        Vector<T> result;
#pragma unroll
        for (int e = 0; e < kSize; ++e)
            result.values[e] = condition.values[e] != 0 ? x[0].values[e] : x[1].values[e];
        reinterpret_cast<Vector<T> *>(p.out)[i] = result;
        return;
    }
    const std::int64_t at = vectors * kSize + (i - vectors);
    if (at >= p.n) return;
    const T a = p.in[0] != nullptr ? p.in[0][at] : p.values[0];
    const T b = p.in[1] != nullptr ? p.in[1][at] : p.values[1];
    p.out[at] = p.condition[at] != 0 ? a : b;
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
template <typename T>
bool has_packed_condition(const ElementwiseLaunch &launch) noexcept {
    if (launch.ndim != 1 || launch.immediate[1] || size_of(launch.types[1]) != 1) return false;
    for (int j = 0; j < launch.num_operands; ++j) {
        if (launch.immediate[j]) continue;
        const bool has_type = j == 1 || launch.types[j] == ElementTypeOf<T>::value;
        const std::size_t alignment = j == 1 ? Vector<T>::kSize : 16;
        if (!has_type || launch.strides[j][0] != 1 ||
            reinterpret_cast<std::uintptr_t>(launch.data[j]) % alignment != 0)
            return false;
    }
    return true;
}

template <typename T>
cudaError_t launch_where(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    WhereParams<T> p{};
    p.out = static_cast<T *>(launch.data[0]);
    p.condition = static_cast<const std::uint8_t *>(launch.data[1]);
    p.n = launch.count;
    for (int j = 0; j < 2; ++j) {
        const bool is_value = launch.immediate[j + 2];
        p.in[j] = is_value ? nullptr : static_cast<const T *>(launch.data[j + 2]);
        p.values[j] = is_value ? value_of<T>(launch, j + 2) : T{};
    }
    const std::int64_t threads = p.n / Vector<T>::kSize + p.n % Vector<T>::kSize;
    return launch_kernel<where_kernel<T>>(blocks_for(threads), kThreads, stream, p, launch.prepared);
}
#endif

}  // namespace cukern::cuda
