// What the elementwise kernels share: how operands lie.
#pragma once

#include <cstdint>

#include "device/elementwise/groups.cuh"
#include "device/grid.cuh"

#ifndef __CUDACC_RTC__
#include <cstdlib>

#include "plan/launch.h"
#endif

namespace cukern::cuda {

constexpr int kLayoutDims = 4;  // of the kernels for one layout

// Threads that a multiprocessor holds: 32 registers for each where it has 2048, as the data centres' have.
#ifndef __CUDA_ARCH__
constexpr int kMultiprocessorThreads = 2048;
#elif __CUDA_ARCH__ == 750
constexpr int kMultiprocessorThreads = 1024;
#elif __CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1100)
constexpr int kMultiprocessorThreads = 2048;
#else
constexpr int kMultiprocessorThreads = 1536;
#endif

enum class InputLayout : std::int8_t {
    value,       // no array
    packed,      // as out is
    strided,     // any other
    transposed,  // packed along another dimension
};

// A vector of elements that lie `step` apart.
template <typename T>
__device__ Words load_elements(const T *from, std::int64_t step) {
    using Part = Elements<T, sizeof(T) >= 4 ? Vector<T>::kSize : 4 / static_cast<int>(sizeof(T))>;
    Words words{};
#pragma unroll 1
    for (int i = 0; i < Vector<T>::kSize; i += Part::kSize) {
        Part part;
#pragma unroll
        for (int e = 0; e < Part::kSize; ++e) part.values[e] = from[(i + e) * step];
        put_back(words, part);
    }
    return words;
}

// Loads a vector that begins anywhere: two elements one by one, more from the two vectors that hold them, or the
// one.
template <typename T>
__device__ Words load_shifted(const T *from) {
    Words result;
    if constexpr (sizeof(T) == 8) {
        const auto *const elements = reinterpret_cast<const std::uint64_t *>(from);
        const std::uint64_t both[] = {elements[0], elements[1]};
        memcpy(&result, both, sizeof result);
    } else {
        const auto address = reinterpret_cast<std::uintptr_t>(from);
        const Words *const vectors = vector_around(from);
        Elements<std::uint32_t, 8> words;
        const Words both[] = {vectors[0], vectors[address % sizeof(Words) != 0]};
        memcpy(&words, both, sizeof words);
#pragma unroll
        for (int by = 2; by > 0; by /= 2) {
            const bool moves = (address / 4 & by) != 0;
#pragma unroll
            for (int i = 0; i + by < 8; ++i) words.values[i] = moves ? words.values[i + by] : words.values[i];
        }
        const std::uint32_t bits = address % 4 * 8;
#pragma unroll
        for (int i = 0; i < Words::kSize; ++i) {
            const std::uint64_t pair = std::uint64_t{words.values[i + 1]} << 32 | words.values[i];
            result.values[i] = sizeof(T) >= 4 ? words.values[i] : static_cast<std::uint32_t>(pair >> bits);
        }
    }
    return result;
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
// An operand that is given by value, in logic as a truth.
template <typename T>
T value_of(const ElementwiseLaunch &launch, int operand) noexcept {
    return load_as<T>(launch.values[operand].bytes, is_logical(launch.op) ? ElementType::bool_ : launch.compute,
                      0);
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
inline int transposed_dimension(const ElementwiseLaunch &launch, int operand) noexcept {
    const std::int64_t *const strides = launch.strides[operand];
    const int last = launch.ndim - 1;
    if (launch.immediate[operand] || strides[last] == 0 || std::abs(strides[last]) <= 2) return -1;
    for (int d = last - 1; d >= 0; --d)
        if (strides[d] == 1) return d;
    return -1;
}
#endif

}  // namespace cukern::cuda
