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
#include <limits>

#include "formulas/arithmetic.cuh"
#include "formulas/rough_math.cuh"

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

// The natural logarithm of x * 2**exponent, for a normal x. high may be some units off, which low corrects.
CUKERN_HD Pair log(float x, int exponent) {
    // x = m * 2**e with m from 2/3 to 4/3, and log(m) = 2 atanh(s / 2) with s = 2 (m - 1) / (m + 1).
    constexpr std::uint32_t kTwoThirds = 0x3F2AAAAB;
    const auto bits = bit_cast<std::uint32_t>(x);
    const int e = static_cast<std::int32_t>(bits - kTwoThirds) >> 23;
    const auto m = bit_cast<float>(bits - (static_cast<std::uint32_t>(e) << 23));
    const float below = rounded_sum(m, -1);  // exact
    const float inverse = rough_inverse(rounded_sum(m, 1));
    // What s leaves of 2 (m - 1) is 2 (m - 1 - s) - s (m - 1), whose first difference is exact.
    Pair s;
    s.high = 2 * below * inverse;
    s.low = std::fma(-s.high, below, 2 * rounded_sum(below, -s.high)) * inverse;
    Pair square = product(s.high, s.high);
    square.low = std::fma(2 * s.high, s.low, square.low);
    float p = 9.67556846e-5F;
    p = std::fma(p, square.high, 0.000432887727F);
    p = std::fma(p, square.high, 0.00223220862F);
    p = std::fma(p, square.high, 0.0124999983F);
    constexpr Pair kTwelfth = {0.0833333358F, -2.48352694e-9F};
    const Pair factor = ordered_sum(kTwelfth.high, std::fma(p, square.high, kTwelfth.low));
    Pair tail = product(square.high, factor.high);  // (log(m) - s) / s
    tail.low = std::fma(square.high, factor.low, std::fma(square.low, factor.high, tail.low));
    Pair more = product(s.high, tail.high);
    more.low = std::fma(s.high, tail.low, std::fma(s.low, tail.high, more.low));
    // log(2) in two parts, of which the first has so few digits that its product is exact.
    constexpr float kLn2High = 0.693145751953125F;
    constexpr float kLn2Low = 1.42860677e-6F;
    const auto whole = static_cast<float>(e + exponent);
    const float sum_of_high = std::fma(whole, kLn2High, s.high);
    const float rest = rounded_sum(s.high, -std::fma(-whole, kLn2High, sum_of_high));
    const Pair total = ordered_sum(sum_of_high, more.high);
    return {total.high, total.low + rest + std::fma(whole, kLn2Low, s.low + more.low)};
}

// A number rounded to a whole one by a sum, in whose bits its last digits are: where it is below 2**22.
struct Whole {
    float shifted;
    CUKERN_HD explicit Whole(float x) : shifted(rounded_sum(x, kShift)) {}
    CUKERN_HD float value() const { return rounded_sum(shifted, -kShift); }
    CUKERN_HD std::uint32_t digits() const { return bit_cast<std::uint32_t>(shifted); }
    static constexpr float kShift = 12582912;  // 1.5 * 2**23
};

// exp(f) for an f of at most log(2) / 2, and exp(x) as that times 2**n.
struct Power {
    float value;
    Whole n;
};
CUKERN_HD Power exp_in_parts(Pair x) {
    constexpr float kLog2E = 1.44269502F;
    constexpr float kLn2High = 0.693147182F;
    constexpr float kLn2Low = -1.90465421e-9F;
    const Whole n(x.high * kLog2E);
    float f = std::fma(-n.value(), kLn2High, x.high);
    f += std::fma(-n.value(), kLn2Low, x.low);
    float p = 0.000198909882F;
    p = std::fma(p, f, 0.00139336474F);
    p = std::fma(p, f, 0.00833331048F);
    p = std::fma(p, f, 0.0416664667F);
    p = std::fma(p, f, 0.166666672F);
    p = std::fma(p, f, 0.5F);
    return {rounded_sum(1, std::fma(p * f, f, f)), n};
}

// exp(x), rounded to a float; of a NaN any number.
CUKERN_HD float exp(Pair x) {
    constexpr float kMost = 105;  // beyond, the result is 0 or infinite
    const bool is_far = std::fabs(x.high) > kMost;
    const Power power = exp_in_parts({std::fmin(std::fmax(x.high, -kMost), kMost), is_far ? 0 : x.low});
    // In two steps, each of which is a normal number.
    const auto n = static_cast<std::int32_t>(power.n.digits() - bit_cast<std::uint32_t>(Whole::kShift));
    const std::int32_t half = n >> 1;
    return power.value * power_of_two(half) * power_of_two(n - half);
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
    // exp(x) / 4 is finite wherever the result is. The shift keeps the last 9 of the digits: n.
    const float quarter = power.value * bit_cast<float>((power.n.digits() << 23) + (125U << 23));
    const float large = std::fma(2.0F, quarter, -0.125F * rough_inverse(quarter));
    return magnitude >= 1 ? std::copysign(large, x) : small;  // NaN is not
}

// log(1 + x) for an x from 0 to 2**126.
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

CUKERN_HD float asinh(float x) {
    const float magnitude = std::fabs(x);
    if (!(magnitude < kInfinity)) return x;  // NaN, too
    // x + sqrt(x**2 + 1) - 1, whose second part is x**2 / (1 + sqrt(x**2 + 1)).
    const float square = magnitude * magnitude;
    const float rest = square * rough_inverse(1 + rough_root(1 + square));
    return std::copysign(log_of_twice_or_1_plus(magnitude, ordered_sum(magnitude, rest)), x);
}

CUKERN_HD float acosh(float x) {
    if (!(x >= 1 && x < kInfinity)) return x < 1 ? kInfinity - kInfinity : x;
    const float above = x - 1;
    const float square = std::fma(above, above, 2 * above);
    const float inverse = rough_inverse_root(std::fmax(square, power_of_two(-126)));
    float root = square * inverse;
    root = std::fma(std::fma(-root, root, square), 0.5F * inverse, root);
    return log_of_twice_or_1_plus(x, ordered_sum(root, above));
}

CUKERN_HD float atanh(float x) {
    const float magnitude = std::fabs(x);
    if (!(magnitude < 1)) return magnitude == 1 ? std::copysign(kInfinity, x) : x != x ? x : kInfinity - kInfinity;
    // log1p(2 x / (1 - x)) / 2
    const Pair below = ordered_sum(1, -magnitude);
    const float inverse = rough_inverse(below.high);
    const float ratio = 2 * magnitude * inverse;
    const float rest = std::fma(-ratio, below.low, std::fma(-ratio, below.high, 2 * magnitude));
    return std::copysign(log_of_1_plus({ratio, rest * inverse}) / 2, x);
}

// x less the nearest multiple of pi / 2, and whether that is an odd one. high may be off as that of log.
CUKERN_HD Pair reduce_angle(float x, bool *is_odd) {
    constexpr Pair kHalfPi = {1.57079637F, -4.37113883e-8F};
    constexpr float kHalfPiRest = -1.71512489e-15F;
    constexpr float kTwoOverPi = 0.636619747F;
    constexpr float kFewTurns = 65536;  // so that all integers of 16 bits are below
    if (std::fabs(x) < kFewTurns) {
        const Whole n(x * kTwoOverPi);
        *is_odd = n.digits() % 2 != 0;
        const float near = std::fma(-n.value(), kHalfPi.high, x);  // exact
        // This and the product are so close, or so far apart, that the difference's error is one.
        const Pair second = product(n.value(), kHalfPi.low);
        const float high = rounded_sum(near, -second.high);
        const float low = rounded_sum(rounded_sum(near, -high), -second.high);
        return {high, low - std::fma(n.value(), kHalfPiRest, second.low)};
    }
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

CUKERN_HD float tan(float x) {
    if (!(std::fabs(x) < kInfinity)) return x - x;
    bool is_odd;
    const Pair angle = reduce_angle(x, &is_odd);
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

// Roots and quotients rounded by themselves take several times the instructions, more than hide behind memory.
CUKERN_HD float hypot(float a, float b) {
    if (!(std::fabs(a) + std::fabs(b) < kInfinity)) {
        if (std::fabs(a) == kInfinity || std::fabs(b) == kInfinity) return kInfinity;
        if (a != a || b != b) return a + b;
    }
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

CUKERN_HD float atan2(float y, float x) {
    float ax = std::fabs(x);
    float ay = std::fabs(y);
    if (!(ax + ay < kInfinity)) {
        if (x != x || y != y) return x + y;
        const bool is_infinite = std::fmax(ax, ay) == kInfinity;
        ax = is_infinite ? static_cast<float>(ax == kInfinity) : ax / 2;
        ay = is_infinite ? static_cast<float>(ay == kInfinity) : ay / 2;
    }
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

CUKERN_HD float log_of_sum(float a, float b) {
    constexpr float kLn2 = 0.693147182F;
    if (a == b) return a + kLn2;
    const float difference = std::fabs(a - b);
    constexpr float kMost = 87;  // of more, exp is no normal number, and counts as 0
    const Power power = exp_in_parts({-std::fmin(difference, kMost), 0});
    const float part =
        difference > kMost ? 0 : power.value * bit_cast<float>((power.n.digits() << 23) + (127U << 23));
    const float found = std::fmax(a, b) + log_of_1_plus({part, 0});
    return a != a || b != b ? a + b : found;
}

// a**b of any a and b, from that of abs(a) where a and b are finite and a is not 0.
CUKERN_HD float signed_power(float a, float b, float power) {
    const float size = std::fabs(b);
    if (a > 0 && a < kInfinity && size < kInfinity) return power;
    if (b == 0) return 1;
    if (a != a || b != b) return a == 1 ? 1 : a + b;
    const float magnitude = std::fabs(a);
    if (size == kInfinity) return magnitude == 1 ? 1 : (magnitude > 1) == (b > 0) ? kInfinity : 0;
    constexpr float kAllWhole = 8388608;  // 2**23
    const bool is_whole = size >= kAllWhole || rounded_sum(rounded_sum(size, kAllWhole), -kAllWhole) == size;
    const bool is_odd = is_whole && size < 2 * kAllWhole && (static_cast<std::uint32_t>(size) & 1U) != 0;
    if (magnitude == 0 || magnitude == kInfinity)
        power = (magnitude == 0) == (b < 0) ? kInfinity : 0;
    else if (!is_whole)
        return kInfinity - kInfinity;
    return is_odd && std::signbit(a) ? -power : power;
}

CUKERN_HD float pow(float a, float b) {
    const float magnitude = std::fabs(a);
    const bool is_normal = magnitude >= power_of_two(-126);
    const Pair logarithm = log(is_normal ? magnitude : magnitude * power_of_two(24), is_normal ? 0 : -24);
    Pair exponent = product(b, logarithm.high);
    exponent.low = std::fma(b, logarithm.low, exponent.low);
    return signed_power(a, b, exp(exponent));
}

}  // namespace cukern::float_math
