// What functions of float32 are made of: sums of two floats, and floats taken apart. See float_math.cuh.
#pragma once

#include <cmath>
#include <cstdint>

#include "formulas/arithmetic.cuh"

namespace cukern::float_math {

// A number as a sum. high is the sum rounded to a float where a function does not say otherwise.
struct Pair {
    float high, low;
};

// A sum that is rounded by itself: the compiler would fuse it with a product.
CUKERN_HD float rounded_sum(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

// a + b without an error, where |a| >= |b|, or a is 0.
CUKERN_HD Pair ordered_sum(float a, float b) {
    const float high = rounded_sum(a, b);
    return {high, rounded_sum(b, -rounded_sum(high, -a))};
}

// a * b without an error, where nothing underflows.
CUKERN_HD Pair product(float a, float b) {
    const float high = rounded_product(a, b);
    return {high, std::fma(a, b, -high)};
}

// 2**exponent, of a normal number.
CUKERN_HD float power_of_two(int exponent) {
    return bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// A number rounded to a whole one by a sum, in whose bits its last digits are: where it is below 2**22.
struct Whole {
    float shifted;
    CUKERN_HD explicit Whole(float x) : shifted(rounded_sum(x, kShift)) {}
    // Of a product that is not rounded before.
    CUKERN_HD static Whole of_product(float a, float b) {
        Whole whole(0);
        whole.shifted = std::fma(a, b, kShift);
        return whole;
    }
    CUKERN_HD float value() const { return rounded_sum(shifted, -kShift); }
    CUKERN_HD std::uint32_t digits() const { return bit_cast<std::uint32_t>(shifted); }
    static constexpr float kShift = 12582912;  // 1.5 * 2**23
};

}  // namespace cukern::float_math
