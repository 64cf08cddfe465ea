// Functions of float32 in float32 arithmetic, within 2 units in the last place, where CUDA's own are further off.
// Double precision would do, but many GPUs compute in it at a sixty-fourth of the speed.
//
// Idea: what a rounding would cost is kept as a second float (Pair). Sums and products of two floats are such
// pairs without an error (T. J. Dekker, "A Floating-Point Technique for Extending the Available Precision", 1971).
// Neighbouring threads take two branches one after the other, so that there are few: special values apart, both
// sides are computed. Polynomials interpolate at Chebyshev nodes; their errors are below 2**-26 of the function.
// Tested over all arguments: see docs/architecture.md.
#pragma once

#include <cmath>
#include <cstdint>

#include "formulas/float_angles.cuh"
#include "formulas/float_pairs.cuh"
#include "formulas/rough_math.cuh"
#include "formulas/signed_power.cuh"

namespace cukern::float_math {

// The natural logarithm of x * 2**exponent, for a normal x, to 2**-30 of it. high may be some units off, which low
// corrects.
CUKERN_HD Pair log(float x, int exponent) {
    // x = m * 2**e with m from sqrt(1/2) to sqrt(2), and log(m) = 2 atanh(s / 2) with s = 2 (m - 1) / (m + 1).
    constexpr std::uint32_t kRootOfHalf = 0x3F3504F3;
    const auto bits = bit_cast<std::uint32_t>(x);
    const int e = static_cast<std::int32_t>(bits - kRootOfHalf) >> 23;
    const auto m = bit_cast<float>(bits - (static_cast<std::uint32_t>(e) << 23));
    const float below = rounded_sum(m, -1);  // exact
    const float inverse = rough_inverse(rounded_sum(m, 1));
    // What s leaves of 2 (m - 1) is 2 (m - 1 - s) - s (m - 1), whose first difference is exact.
    Pair s;
    s.high = 2 * below * inverse;
    s.low = std::fma(-s.high, below, 2 * rounded_sum(below, -s.high)) * inverse;
    // log(m) - s = s**3 * p(s**2) is at most a hundredth of s, so that its rounding is little.
    const float square = rounded_product(s.high, s.high);
    float p = 0.000449556013F;
    p = std::fma(p, square, 0.00223204261F);
    p = std::fma(p, square, 0.0124999229F);
    p = std::fma(p, square, 0.0833333358F);
    const float cube = rounded_product(s.high, square);
    const float lost = std::fma(s.high, std::fma(s.high, s.high, -square), std::fma(s.high, square, -cube));
    s.low = std::fma(0.0833333358F, lost, std::fma(0.25F * square, s.low, s.low));
    // log(2) in two parts, of which the first has so few digits that its product is exact.
    constexpr float kLn2High = 0.693145751953125F;
    constexpr float kLn2Low = 1.42860677e-6F;
    const auto whole = static_cast<float>(e + exponent);
    const float sum_of_high = std::fma(whole, kLn2High, s.high);
    const float rest = rounded_sum(s.high, -std::fma(-whole, kLn2High, sum_of_high));
    const float high = std::fma(cube, p, sum_of_high);
    const float low = std::fma(cube, p, rounded_sum(sum_of_high, -high));
    return {high, low + rest + std::fma(whole, kLn2Low, s.low)};
}

// exp(f) - 1 for an f of at most log(2) / 2, and exp(x) as exp(f) times 2**n.
struct Power {
    float beyond_1;
    Whole n;
    CUKERN_HD float value() const { return rounded_sum(1, beyond_1); }
    // 2**(n + more), where that is a normal number. The shift keeps the last 9 of the digits: n.
    CUKERN_HD float scale(int more) const {
        return bit_cast<float>((n.digits() << 23) + (static_cast<std::uint32_t>(127 + more) << 23));
    }
};
CUKERN_HD Power exp_in_parts(Pair x) {
    constexpr float kLog2E = 1.44269502F;
    constexpr float kLn2High = 0.693147182F;
    constexpr float kLn2Low = -1.90465421e-9F;
    const Whole n = Whole::of_product(x.high, kLog2E);
    float f = std::fma(-n.value(), kLn2High, x.high);
    f += std::fma(-n.value(), kLn2Low, x.low);
    float p = 0.000198909882F;
    p = std::fma(p, f, 0.00139336474F);
    p = std::fma(p, f, 0.00833331048F);
    p = std::fma(p, f, 0.0416664667F);
    p = std::fma(p, f, 0.166666672F);
    p = std::fma(p, f, 0.5F);
    return {std::fma(p * f, f, f), n};
}

// exp(x), rounded to a float; of a NaN any number.
CUKERN_HD float exp(Pair x) {
    constexpr float kMost = 105;  // beyond, the result is 0 or infinite
    const bool is_far = std::fabs(x.high) > kMost;
    const Power power = exp_in_parts({std::fmin(std::fmax(x.high, -kMost), kMost), is_far ? 0 : x.low});
    // In two steps, each of which is a normal number.
    const auto n = static_cast<std::int32_t>(power.n.digits() - bit_cast<std::uint32_t>(Whole::kShift));
    const std::int32_t half = n >> 1;
    return power.value() * power_of_two(half) * power_of_two(n - half);
}

// By a series below 1, else by exp; neighbouring threads would take two branches one after the other.
CUKERN_HD float sinh(float x) {
    const float magnitude = std::fabs(x);
    const float square = x * x;
    float p = 2.5456707e-8F;
    p = std::fma(p, square, 2.75537695e-6F);
    p = std::fma(p, square, 0.000198412832F);
    p = std::fma(p, square, 0.00833333377F);
    p = std::fma(p, square, 0.166666672F);
    const float small = std::fma(p * square, x, x);
    constexpr float kMost = 90;  // beyond, the result is infinite
    const Power power = exp_in_parts({std::fmin(magnitude, kMost), 0});
    const float quarter = power.value() * power.scale(-2);  // of exp(x): finite wherever the result is
    const float large = std::fma(2.0F, quarter, -0.125F * rough_inverse(quarter));
    return magnitude >= 1 ? std::copysign(large, x) : small;  // NaN is not
}

// log(1 + x) for an x above -1, to 2**126.
CUKERN_HD float log_of_1_plus(Pair x) {
    // 1 + x = (1 + m) * 2**e with an m from -1/4 to 1/2, in which the higher part of x is rounded once.
    constexpr std::uint32_t kLeast = 0x3F400000;
    const std::uint32_t power =
        (bit_cast<std::uint32_t>(rounded_sum(1, x.high)) - kLeast) & 0xFF800000U;  // e << 23
    const auto scale = bit_cast<float>(0x3F800000U - power);
    const float m = std::fma(scale, x.high, scale - 1);
    float p = -0.0473824255F;
    p = std::fma(p, m, 0.106256291F);
    p = std::fma(p, m, -0.131228775F);
    p = std::fma(p, m, 0.144384563F);
    p = std::fma(p, m, -0.166476443F);
    p = std::fma(p, m, 0.199935928F);
    p = std::fma(p, m, -0.25000155F);
    p = std::fma(p, m, 0.333333969F);
    p = std::fma(p, m, -0.5F);
    const float low = x.low * scale;
    const float logarithm = m + std::fma(p * m, m, std::fma(-low, m, low));
    constexpr float kLn2 = 8.26295829e-8F;  // log(2) / 2**23
    return std::fma(static_cast<float>(static_cast<std::int32_t>(power)), kLn2, logarithm);
}

// log(1 + other), or where x is large log(2 x), of a quarter and 8.
constexpr float kLarge = 1 << 30;
CUKERN_HD float log_of_twice_or_1_plus(float x, Pair other) {
    constexpr float kLn8 = 2.07944155F;
    const bool is_large = x > kLarge;
    return log_of_1_plus(is_large ? Pair{x / 4, 0} : other) + (is_large ? kLn8 : 0);
}

CUKERN_HD float finite_asinh(float x) {
    const float magnitude = std::fabs(x);
    // x + sqrt(x**2 + 1) - 1, whose second part is x**2 / (1 + sqrt(x**2 + 1)).
    const float square = magnitude * magnitude;
    const float rest = square * rough_inverse(1 + rough_root(std::fma(magnitude, magnitude, 1.0F)));
    return std::copysign(log_of_twice_or_1_plus(magnitude, ordered_sum(magnitude, rest)), x);
}
CUKERN_HD float asinh(float x) {
    return std::fabs(x) < kInfinity ? finite_asinh(x) : x;  // NaN, too
}

CUKERN_HD float finite_acosh(float x) {
    const float above = x - 1;
    const float square = std::fma(above, above, 2 * above);
    const float inverse = rough_inverse_root(std::fmax(square, power_of_two(-126)));
    float root = square * inverse;
    root = std::fma(std::fma(-root, root, square), 0.5F * inverse, root);
    return log_of_twice_or_1_plus(x, ordered_sum(root, above));
}
CUKERN_HD float acosh(float x) {
    if (x >= 1 && x < kInfinity) return finite_acosh(x);
    return x < 1 ? kInfinity - kInfinity : x;
}

CUKERN_HD float finite_atanh(float x) {
    const float magnitude = std::fabs(x);
    // log1p(2 x / (1 - x)) / 2
    const Pair below = ordered_sum(1, -magnitude);
    const float inverse = rough_inverse(below.high);
    const float ratio = 2 * magnitude * inverse;
    const float rest = std::fma(-ratio, below.low, std::fma(-ratio, below.high, 2 * magnitude));
    return std::copysign(log_of_1_plus({ratio, rest * inverse}) / 2, x);
}
CUKERN_HD float atanh(float x) {
    if (std::fabs(x) < 1) return finite_atanh(x);
    return std::fabs(x) == 1 ? std::copysign(kInfinity, x) : x != x ? x : kInfinity - kInfinity;
}

// Whether both are finite, and so small that their sum is.
CUKERN_HD bool are_finite(float a, float b) { return std::fabs(a) + std::fabs(b) < kInfinity; }

// Roots and quotients rounded by themselves take several times the instructions, more than hide behind memory.
CUKERN_HD float finite_hypot(float a, float b) {
    const float larger = std::fmax(std::fabs(a), std::fabs(b));
    const float smaller = std::fmin(std::fabs(a), std::fabs(b));
    // The power of two below the larger one, as far as its inverse is a normal number.
    constexpr std::uint32_t kExponent = 0x7F800000;
    constexpr std::uint32_t kLeast = 1U << 23;
    constexpr std::uint32_t kMost = 253U << 23;
    std::uint32_t power = bit_cast<std::uint32_t>(larger) & kExponent;
    power = power < kLeast ? kLeast : power > kMost ? kMost : power;
    const auto inverse = bit_cast<float>((254U << 23) - power);
    const float x = larger * inverse;
    const float y = smaller * inverse;
    // A root, and one step of Newton's method.
    const float square = std::fma(x, x, y * y);
    const float inverse_root = rough_inverse_root(square);
    const float root = square * inverse_root;
    const float found =
        std::fma(std::fma(-root, root, square), 0.5F * inverse_root, root) * bit_cast<float>(power);
    return smaller == 0 ? larger : found;
}
CUKERN_HD float hypot(float a, float b) {
    if (!are_finite(a, b)) {
        if (std::fabs(a) == kInfinity || std::fabs(b) == kInfinity) return kInfinity;
        if (a != a || b != b) return a + b;
    }
    return finite_hypot(a, b);
}

CUKERN_HD float finite_atan2(float y, float x) {
    const float ax = std::fabs(x);
    const float ay = std::fabs(y);
    // What is left of a quotient must not vanish, and its divisor stay a normal number up to 2**126.
    const float larger = std::fmax(ax, ay);
    const float scale = larger > power_of_two(64) ? power_of_two(-64) : power_of_two(62);
    const float below = std::fmax(larger * scale, power_of_two(-100));
    const float above = std::fmin(ax, ay) * scale;
    const float inverse = rough_inverse(below);
    Pair t;
    t.high = above * inverse;
    t.low = std::fma(-t.high, below, above) * inverse;
    // atan(t) = t + t**3 * p(t**2), and its derivative close to 1 - t**2 / 2.
    const float square = t.high * t.high;
    float p = 0.00292069092F;
    p = std::fma(p, square, -0.0163679235F);
    p = std::fma(p, square, 0.0432118513F);
    p = std::fma(p, square, -0.0755221397F);
    p = std::fma(p, square, 0.106660046F);
    p = std::fma(p, square, -0.142110556F);
    p = std::fma(p, square, 0.199937731F);
    p = std::fma(p, square, -0.333331525F);
    t.low = std::fma(t.high * square, p, std::fma(-0.5F * square, t.low, t.low));
    // pi / 2 less the angle where y is larger, then pi less that where x is negative.
    constexpr float kPi = 3.14159274F;
    constexpr float kRestOfPi = -2.78275307e-8F;  // relative to it
    const bool swaps = ay > ax;
    const bool is_left = std::signbit(x);
    const float base = swaps ? kPi / 2 : is_left ? kPi : 0;
    const float sign = swaps != is_left ? -1.0F : 1.0F;
    const Pair total = ordered_sum(base, sign * t.high);
    const float low = std::fma(base, kRestOfPi, std::fma(sign, t.low, total.low));
    return std::copysign(rounded_sum(total.high, low), y);
}
CUKERN_HD float atan2(float y, float x) {
    if (!are_finite(x, y)) {
        if (x != x || y != y) return x + y;
        const bool is_infinite = std::fmax(std::fabs(x), std::fabs(y)) == kInfinity;
        x = std::copysign(is_infinite ? static_cast<float>(std::fabs(x) == kInfinity) : std::fabs(x) / 2, x);
        y = std::copysign(is_infinite ? static_cast<float>(std::fabs(y) == kInfinity) : std::fabs(y) / 2, y);
    }
    return finite_atan2(y, x);
}

CUKERN_HD float finite_log_of_sum(float a, float b) {
    const float difference = std::fabs(a - b);
    constexpr float kMost = 87;  // of more, exp is no normal number, and counts as 0
    const Power power = exp_in_parts({-std::fmin(difference, kMost), 0});
    const float part = difference > kMost ? 0 : power.value() * power.scale(0);
    return std::fmax(a, b) + log_of_1_plus({part, 0});
}
CUKERN_HD float log_of_sum(float a, float b) {
    if (a != a || b != b) return a + b;
    return a == b && std::fabs(a) == kInfinity ? a : finite_log_of_sum(a, b);
}

// The logarithm of the power of magnitude * 2**exponent, a normal number.
CUKERN_HD Pair logarithm_of_power(float magnitude, int exponent, float b) {
    const Pair logarithm = log(magnitude, exponent);
    Pair product_with = product(b, logarithm.high);
    product_with.low = std::fma(b, logarithm.low, product_with.low);
    return product_with;
}
// Of a positive and normal a, if the power is normal: the same to the bit, since scaling rounds nothing then.
CUKERN_HD float normal_power(float a, float b) {
    const Power power = exp_in_parts(logarithm_of_power(a, 0, b));
    const float scale = power.scale(0);
    return std::fma(scale, power.beyond_1, scale);
}
// Near 1 the logarithm may be off by 2**-22, which is a quarter of a digit of the result at most.
CUKERN_HD bool has_normal_power(float a, float b) {
    constexpr float kMost = 1 << 20;
    return std::fabs(b * rough_log2(a)) < 125 && std::fabs(b) < kMost;
}
CUKERN_HD float pow(float a, float b) {
    const float magnitude = std::fabs(a);
    const bool is_normal = magnitude >= power_of_two(-126);
    return signed_power(
        a, b,
        exp(logarithm_of_power(is_normal ? magnitude : magnitude * power_of_two(24), is_normal ? 0 : -24, b)));
}

}  // namespace cukern::float_math
