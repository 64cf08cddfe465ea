// The arithmetic of products, of every type that they are computed in.
#pragma once

#include <type_traits>

#include "formulas/functors.cuh"

namespace cukern::cuda {

// a * b + c: rounded once, of integers modulo their size; of complex numbers each part in two such steps.
template <typename T>
__device__ __forceinline__ T multiply_add(T a, T b, T c) {
    if constexpr (std::is_integral_v<T>) {
        using U = wrapping_t<T>;
        return static_cast<T>(static_cast<U>(a) * static_cast<U>(b) + static_cast<U>(c));
    } else if constexpr (std::is_floating_point_v<T>) {
        return fma(a, b, c);
    } else {
        return {fma(-a.imag, b.imag, fma(a.real, b.real, c.real)),
                fma(a.imag, b.real, fma(a.real, b.imag, c.imag))};
    }
}

template <typename T>
__device__ __forceinline__ T add(T a, T b) {
    return Formula<Op::add>::apply(a, b);
}

}  // namespace cukern::cuda
