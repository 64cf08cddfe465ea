// Functions of float32 in float32 arithmetic, within 2 units in the last place, where CUDA's own are further off.
// Double precision would do, but many GPUs compute in it at a sixty-fourth of the speed.
//
// Idea: what a rounding would cost is kept as a second float (Pair). Sums and products of two floats are such
// pairs without an error (D. E. Knuth, The Art of Computer Programming 2, 4.2.2; T. J. Dekker, "A Floating-Point
// Technique for Extending the Available Precision", 1971). Polynomials interpolate at Chebyshev nodes; their
// errors are below 2**-27 of the function. Tested over all arguments: see docs/architecture.md.
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

// a + b without an error.
CUKERN_HD Pair sum(float a, float b) {
    const float high = rounded_sum(a, b);
    const float rest = rounded_sum(high, -a);
    return {high, rounded_sum(rounded_sum(a, -rounded_sum(high, -rest)), rounded_sum(b, -rest))};
}

// The same where |a| >= |b|, or a is 0.
CUKERN_HD Pair ordered_sum(float a, float b) {
    const float high = rounded_sum(a, b);
    return {high, rounded_sum(b, -rounded_sum(high, -a))};
}

// a * b without an error, where nothing underflows.
CUKERN_HD Pair product(float a, float b) {
    const float high = rounded_product(a, b);
    return {high, std::fma(a, b, -high)};
}

// Of a `b` as rough_quotient takes it: what is left of the first quotient corrects it.
CUKERN_HD Pair quotient(Pair a, Pair b) {
    const float inverse = rough_quotient(1, b.high);
    const float high = a.high * inverse;
    const float rest = std::fma(-high, b.high, a.high);
    return ordered_sum(high, (rest + a.low - high * b.low) * inverse);
}

// 2**exponent, of a normal number.
CUKERN_HD float power_of_two(int exponent) {
    return bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// The natural logarithm of x * 2**exponent, for a normal x. high may be some units off, which low corrects.
CUKERN_HD Pair log(float x, int exponent) {
    // x = m * 2**e with m from 2/3 to 4/3, and log(m) = 2 atanh(s) with s = (m - 1) / (m + 1).
    constexpr std::uint32_t kTwoThirds = 0x3F2AAAAB;
    const auto bits = bit_cast<std::uint32_t>(x);
    const int e = static_cast<std::int32_t>(bits - kTwoThirds) >> 23;
    const auto m = bit_cast<float>(bits - (static_cast<std::uint32_t>(e) << 23));
    const float above = rounded_sum(m, 1);
    const float above_low = rounded_sum(m, -rounded_sum(above, -1));
    const float inverse = rough_quotient(1, above);
    const float below = rounded_sum(m, -1);  // exact
    Pair s;
    s.high = below * inverse;
    s.low = std::fma(-s.high, above_low, std::fma(-s.high, above, below)) * inverse;
    Pair square = product(s.high, s.high);
    square.low = std::fma(s.high, 2 * s.low, square.low);
    float p = 0.198155642F;
    p = std::fma(p, square.high, 0.221638516F);
    p = std::fma(p, square.high, 0.285722703F);
    p = std::fma(p, square.high, 0.399999946F);
    constexpr Pair kTwoThird = {0.666666687F, -1.98341887e-8F};
    const Pair factor = ordered_sum(kTwoThird.high, std::fma(p, square.high, kTwoThird.low));
    Pair tail = product(square.high, factor.high);  // (log(m) - 2 s) / s
    tail.low = std::fma(square.high, factor.low, std::fma(square.low, factor.high, tail.low));
    Pair more = product(s.high, tail.high);
    more.low = std::fma(s.high, tail.low, std::fma(s.low, tail.high, more.low));
    Pair result = ordered_sum(2 * s.high, more.high);
    result.low = std::fma(2.0F, s.low, result.low + more.low);
    // log(2) in two parts, of which the first has so few digits that its product is exact.
    constexpr float kLn2High = 0.693145751953125F;
    constexpr float kLn2Low = 1.42860677e-6F;
    const auto whole = static_cast<float>(e + exponent);
    const float large = whole * kLn2High;
    const float total = rounded_sum(large, result.high);
    const float rest = whole == 0 ? 0 : rounded_sum(result.high, -rounded_sum(total, -large));
    return {total, rest + std::fma(whole, kLn2Low, result.low)};
}

// exp(x) * 2**exponent, rounded to a float, for an exponent of 0 or -1.
CUKERN_HD float exp(Pair x, int exponent = 0) {
    constexpr float kMost = 105;  // beyond, the result is 0 or infinite
    if (!(std::fabs(x.high) < kMost)) return x.high < 0 ? 0 : x.high > 0 ? kInfinity : x.high;
    constexpr float kLog2E = 1.44269502F;
    constexpr float kLn2High = 0.693147182F;
    constexpr float kLn2Low = -1.90465421e-9F;
    const float n = std::rint(x.high * kLog2E);
    float f = std::fma(-n, kLn2High, x.high);
    f += std::fma(-n, kLn2Low, x.low);
    float p = 0.000198909809F;
    p = std::fma(p, f, 0.00139336416F);
    p = std::fma(p, f, 0.00833331048F);
    p = std::fma(p, f, 0.0416664667F);
    p = std::fma(p, f, 0.166666672F);
    p = std::fma(p, f, 0.5F);
    const float value = 1 + std::fma(p * f, f, f);
    const int scale = static_cast<int>(n) + exponent;
    const int half = scale / 2;
    return value * power_of_two(half) * power_of_two(scale - half);
}

CUKERN_HD float value_of(Pair x) { return x.high + x.low; }

CUKERN_HD float sinh(float x) {
    const float magnitude = std::fabs(x);
    if (!(magnitude >= 1)) {  // NaN, too
        const float square = x * x;
        float p = 2.5456707e-8F;
        p = std::fma(p, square, 2.75537695e-6F);
        p = std::fma(p, square, 0.000198412832F);
        p = std::fma(p, square, 0.00833333377F);
        p = std::fma(p, square, 0.166666672F);
        return std::fma(p * square, x, x);
    }
    const float half = exp({magnitude, 0}, -1);
    return std::copysign(half - rough_quotient(0.25F, half), x);  // 0 for a large `half` does not matter
}

// log(1 + a + b), where the larger of the two comes first.
CUKERN_HD float log_of_1_plus(float a, float b) {
    const Pair total = ordered_sum(a, b);
    return std::log1p(total.high) + rough_quotient(total.low, 1 + total.high);
}

// log(2 x) of a large x.
CUKERN_HD float log_of_twice(float x) {
    constexpr float kLn2 = 0.693147182F;
    return std::log(x) + kLn2;
}

CUKERN_HD float asinh(float x) {
    const float magnitude = std::fabs(x);
    constexpr float kLarge = 1 << 30;                                              // the square's 1 doesn't matter
    if (!(magnitude <= kLarge)) return std::copysign(log_of_twice(magnitude), x);  // NaN, too
    // x + sqrt(x**2 + 1) - 1, whose second part is x**2 / (1 + sqrt(x**2 + 1)).
    const float square = magnitude * magnitude;
    const float rest = rough_quotient(square, 1 + rough_root(1 + square));
    return std::copysign(log_of_1_plus(magnitude, rest), x);
}

CUKERN_HD float acosh(float x) {
    constexpr float kLarge = 1 << 30;
    if (!(x >= 1)) return kInfinity - kInfinity;
    if (x > kLarge) return log_of_twice(x);
    const float above = x - 1;
    const float root = std::sqrt(std::fma(above, above, 2 * above));
    return log_of_1_plus(root, above);
}

CUKERN_HD float atanh(float x) {
    const float magnitude = std::fabs(x);
    if (!(magnitude < 1)) return magnitude == 1 ? std::copysign(kInfinity, x) : x != x ? x : kInfinity - kInfinity;
    // log1p(2 x / (1 - x)) / 2, where (1 - x) (1 + 2 x / (1 - x)) is 1 + x.
    const Pair below = ordered_sum(1, -magnitude);
    const float ratio = 2 * magnitude * rough_quotient(1, below.high);
    const float rest = std::fma(-ratio, below.high, 2 * magnitude) - ratio * below.low;
    const float logarithm = std::log1p(ratio) + rough_quotient(rest, 1 + magnitude);
    return std::copysign(logarithm / 2, x);
}

// x less the nearest multiple of pi / 2, and that multiple's number modulo 4. high may be off as that of log.
CUKERN_HD Pair reduce_angle(float x, int *quadrant) {
    constexpr Pair kHalfPi = {1.57079637F, -4.37113883e-8F};
    constexpr float kHalfPiRest = -1.71512489e-15F;
    constexpr float kTwoOverPi = 0.636619747F;
    constexpr float kFewTurns = 65536;  // so that all integers of 16 bits are below
    if (std::fabs(x) < kFewTurns) {
        const float n = std::rint(x * kTwoOverPi);
        *quadrant = static_cast<int>(n) & 3;
        const Pair first = product(n, kHalfPi.high);
        const Pair second = product(n, kHalfPi.low);
        // x and the products are so close, or so far apart, that each difference's error is one.
        const float near = rounded_sum(x, -first.high);
        const float nearer = rounded_sum(near, -first.low);
        const float rest = rounded_sum(rounded_sum(near, -nearer), -first.low);
        const float high = rounded_sum(nearer, -second.high);
        const float low = rounded_sum(rounded_sum(nearer, -high), -second.high);
        return {high, low + (rest - std::fma(n, kHalfPiRest, second.low))};
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
    int number = static_cast<int>(upper >> 62) + (turns < 0 ? 1 : 0);
    constexpr float kUnit = 5.42101086e-20F;  // 2**-64
    const auto high = static_cast<float>(turns);
    // A sum that rounds to 2**63 is no 64-bit integer.
    const std::int64_t rounded = high < 9223372036854775808.0F ? static_cast<std::int64_t>(high) : INT64_MAX;
    const auto low = static_cast<float>(turns - rounded);
    Pair angle = product(high * kUnit, kHalfPi.high);
    angle.low += high * kUnit * kHalfPi.low + low * kUnit * kHalfPi.high;
    angle = ordered_sum(angle.high, angle.low);
    if (x < 0) {
        number = -number;
        angle = {-angle.high, -angle.low};
    }
    *quadrant = number & 3;
    return angle;
}

CUKERN_HD float tan(float x) {
    if (!(std::fabs(x) < kInfinity)) return x - x;
    int quadrant;
    const Pair angle = reduce_angle(x, &quadrant);
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
    if (quadrant % 2 == 0) return angle.high == 0 ? x : tangent;
    const float inverse = rough_quotient(1, tangent);
    return -std::fma(inverse, std::fma(-tangent, inverse, 1.0F), inverse);
}

// Roots and quotients rounded by themselves take several times the instructions, more than hide behind memory.
CUKERN_HD float hypot(float a, float b) {
    const float larger = std::fmax(std::fabs(a), std::fabs(b));
    const float smaller = std::fmin(std::fabs(a), std::fabs(b));
    // The power of two below the larger one, as far as its inverse is a normal number.
    constexpr std::uint32_t kExponent = 0x7F800000;
    constexpr std::uint32_t kLeast = 1U << 23;
    constexpr std::uint32_t kMost = 253U << 23;
    std::uint32_t power = bit_cast<std::uint32_t>(larger) & kExponent;
    power = power < kLeast ? kLeast : power > kMost ? kMost : power;
    const auto inverse = bit_cast<float>((254U << 23) - power);
    const Pair p = product(larger * inverse, larger * inverse);
    const Pair q = product(smaller * inverse, smaller * inverse);
    const Pair total = ordered_sum(p.high, q.high);
    // A root, and one step of Newton's method with what the sum has beyond its square.
    const float inverse_root = rough_inverse_root(total.high);
    const float root = total.high * inverse_root;
    const float rest = std::fma(-root, root, total.high) + (total.low + p.low + q.low);
    const float found = std::fma(rest, 0.5F * inverse_root, root) * bit_cast<float>(power);
    if (larger == kInfinity) return larger;
    if (a != a || b != b) return a + b;
    return smaller == 0 ? larger : found;
}

CUKERN_HD float atan2(float y, float x) {
    if (x != x || y != y) return x + y;
    constexpr Pair kPi = {3.14159274F, -8.74227766e-8F};
    constexpr Pair kHalfPi = {1.57079637F, -4.37113883e-8F};
    constexpr Pair kQuarterPi = {0.785398185F, -2.18556941e-8F};
    const float ax = std::fabs(x);
    const float ay = std::fabs(y);
    float above = std::fmin(ax, ay);
    float below = std::fmax(ax, ay);
    Pair t = {0, 0};
    Pair base = {0, 0};
    if (above == kInfinity) {
        base = kQuarterPi;
    } else if (below > 0 && below < kInfinity) {
        // What is left of a quotient must not vanish, and its divisor stay below 2**126.
        const bool is_small = above < power_of_two(-40) && below < power_of_two(40);
        const float scale = below > power_of_two(100) ? power_of_two(-40) : is_small ? power_of_two(80) : 1;
        above *= scale;
        below *= scale;
        constexpr float kTanEighth = 0.414213568F;
        if (above > kTanEighth * below) {
            t = quotient(sum(above, -below), sum(below, above));
            base = kQuarterPi;
        } else {
            t = quotient({above, 0}, {below, 0});
        }
    }
    const float square = t.high * t.high;
    float p = 0.050466489F;
    p = std::fma(p, square, -0.0862409845F);
    p = std::fma(p, square, 0.110712878F);
    p = std::fma(p, square, -0.142841473F);
    p = std::fma(p, square, 0.199999765F);
    p = std::fma(p, square, -0.333333343F);
    Pair angle = ordered_sum(t.high, std::fma(p * square, t.high, t.low));
    // base + angle, then pi / 2 less that where y is larger, then pi less that where x is negative.
    const auto add = [](Pair a, Pair b) {
        const Pair total = ordered_sum(a.high, b.high);
        return ordered_sum(total.high, total.low + a.low + b.low);
    };
    if (base.high > 0) angle = add(base, angle);
    if (ay > ax) angle = add(kHalfPi, {-angle.high, -angle.low});
    if (std::signbit(x)) angle = add(kPi, {-angle.high, -angle.low});
    return std::copysign(angle.high, y);
}

CUKERN_HD float log_of_sum(float a, float b) {
    constexpr float kLn2 = 0.693147182F;
    if (a == b) return a + kLn2;
    const Pair difference = sum(a, -b);
    if (difference.high != difference.high) return std::fabs(a - b) == kInfinity ? std::fmax(a, b) : a + b;
    const bool is_first = difference.high > 0;
    const float part = exp(is_first ? Pair{-difference.high, -difference.low} : difference);
    const float larger = is_first ? a : b;
    if (!(std::fabs(larger) < kInfinity)) return larger;
    return larger + std::log1p(part);
}

CUKERN_HD float pow(float a, float b) {
    const float magnitude = std::fabs(a);
    const float size = std::fabs(b);
    const bool is_normal = magnitude >= power_of_two(-126);
    const Pair logarithm = log(is_normal ? magnitude : magnitude * power_of_two(24), is_normal ? 0 : -24);
    Pair exponent = product(b, logarithm.high);
    exponent.low = std::fma(b, logarithm.low, exponent.low);
    float result = exp(exponent);
    if (a > 0 && a < kInfinity && size < kInfinity) return result;
    if (b == 0) return 1;
    if (a != a || b != b) return a == 1 ? 1 : a + b;
    if (size == kInfinity) return magnitude == 1 ? 1 : (magnitude > 1) == (b > 0) ? kInfinity : 0;
    const bool is_whole = size >= 8388608 || std::rint(size) == size;
    const bool is_odd = is_whole && size < 16777216 && (static_cast<std::uint32_t>(size) & 1U) != 0;
    if (magnitude == 0 || magnitude == kInfinity)
        result = (magnitude == 0) == (b < 0) ? kInfinity : 0;
    else if (!is_whole)
        return kInfinity - kInfinity;
    return is_odd && std::signbit(a) ? -result : result;
}

}  // namespace cukern::float_math
