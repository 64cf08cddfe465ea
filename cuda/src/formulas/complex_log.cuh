// Logarithms of complex numbers: see complex_math.cuh.
#pragma once

#include "formulas/complex_parts.cuh"

namespace cukern::complex_math {

// 2 to the power of `exponent`, a normal number; and the exponent of the next power beyond one.
template <typename R>
CUKERN_HD R power_of_two(int exponent) {
    if constexpr (sizeof(R) == sizeof(float))
        return bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
    else
        return bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}
template <typename R>
CUKERN_HD int exponent_beyond(R x) {
    if constexpr (sizeof(R) == sizeof(float))
        return (bit_cast<std::int32_t>(x) >> 23) - 126;
    else
        return static_cast<int>(bit_cast<std::int64_t>(x) >> 52) - 1022;
}

// log(1 + x) of an x from -1 to 4, or infinite. Of float64 by the logarithm of what 1 + x is rounded to, and what
// rounding has taken (W. Kahan): of log1p's two ways the threads of a warp take both, one after the other.
CUKERN_HD float log_beyond_1(float x) {
#ifdef __CUDA_ARCH__
    constexpr float kInf = float_math::kInfinity;
    return x > -1 && x < kInf ? float_math::log_of_1_plus({x, 0}) : x == -1 ? -kInf : x;
#else
    return std::log1p(x);
#endif
}
CUKERN_HD double log_beyond_1(double x) {
    const double sum = 1 + x;
    const double lost = x - (sum - 1);
    const double found = std::log(sum);
    double inverse = float_math::rough_inverse(static_cast<float>(sum));
    for (int i = 0; i < 2; ++i) inverse *= 2 - sum * inverse;
    return sum > 0 && sum < kInfinity ? found + lost * inverse : found;
}

// The logarithm of a number's modulus, as that of 1 + beyond over 2, and of a power of two.
template <typename R>
struct LogModulus {
    R beyond;
    int exponent;
    CUKERN_HD R value() const {
        return fused(static_cast<R>(exponent), static_cast<R>(kLn2), log_beyond_1(beyond) / 2);
    }
};

// By what the square is beyond 1. Near 1 that is all; else z is scaled first, so that the larger part is from 0.5
// to 1.
template <typename C>
CUKERN_LONG_FUNCTION LogModulus<Part<C>> modulus_beyond_1(C z) {
    using R = Part<C>;
    constexpr int kFar = sizeof(R) == sizeof(float) ? 64 : 512;
    if (std::isinf(z.real) || std::isinf(z.imag)) return {part<C>(kInfinity), 0};
    const R u = std::abs(z.real);
    const R v = std::abs(z.imag);
    R x = u < v ? v : u;
    R y = u < v ? u : v;
    int exponent = 0;
    if (!(x > R(0.5) && x < R(1.5)) && x != 0) {
        exponent = x > power_of_two<R>(kFar) ? kFar : x < power_of_two<R>(-kFar) ? -kFar : 0;
        x *= power_of_two<R>(-exponent);
        y *= power_of_two<R>(-exponent);
        const int own = exponent_beyond(x);
        x *= power_of_two<R>(-own);
        y *= power_of_two<R>(-own);
        exponent += own;
    }
    return {(x - 1) * (x + 1) + y * y, exponent};
}

template <typename C>
CUKERN_LONG_FUNCTION Part<C> log_modulus(C z) {
#ifndef __CUDA_ARCH__
    if constexpr (sizeof(C) == sizeof(Complex64)) {
        const float u = std::abs(z.real);
        const float v = std::abs(z.imag);
        if (u + v > 0 && std::fmax(u, v) < kInfinity) return log_modulus_by_squares(u, v);
    }
#endif
    return modulus_beyond_1(z).value();
}

// What a number's logarithm is made of.
template <typename R>
struct Polar {
    LogModulus<R> modulus;
    R angle;
};

// Whether the squares of its parts neither overflow nor vanish.
template <typename C>
CUKERN_HD bool has_squares(C z) {
    using R = Part<C>;
    constexpr R kFar = static_cast<R>(sizeof(R) == sizeof(float) ? 0x1p60 : 0x1p500);
    const R u = std::abs(z.real);
    const R v = std::abs(z.imag);
    const R larger = u < v ? v : u;
    return larger > 1 / kFar && larger < kFar;
}

// Of a z that has_squares. By a power of two it is scaled so that the larger part is from 0.7 to 1.4, where x - 1
// is exact. What is near 1 is not scaled; where logarithms of opposite signs are added up for another modulus of
// about 1, near the diagonals, the angle is larger than what they lose.
template <typename C>
CUKERN_HD Polar<Part<C>> near_polar(C z) {
    using R = Part<C>;
    constexpr bool kIsFloat = sizeof(R) == sizeof(float);
    using Bits = std::conditional_t<kIsFloat, std::int32_t, std::int64_t>;
    const R u = std::abs(z.real);
    const R v = std::abs(z.imag);
    R x = u < v ? v : u;
    R y = u < v ? u : v;
    LogModulus<R> modulus;
    modulus.exponent = static_cast<int>((bit_cast<Bits>(x) - bit_cast<Bits>(R(0.7))) >> (kIsFloat ? 23 : 52));
    x *= power_of_two<R>(-modulus.exponent);
    y *= power_of_two<R>(-modulus.exponent);
    modulus.beyond = fused(x - 1, x + 1, y * y);
#ifdef __CUDA_ARCH__
    if constexpr (kIsFloat)
        return {modulus, float_math::rough_angle(y * float_math::rough_inverse(x), z.imag, z.real)};
#endif
    return {modulus, angle(z.imag, z.real)};
}

template <typename C>
CUKERN_HD Polar<Part<C>> polar(C z) {
    if (has_squares(z)) return near_polar(z);
    return {modulus_beyond_1(z), angle(z.imag, z.real)};
}

template <typename C>
CUKERN_HD C ordinary_log(C z) {
#ifndef __CUDA_ARCH__
    if constexpr (sizeof(C) == sizeof(Complex64)) return {log_modulus(z), angle(z.imag, z.real)};  // any z
#endif
    const Polar<Part<C>> parts = near_polar(z);
    return {parts.modulus.value(), parts.angle};
}
template <typename C>
CUKERN_LONG_FUNCTION C log(C z) {
#ifndef __CUDA_ARCH__
    if constexpr (sizeof(C) == sizeof(Complex64)) return ordinary_log(z);
#endif
    const Polar<Part<C>> parts = polar(z);
    return {parts.modulus.value(), parts.angle};
}
template <typename C>
CUKERN_HD C scaled(C z, double by) {
    return {z.real * part<C>(by), z.imag * part<C>(by)};
}
template <typename C>
CUKERN_HD C log2(C z) {
    return scaled(log(z), kLog2E);
}
template <typename C>
CUKERN_HD C log10(C z) {
    return scaled(log(z), kLog10E);
}

template <typename C>
CUKERN_LONG_FUNCTION C log1p(C z) {
    const C shifted = {z.real + 1, z.imag};
#ifndef __CUDA_ARCH__
    if constexpr (sizeof(C) == sizeof(Complex64))
        if (is_finite(z)) return {log_modulus_of_1_and(z.real, z.imag), angle(shifted.imag, shifted.real)};
#endif
    // One path from there: neighbouring threads would take two logarithms one after the other.
    Polar<Part<C>> parts = polar(shifted);
    if (largest(z) < part<C>(0.5) && is_finite(z)) parts.modulus = {z.real * (2 + z.real) + z.imag * z.imag, 0};
    return {parts.modulus.value(), parts.angle};
}

}  // namespace cukern::complex_math
