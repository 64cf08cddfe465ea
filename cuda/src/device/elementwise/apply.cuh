// An operation on elements and on vectors of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/vector.cuh"
#include "formulas/evaluate.cuh"

namespace cukern::cuda {

template <Op op, typename T, int inputs>
CUKERN_HD result_t<op, T> apply(const T (&x)[inputs]) {
    if constexpr (inputs == 1)
        return evaluate<op>(x[0]);
    else if constexpr (inputs == 2)
        return evaluate<op>(x[0], x[1]);
    else
        return evaluate<op>(x[0], x[1], x[2]);
}

// Sums, differences and products of 16-bit floats two at a time, in the type itself: rounding to float32 on the
// way, which has more than twice their digits, changes nothing. The kernel is half as long, which is what small
// arrays wait for.
template <Op op, typename T>
inline constexpr bool has_pairs = (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) &&
                                  (op == Op::add || op == Op::subtract || op == Op::multiply);

template <Op op, typename T>
__device__ std::uint32_t apply_pair(std::uint32_t a, std::uint32_t b) {
    using Pair = std::conditional_t<std::is_same_v<T, Float16>, __half2, __nv_bfloat162>;
    const auto x = bit_cast<Pair>(a);
    const auto y = bit_cast<Pair>(b);
    // Never contracted with what follows.
    if constexpr (op == Op::add)
        return bit_cast<std::uint32_t>(__hadd2_rn(x, y));
    else if constexpr (op == Op::subtract)
        return bit_cast<std::uint32_t>(__hsub2_rn(x, y));
    else
        return bit_cast<std::uint32_t>(__hmul2_rn(x, y));
}

// A vector that repeats an element.
template <typename T>
__device__ Words repeat(T value) {
    Vector<T> vector;
#pragma unroll
    for (int e = 0; e < Vector<T>::kSize; ++e) vector.values[e] = value;
    return bit_cast<Words>(vector);
}

}  // namespace cukern::cuda
