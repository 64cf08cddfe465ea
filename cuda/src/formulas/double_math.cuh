// Functions of float64 within 2 units in the last place, where CUDA's own take longer than the memory that they
// read and write.
//
// Idea: no branches. Where CUDA's functions branch, threads of a warp take both sides one after the other, and a
// thread computes its elements one by one. Here both sides share a polynomial, elements are computed side by side,
// and roots and quotients are made from the GPU's approximations, by steps of Newton's method, for operands that
// need no scaling. Polynomials are minimax; their errors are below 2**-54 of the function. What rounding would
// make of sums with products is written out, so that every kernel gives the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "formulas/arithmetic.cuh"

namespace cukern::double_math {

// A number as a sum of two, the second of which is small beside the first.
struct Pair {
    double high, low;
};
CUKERN_HD Pair ordered_sum(double a, double b) {  // where |a| >= |b|
    const double high = a + b;
    return {high, b - (high - a)};
}

constexpr Pair kPi = {3.141592653589793, 1.2246467991473532e-16};
constexpr Pair kHalfPi = {1.5707963267948966, 6.123233995736766e-17};
constexpr Pair kLn2 = {0.6931471805599453, 2.3190468138462996e-17};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// log(2) in two parts, of which the first has so few digits that its product with an exponent is exact.
constexpr Pair kFewDigitsOfLn2 = {0.6931471805598903, 5.497923018708371e-14};

// 1 / b to a unit in the last place, where b is from 2**-1020 to 2**1020.
CUKERN_HD double rough_inverse(double b) {
#ifdef __CUDA_ARCH__
    double inverse;  // to 20 digits
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(b));
    const double rest = std::fma(-b, inverse, 1.0);
    return std::fma(std::fma(rest, rest, rest), inverse, inverse);
#else
    return 1 / b;
#endif
}

// a / b to a unit in the last place, where b is from 2**-1000 to 2**1000.
CUKERN_HD double near_quotient(double a, double b) {
    const double inverse = rough_inverse(b);
    const double quotient = rounded_product(a, inverse);
    return std::fma(std::fma(-quotient, b, a), inverse, quotient);
}

// The root of 0, of a number from 2**-100 to 2**124, or of a negative one, NaN.
CUKERN_HD double near_root(double a) {
#ifdef __CUDA_ARCH__
    constexpr double kTiny = 0x1p-200;  // changes 0 alone, which has no inverse root
    double inverse;  // to 20 digits; volatile, else the compiler makes a branch where the root is not used
    asm volatile("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(a + kTiny));
    const double rest = std::fma(rounded_product(-a, inverse), inverse, 1.0);
    inverse = std::fma(std::fma(rest, 0.375, 0.5), rounded_product(rest, inverse), inverse);
    const double root = rounded_product(a, inverse);
    return std::fma(std::fma(-root, root, a), 0.5 * inverse, root);
#else
    return a == 0 ? 0 : std::sqrt(a);
#endif
}

// base.high + s + rest, where s is smaller than base.high or that is 0: what the first sum loses goes to the rest.
CUKERN_HD double sum_with_tail(Pair base, double s, double rest) {
    const double sum = base.high + s;
    return sum + (rest + (s - (sum - base.high)));
}

// base + s + s * square * p(square), where asin(x) = x + x**3 * p(x**2) for x up to 1/2. `square`: that of s, or
// of its half where s is twice a root.
CUKERN_HD double sum_with_asin(Pair base, double s, double square) {
    double p = 0.03191758981961417;
    p = std::fma(p, square, -0.016232127397488333);
    p = std::fma(p, square, 0.019533355826783286);
    p = std::fma(p, square, 0.006526088866779095);
    p = std::fma(p, square, 0.012169653710574501);
    p = std::fma(p, square, 0.013885167294788805);
    p = std::fma(p, square, 0.017359711739852422);
    p = std::fma(p, square, 0.02237175758393889);
    p = std::fma(p, square, 0.03038195915651756);
    p = std::fma(p, square, 0.04464285682785423);
    p = std::fma(p, square, 0.07500000000337585);
    p = std::fma(p, square, 0.16666666666665406);
    return sum_with_tail(base, s, std::fma(rounded_product(s, square), p, base.low));
}

// The upper half of a modulus's bits.
CUKERN_HD std::uint32_t upper_of_modulus(double x) {
    return static_cast<std::uint32_t>(bit_cast<std::uint64_t>(x) >> 32) & 0x7FFFFFFFU;
}
CUKERN_HD bool is_beyond_half(double x) { return upper_of_modulus(x) >= 0x3FE00000U; }  // NaN is

// sin(half the angle between x and 1)**2 where x is beyond 1/2, else x**2.
CUKERN_HD double asin_square(double magnitude, bool is_large) {
    return is_large ? std::fma(-0.5, magnitude, 0.5) : rounded_product(magnitude, magnitude);
}

// Beyond 1/2 asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2)), below -1/2 less that of -x. NaN of what is beyond 1:
// its root is. All parts have x's sign, also those that are 0.
CUKERN_HD double asin(double x) {
    const bool is_large = is_beyond_half(x);
    const double square = asin_square(std::fabs(x), is_large);
    const double root = near_root(square);
    const double s = is_large ? std::copysign(2 * root, -x) : x;
    const Pair base = {std::copysign(is_large ? kHalfPi.high : 0, x),
                       std::copysign(is_large ? kHalfPi.low : 0, x)};
    return sum_with_asin(base, s, square);
}

// pi / 2 - asin(x), which beyond 1/2 is 2 asin(sqrt((1 - x) / 2)), below -1/2 pi less that of -x.
CUKERN_HD double acos(double x) {
    const double magnitude = std::fabs(x);
    const bool is_large = is_beyond_half(x);
    const double square = asin_square(magnitude, is_large);
    const double root = near_root(square);
    const double s = is_large ? std::copysign(2 * root, x) : -x;
    const Pair base = !is_large ? kHalfPi : x < 0 ? kPi : Pair{0, 0};
    return sum_with_asin(base, s, square);
}

// Of x and y whose larger modulus is from 2**-980 to 2**1000.
CUKERN_HD double near_atan2(double y, double x) {
    const double u = std::fabs(x);
    const double v = std::fabs(y);
    const bool swaps = v > u;
    const double t = near_quotient(swaps ? u : v, swaps ? v : u);
    const double square = rounded_product(t, t);
    // atan(t) = t + t**3 * p(t**2)
    double p = -2.025853703719793e-05;
    p = std::fma(p, square, 0.0002230222358278904);
    p = std::fma(p, square, -0.0011640709685754608);
    p = std::fma(p, square, 0.003855972549553384);
    p = std::fma(p, square, -0.00918455440323954);
    p = std::fma(p, square, 0.016978028815970256);
    p = std::fma(p, square, -0.025826789178077337);
    p = std::fma(p, square, 0.03406780476951796);
    p = std::fma(p, square, -0.04092637842220888);
    p = std::fma(p, square, 0.046739494258067844);
    p = std::fma(p, square, -0.05239232933675776);
    p = std::fma(p, square, 0.05877307752232736);
    p = std::fma(p, square, -0.06665860359281656);
    p = std::fma(p, square, 0.07692212929998883);
    p = std::fma(p, square, -0.09090901235343826);
    p = std::fma(p, square, 0.11111110678746143);
    p = std::fma(p, square, -0.14285714271334726);
    p = std::fma(p, square, 0.1999999999975502);
    p = std::fma(p, square, -0.3333333333333186);
    // pi / 2 less the angle where y is larger, then pi less that where x is negative.
    const bool is_left = std::signbit(x);
    const Pair base = swaps ? kHalfPi : is_left ? kPi : Pair{0, 0};
    const double signed_t = swaps != is_left ? -t : t;
    const double rest = std::fma(rounded_product(signed_t, square), p, base.low);
    return std::copysign(sum_with_tail(base, signed_t, rest), y);
}
// Whether it serves x and y without a scale.
CUKERN_HD bool has_near_atan2(double y, double x) {
    constexpr std::uint32_t kLeast = (1023U - 900U) << 20;
    constexpr std::uint32_t kMost = (1023U + 1000U) << 20;
    const std::uint32_t u = upper_of_modulus(x);
    const std::uint32_t v = upper_of_modulus(y);
    return (u > v ? u : v) - kLeast < kMost - kLeast;
}
CUKERN_HD double atan2(double y, double x) {
    if (!has_near_atan2(y, x)) {
        if (x != x || y != y) return x + y;
        const double larger = std::fmax(std::fabs(x), std::fabs(y));
        const bool is_infinite = larger == kInfinity;
        const double scale = larger > 1 ? 0x1p-100 : 0x1p100;
        x = std::copysign(is_infinite   ? static_cast<double>(std::fabs(x) == kInfinity)
                          : larger == 0 ? 1.0
                                        : std::fabs(x) * scale,
                          x);
        y = std::copysign(is_infinite ? static_cast<double>(std::fabs(y) == kInfinity) : std::fabs(y) * scale, y);
    }
    return near_atan2(y, x);
}

// 2**exponent, of a normal number.
CUKERN_HD double power_of_two(std::uint32_t exponent) {
    return bit_cast<double>(std::uint64_t{(exponent + 1023U) << 20} << 32);
}

// exp(x) as (1 + beyond_1) * 2**n, for an x of at most 1000.
struct Power {
    double beyond_1;
    double shifted;  // n, as the last digits of its bits
    CUKERN_HD std::uint32_t n() const { return static_cast<std::uint32_t>(bit_cast<std::uint64_t>(shifted)); }
};
CUKERN_HD Power exp_in_parts(Pair x) {
    constexpr double kShift = 6755399441055744;  // 1.5 * 2**52
    constexpr double kLog2E = 1.4426950408889634;
    const double shifted = std::fma(x.high, kLog2E, kShift);
    const double n = shifted - kShift;
    const double f = std::fma(-n, kLn2.high, x.high) + std::fma(-n, kLn2.low, x.low);
    double p = 2.5053767184821337e-08;
    p = std::fma(p, f, 2.762602465610987e-07);
    p = std::fma(p, f, 2.7557407531873015e-06);
    p = std::fma(p, f, 2.480150530533165e-05);
    p = std::fma(p, f, 0.00019841269719051503);
    p = std::fma(p, f, 0.0013888888931540297);
    p = std::fma(p, f, 0.008333333333389521);
    p = std::fma(p, f, 0.041666666666576826);
    p = std::fma(p, f, 0.16666666666666588);
    p = std::fma(p, f, 0.5000000000000006);
    return {std::fma(rounded_product(f, f), p, f), shifted};
}

// By a series below 1, else by exp, of which a quarter is finite wherever the result is. Both sides are computed.
CUKERN_HD double sinh(double x) {
    constexpr double kMost = 710.75;  // of more it is infinite
    const double magnitude = std::fabs(x);
    const double square = rounded_product(x, x);
    double p = 7.758774754840576e-13;
    p = std::fma(p, square, 1.6057258891177641e-10);
    p = std::fma(p, square, 2.505212314827286e-08);
    p = std::fma(p, square, 2.755731915699755e-06);
    p = std::fma(p, square, 0.0001984126984143211);
    p = std::fma(p, square, 0.008333333333333148);
    p = std::fma(p, square, 0.16666666666666669);
    const double small = std::fma(rounded_product(x, square), p, x);
    const Power power = exp_in_parts({magnitude > kMost ? kMost : magnitude, 0});
    const double scale = power_of_two(power.n() - 2U);
    const double quarter = std::fma(scale, power.beyond_1, scale);
    // Of more than 2**100 the inverse is nothing beside it.
    const double inverse = rough_inverse(quarter > 0x1p100 ? 0x1p100 : quarter);
    const double large = 2 * std::fma(-0.0625, inverse, quarter);
    return magnitude >= 1 ? std::copysign(large, x) : small;  // NaN is not
}

// log(1 + x) for an x above -1, below 2**1022.
CUKERN_HD double log_of_1_plus(Pair x) {
    // 1 + x = (1 + m) * 2**e with an m from -1/4 to 1/2, in which the higher part of x is rounded once.
    constexpr std::uint32_t kLeast = 0x3FE80000;
    const auto upper = static_cast<std::uint32_t>(bit_cast<std::uint64_t>(1 + x.high) >> 32);
    const std::uint32_t power = (upper - kLeast) & 0xFFF00000U;  // e << 20
    const auto scale = bit_cast<double>(std::uint64_t{0x3FF00000U - power} << 32);
    const double m = std::fma(scale, x.high, scale - 1);
    const double low = rounded_product(x.low, scale);
    // log(1 + m) = 2 atanh(w / 2) with w = 2 m / (2 + m), which leaves `rest` of 2 m.
    const Pair sum = ordered_sum(2, m);
    const double inverse = rough_inverse(sum.high);
    const double w = rounded_product(2 * m, inverse);
    const double rest = std::fma(-w, sum.low, std::fma(-w, sum.high, 2 * m));
    const double square = rounded_product(w, w);
    double p = 4.6904229449258776e-06;
    p = std::fma(p, square, 1.8615735375397837e-05);
    p = std::fma(p, square, 8.880061018387033e-05);
    p = std::fma(p, square, 0.0004340261383698922);
    p = std::fma(p, square, 0.0022321429217144074);
    p = std::fma(p, square, 0.012499999998795907);
    p = std::fma(p, square, 0.08333333333334092);
    // The lower part of x adds about low * (1 - m).
    const double tail = std::fma(rounded_product(w, square), p, std::fma(rest, inverse, std::fma(-low, m, low)));
    const auto e = static_cast<double>(static_cast<std::int32_t>(power) >> 20);
    return sum_with_tail({rounded_product(e, kFewDigitsOfLn2.high), 0}, w, std::fma(e, kFewDigitsOfLn2.low, tail));
}

// Where a quarter need not be taken.
CUKERN_HD bool has_near_log1p(double x) { return x > -1 && x < 0x1p1000; }
CUKERN_HD double near_log1p(double x) { return std::copysign(log_of_1_plus({x, 0}), x); }
CUKERN_HD double log1p(double x) {
    if (has_near_log1p(x)) return near_log1p(x);
    if (x >= 0x1p1000 && x < kInfinity) return near_log1p(x / 4) + 2 * kLn2.high;
    return x == -1 ? -kInfinity : x < -1 ? kInfinity - kInfinity : x;
}

// log(exp(a) + exp(b)), of which NumPy's name is logaddexp.
CUKERN_HD double log_of_sum(double a, double b) {
    constexpr double kMost = 700;  // of more, exp counts as 0
    const double difference = a == b ? 0 : std::fabs(a - b);
    const Power power = exp_in_parts({difference > kMost ? -kMost : -difference, 0});
    const double scale = power_of_two(power.n());
    const double part = difference > kMost ? 0 : std::fma(scale, power.beyond_1, scale);
    return (a > b ? a : b) + log_of_1_plus({part, 0});
}

// log(1 + other), or where x is large log(2 x), of a quarter and 8.
constexpr double kLarge = 0x1p60;  // beside which 1 is nothing, and of which the square has a root
CUKERN_HD double log_of_twice_or_1_plus(double x, Pair other) {
    constexpr double kLn8 = 2.0794415416798357;
    const bool is_large = x > kLarge;
    return log_of_1_plus(is_large ? Pair{x / 4, 0} : other) + (is_large ? kLn8 : 0);
}

CUKERN_HD double finite_asinh(double x) {
    const double magnitude = std::fabs(x);
    // x + sqrt(x**2 + 1) - 1, whose second part is x**2 / (1 + sqrt(x**2 + 1)).
    const double square = magnitude > kLarge ? 1 : rounded_product(magnitude, magnitude);
    const double rest = rounded_product(square, rough_inverse(1 + near_root(square + 1)));
    return std::copysign(log_of_twice_or_1_plus(magnitude, ordered_sum(magnitude, rest)), x);
}
CUKERN_HD double asinh(double x) {
    return std::fabs(x) < kInfinity ? finite_asinh(x) : x;  // NaN, too
}

CUKERN_HD double finite_acosh(double x) {
    const double above = x - 1;
    const double root = near_root(x > kLarge ? 1 : std::fma(above, above, 2 * above));
    return log_of_twice_or_1_plus(x, ordered_sum(root, above));
}
CUKERN_HD double acosh(double x) {
    if (x >= 1 && x < kInfinity) return finite_acosh(x);
    return x < 1 ? kInfinity - kInfinity : x;
}

CUKERN_HD double finite_atanh(double x) {
    const double magnitude = std::fabs(x);
    // log1p(2 x / (1 - x)) / 2
    const Pair below = ordered_sum(1, -magnitude);
    const double inverse = rough_inverse(below.high);
    const double ratio = rounded_product(2 * magnitude, inverse);
    const double rest = std::fma(-ratio, below.low, std::fma(-ratio, below.high, 2 * magnitude));
    return std::copysign(log_of_1_plus({ratio, rounded_product(rest, inverse)}) / 2, x);
}
CUKERN_HD double atanh(double x) {
    if (std::fabs(x) < 1) return finite_atanh(x);
    return std::fabs(x) == 1 ? std::copysign(kInfinity, x) : x != x ? x : kInfinity - kInfinity;
}

}  // namespace cukern::double_math
