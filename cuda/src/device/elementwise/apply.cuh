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

// Comparisons, extremes and logic of bytes by words of four, each in some five instructions. All that has two
// operands on bool is logic.
template <Op op, typename T>
inline constexpr bool has_words =
    sizeof(T) == 1 && (is_comparison(op) || is_logical(op) || op == Op::maximum || op == Op::minimum ||
                       (std::is_same_v<T, Bool> && arity(op) == 2));

template <Op op>  // nvcc calls no constexpr function of the host within a kernel, but here
inline constexpr bool asks_for_truth = is_logical(op);

template <Op op, typename T>
__device__ std::uint32_t apply_word(std::uint32_t a, std::uint32_t b) {
    constexpr bool kIsBool = std::is_same_v<T, Bool>;
    constexpr bool kIsSigned = std::is_same_v<T, std::int8_t>;
    if constexpr (kIsBool || asks_for_truth<op>) {  // any byte but 0 is true
        a = __vsetne4(a, 0);
        b = __vsetne4(b, 0);
    }
    constexpr bool kIsSum = op == Op::add || op == Op::bitwise_or || op == Op::logical_or;
    constexpr bool kIsProduct =
        op == Op::multiply || op == Op::scale || op == Op::bitwise_and || op == Op::logical_and;
    constexpr bool kIsXor = op == Op::not_equal || op == Op::bitwise_xor;
    if constexpr (kIsSum || (kIsBool && op == Op::maximum)) return a | b;
    if constexpr (kIsProduct || (kIsBool && op == Op::minimum)) return a & b;
    if constexpr (op == Op::logical_xor || (kIsBool && kIsXor)) return a ^ b;
    if constexpr (op == Op::logical_not) return __vseteq4(a, 0);
    if constexpr (op == Op::equal) return __vseteq4(a, b);
    if constexpr (op == Op::not_equal) return __vsetne4(a, b);
    if constexpr (op == Op::less) return kIsSigned ? __vsetlts4(a, b) : __vsetltu4(a, b);
    if constexpr (op == Op::less_equal) return kIsSigned ? __vsetles4(a, b) : __vsetleu4(a, b);
    if constexpr (op == Op::greater) return kIsSigned ? __vsetgts4(a, b) : __vsetgtu4(a, b);
    if constexpr (op == Op::greater_equal) return kIsSigned ? __vsetges4(a, b) : __vsetgeu4(a, b);
    if constexpr (op == Op::maximum) return kIsSigned ? __vmaxs4(a, b) : __vmaxu4(a, b);
    if constexpr (op == Op::minimum) return kIsSigned ? __vmins4(a, b) : __vminu4(a, b);
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
