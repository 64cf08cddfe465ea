// a**b of float64 within 2 units in the last place: see double_math.cuh.
//
// Idea: exp(b log(a)). The exponential multiplies a relative error of the logarithm by up to 709, so that it must
// be below 2**-64. So the logarithm, and what it is computed from, are sums of two numbers (Pair); the last terms
// of the polynomial are one.
#pragma once

#include "formulas/double_math.cuh"
#include "formulas/signed_power.cuh"

namespace cukern::double_math {

// a * b without an error, where nothing underflows.
CUKERN_HD Pair product(double a, double b) {
    const double high = rounded_product(a, b);
    return {high, std::fma(a, b, -high)};
}
// a * b to some 2**-104 of it.
CUKERN_HD Pair product(Pair a, Pair b) {
    const Pair found = product(a.high, b.high);
    return {found.high, std::fma(a.high, b.low, std::fma(a.low, b.high, found.low))};
}

// The natural logarithm of x * 2**exponent, for a normal x. high may be some units off, which low corrects.
CUKERN_HD Pair log(double x, int exponent) {
    // x = m * 2**e with m from sqrt(1/2) to sqrt(2), and log(m) = 2 atanh(s / 2) with s = 2 (m - 1) / (m + 1).
    constexpr std::uint32_t kRootOfHalf = 0x3FE6A09E;
    const auto bits = bit_cast<std::uint64_t>(x);
    const int e = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits >> 32) - kRootOfHalf) >> 20;
    const auto m =
        bit_cast<double>(bits - (static_cast<std::uint64_t>(static_cast<std::uint32_t>(e) << 20) << 32));
    const double below = m - 1;  // exact
    const double inverse = rough_inverse(m + 1);
    // What s leaves of 2 (m - 1) is 2 (m - 1 - s) - s (m - 1), whose first difference is exact.
    Pair s;
    s.high = rounded_product(2 * below, inverse);
    s.low = rounded_product(std::fma(-s.high, below, 2 * (below - s.high)), inverse);
    const Pair square = product(s, s);
    double p = 1.0068030576984854e-06;
    p = std::fma(p, square.high, 4.045658336875264e-06);
    p = std::fma(p, square.high, 1.878266300473342e-05);
    p = std::fma(p, square.high, 8.877824395751768e-05);
    p = std::fma(p, square.high, 0.00043402778359334085);
    p = std::fma(p, square.high, 0.002232142857039003);
    p = std::fma(p, square.high, 0.012500000000000705);
    constexpr Pair kTwelfth = {0.08333333333333333, 4.625929269271485e-18};
    const Pair factor = ordered_sum(kTwelfth.high, std::fma(p, square.high, kTwelfth.low));
    const Pair more = product(s, product(square, factor));  // log(m) - s
    const auto whole = static_cast<double>(e + exponent);
    const double sum = std::fma(whole, kFewDigitsOfLn2.high, s.high);
    const double rest = s.high - std::fma(-whole, kFewDigitsOfLn2.high, sum);
    const Pair total = ordered_sum(sum, more.high);
    return {total.high, total.low + rest + std::fma(whole, kFewDigitsOfLn2.low, s.low + more.low)};
}

// exp(x), rounded; of a NaN any number.
CUKERN_HD double exp(Pair x) {
    constexpr double kMost = 750;  // beyond, the result is 0 or infinite
    const bool is_far = !(std::fabs(x.high) < kMost);
    const Power power = exp_in_parts({is_far ? std::copysign(kMost, x.high) : x.high, is_far ? 0 : x.low});
    // In two steps, each of which is a normal number.
    const auto half = static_cast<std::uint32_t>(static_cast<std::int32_t>(power.n()) >> 1);
    return (1 + power.beyond_1) * power_of_two(half) * power_of_two(power.n() - half);
}

CUKERN_HD double power_of(double magnitude, int exponent, double b) {
    const Pair logarithm = log(magnitude, exponent);
    const Pair found = product(b, logarithm.high);
    return exp({found.high, std::fma(b, logarithm.low, found.low)});
}
// Of a positive and normal a, and a finite b.
CUKERN_HD double positive_power(double a, double b) { return power_of(a, 0, b); }
CUKERN_HD bool has_positive_power(double a, double b) {
    const auto upper = static_cast<std::uint32_t>(bit_cast<std::uint64_t>(a) >> 32);
    return upper - 0x00100000U < 0x7FE00000U && upper_of_modulus(b) < 0x7FF00000U;
}
CUKERN_HD double pow(double a, double b) {
    const double magnitude = std::fabs(a);
    const bool is_normal = magnitude >= 0x1p-1022;
    return signed_power(a, b, power_of(is_normal ? magnitude : magnitude * 0x1p54, is_normal ? 0 : -54, b));
}

}  // namespace cukern::double_math
