// Trigonometric functions of float32: see float_math.cuh.
#pragma once

#include <cmath>
#include <cstdint>

#include "formulas/float_pairs.cuh"
#include "formulas/rough_math.cuh"

namespace cukern::float_math {

constexpr Pair kHalfPi = {1.57079637F, -4.37113883e-8F};
constexpr float kHalfPiRest = -1.71512489e-15F;
constexpr float kTwoOverPi = 0.636619747F;
constexpr float kFewTurns = 65536;  // so that all integers of 16 bits are below

// x less the nearest multiple of pi / 2, and whether that is an odd one. high may be off as that of log. Of an x
// below kFewTurns.
CUKERN_HD Pair reduce_near_angle(float x, bool *is_odd) {
    const Whole n(x * kTwoOverPi);
    *is_odd = n.digits() % 2 != 0;
    const float near = std::fma(-n.value(), kHalfPi.high, x);  // exact
    // This and the product are so close, or so far apart, that the difference's error is one.
    const Pair second = product(n.value(), kHalfPi.low);
    const float high = rounded_sum(near, -second.high);
    const float low = rounded_sum(rounded_sum(near, -high), -second.high);
    return {high, low - std::fma(n.value(), kHalfPiRest, second.low)};
}

// Of any finite x.
CUKERN_HD Pair reduce_angle(float x, bool *is_odd) {
    if (std::fabs(x) < kFewTurns) return reduce_near_angle(x, is_odd);
    // M. H. Payne and R. N. Hanek, "Radian Reduction for Trigonometric Functions" (1983): of x = m 2**e only the
    // digits of 2 / pi count whose products with x are no multiples of 4.
    constexpr std::uint32_t kDigits[] = {0,          0xA2F9836E, 0x4E441529, 0xFC2757D1,
                                         0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB};
    const auto bits = bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU;
    const std::uint32_t m = (bits & 0x7FFFFFU) | 0x800000U;
    const std::uint32_t begin = (bits >> 23) - 150 - 2 + 32;  // of the digits, in bits
    const std::uint32_t word = begin / 32;
    const std::uint32_t shift = begin % 32;
    std::uint32_t digits[3];
    for (std::uint32_t i = 0; i < 3; ++i) {
        const std::uint64_t both = std::uint64_t{kDigits[word + i]} << 32 | kDigits[word + i + 1];
        digits[i] = static_cast<std::uint32_t>(both << shift >> 32);
    }
    const std::uint64_t third = std::uint64_t{digits[2]} * m;
    const std::uint64_t second = std::uint64_t{digits[1]} * m + (third >> 32);
    const std::uint32_t first = digits[0] * m + static_cast<std::uint32_t>(second >> 32);
    const auto upper = std::uint64_t{first} << 32 | static_cast<std::uint32_t>(second);      // x / (2 pi)
    const auto turns = static_cast<std::int64_t>(upper << 2 | (third & 0xFFFFFFFFU) >> 30);  // quarters, rounded
    *is_odd = (upper >> 62) % 2 != (turns < 0 ? 1 : 0);
    constexpr float kUnit = 5.42101086e-20F;  // 2**-64
    const auto high = static_cast<float>(turns);
    // A sum that rounds to 2**63 is no 64-bit integer.
    const std::int64_t rounded = high < 9223372036854775808.0F ? static_cast<std::int64_t>(high) : INT64_MAX;
    const auto low = static_cast<float>(turns - rounded);
    Pair angle = product(high * kUnit, kHalfPi.high);
    angle.low += high * kUnit * kHalfPi.low + low * kUnit * kHalfPi.high;
    angle = ordered_sum(angle.high, angle.low);
    return x < 0 ? Pair{-angle.high, -angle.low} : angle;
}

// Of an x below kFewTurns, to 2 units in the last place of 1. Where n is not 0 no square vanishes.
struct SineAndCosine {
    float sine, cosine;
};
CUKERN_HD SineAndCosine near_sine_and_cosine(float x) {
    const Whole n(x * kTwoOverPi);
    float angle = std::fma(-n.value(), kHalfPi.high, x);  // exact
    angle = std::fma(-n.value(), kHalfPi.low, angle);
    angle = std::fma(-n.value(), kHalfPiRest, angle);
    const float square = angle * angle;
    float p = -0.00019587766F;
    p = std::fma(p, square, 0.008332748F);
    p = std::fma(p, square, -0.16666664F);
    const float sine = square == 0 ? x : std::fma(p, angle * square, angle);  // of -0, too
    p = 2.4547817e-5F;
    p = std::fma(p, square, -0.0013888302F);
    p = std::fma(p, square, 0.041666664F);
    p = std::fma(p, square, -0.5F);
    const float cosine = std::fma(p, square, 1.0F);
    // A quarter of a turn makes the sine of the cosine, half a turn changes the signs.
    const bool is_odd = n.digits() % 2 != 0;
    const std::uint32_t half_turns = n.digits() << 30;
    const std::uint32_t quarters = n.digits() << 31;
    constexpr std::uint32_t kSign = 1U << 31;
    return {bit_cast<float>(bit_cast<std::uint32_t>(is_odd ? cosine : sine) ^ (half_turns & kSign)),
            bit_cast<float>(bit_cast<std::uint32_t>(is_odd ? sine : cosine) ^ ((half_turns ^ quarters) & kSign))};
}

// Of what is left of x.
CUKERN_HD float tan_of(Pair angle, bool is_odd, float x) {
    const float square = angle.high * angle.high;
    float p = 0.00384315033F;
    p = std::fma(p, square, 0.00118530379F);
    p = std::fma(p, square, 0.00996215828F);
    p = std::fma(p, square, 0.0216211248F);
    p = std::fma(p, square, 0.0539944656F);
    p = std::fma(p, square, 0.133332312F);
    p = std::fma(p, square, 0.333333343F);
    const float rest = std::fma(p * square, angle.high, std::fma(angle.low, square, angle.low));
    const float tangent = angle.high + rest;
    const float inverse = rough_inverse(tangent);
    const float cotangent = std::fma(inverse, std::fma(-tangent, inverse, 1.0F), inverse);
    return is_odd ? -cotangent : angle.high == 0 ? x : tangent;
}
CUKERN_HD float near_tan(float x) {
    bool is_odd;
    const Pair angle = reduce_near_angle(x, &is_odd);
    return tan_of(angle, is_odd, x);
}
CUKERN_HD float tan(float x) {
    if (!(std::fabs(x) < kInfinity)) return x - x;
    bool is_odd;
    const Pair angle = reduce_angle(x, &is_odd);
    return tan_of(angle, is_odd, x);
}

}  // namespace cukern::float_math
