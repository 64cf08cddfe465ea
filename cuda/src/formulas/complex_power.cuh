// Quotients and powers of complex numbers. Those of complex64 are computed in float64, and rounded once; but
// powers other than small whole ones in float32, by the functions of complex_math.cuh.
#pragma once

#include <cmath>

#include "formulas/complex_math.cuh"

namespace cukern::complex_math {

// x / abs(x): of 0 itself, of an infinite part its direction.
CUKERN_LONG_FUNCTION Z sign_by_modulus(Z z) {
    const double modulus = std::hypot(z.real, z.imag);
    if (modulus == 0) return {0, 0};
    if (std::isinf(modulus)) {
        if (std::isinf(z.real) && std::isinf(z.imag)) return {nan_value(), nan_value()};
        return std::isinf(z.real) ? Z{std::copysign(1.0, z.real), 0} : Z{0, std::copysign(1.0, z.imag)};
    }
    return {z.real / modulus, z.imag / modulus};
}
CUKERN_HD Z sign(Z z) {
#ifdef __CUDA_ARCH__
    const double square = fused(z.real, z.real, z.imag * z.imag);
    // Not where one part is 0: there the other one of the result is 1 or -1, without an error.
    if (z.real != 0 && z.imag != 0 && square > 1e-280 && square < 1e280) {
        const double one = ::rsqrt(square);
        return {z.real * one, z.imag * one};
    }
#endif
    return sign_by_modulus(z);
}

// float64 holds the squares of both parts.
CUKERN_HD Complex64 sign(Complex64 z) {
    const double x = z.real;
    const double y = z.imag;
    const double square = x * x + y * y;
#ifdef __CUDA_ARCH__
    const double one = ::rsqrt(square);
#else
    const double one = 1 / std::sqrt(square);
#endif
    const Z found = square > 0 && std::isfinite(square) ? Z{x * one, y * one} : sign_by_modulus(Z{x, y});
    return {static_cast<float>(found.real), static_cast<float>(found.imag)};
}

// By Smith's method, as NumPy: what can be finite is. One path for both cases, which neighbouring threads mix.
CUKERN_HD Z ordinary_reciprocal(Z z) {
    const bool is_real_larger = std::abs(z.imag) <= std::abs(z.real);
    const double large = is_real_larger ? z.real : z.imag;
    const double small = is_real_larger ? z.imag : z.real;
    const double ratio = small / large;
    const double scale = fused(small, ratio, large);
    const double one = 1 / scale;
    const double other = std::isinf(one) ? ratio / scale : ratio * one;
    return is_real_larger ? Z{one, -other} : Z{other, -one};
}
CUKERN_LONG_FUNCTION Z reciprocal(Z z) { return ordinary_reciprocal(z); }

// float64 holds the squares of both parts.
CUKERN_HD Complex64 ordinary_reciprocal(Complex64 z) {
    const double x = z.real;
    const double y = z.imag;
    const double square = x * x + y * y;
    const double one = 1 / square;
    const Z found = square > 0 && std::isfinite(square) ? Z{x * one, -y * one} : reciprocal(Z{x, y});
    return {static_cast<float>(found.real), static_cast<float>(found.imag)};
}
CUKERN_HD Complex64 reciprocal(Complex64 z) { return ordinary_reciprocal(z); }

template <typename C>
CUKERN_HD C product(C a, C b) {
    return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
}

// With what is infinite kept infinite, by C99's Annex G.5.1.
template <typename C>
CUKERN_LONG_FUNCTION C product_with_infinities(C a, C b) {
    using R = Part<C>;
    const C plain = product(a, b);
    if (plain.real == plain.real || plain.imag == plain.imag) return plain;
    const auto is_infinite = [](C z) { return std::isinf(z.real) || std::isinf(z.imag); };
    const auto finite_part = [](R x) { return x != x ? std::copysign(R{0}, x) : x; };
    const auto direction = [](R x) { return std::copysign(std::isinf(x) ? R{1} : R{0}, x); };
    const bool overflows = std::isinf(a.real * b.real) || std::isinf(a.imag * b.imag) ||
                           std::isinf(a.real * b.imag) || std::isinf(a.imag * b.real);
    if (!is_infinite(a) && !is_infinite(b) && !overflows) return plain;
    if (is_infinite(a)) {
        b = {finite_part(b.real), finite_part(b.imag)};
        a = {direction(a.real), direction(a.imag)};
    }
    if (is_infinite(b)) {
        a = {finite_part(a.real), finite_part(a.imag)};
        b = {direction(b.real), direction(b.imag)};
    }
    if (overflows) {
        a = {finite_part(a.real), finite_part(a.imag)};
        b = {finite_part(b.real), finite_part(b.imag)};
    }
    constexpr R kInf = part<C>(kInfinity);
    return {kInf * (a.real * b.real - a.imag * b.imag), kInf * (a.real * b.imag + a.imag * b.real)};
}

// By repeated squaring.
CUKERN_HD Z whole_power(Z base, unsigned exponent) {
    if (exponent == 1) return base;
    if (exponent == 2) return product(base, base);
    if (exponent == 3) return product(base, product(base, base));
    Z result = {1, 0};
    while (true) {
        if ((exponent & 1U) != 0) result = product(result, base);
        exponent >>= 1U;
        if (exponent == 0) return result;
        base = product(base, base);
    }
}

// Powers by small whole numbers are products in complex128, any other exp(b * log(a)).
template <typename C>
CUKERN_LONG_FUNCTION C pow(C a, C b) {
    using R = Part<C>;
    if (b.real == 0 && b.imag == 0) return {1, 0};
    if (a.real == 0 && a.imag == 0) return b.real > 0 ? C{0, 0} : C{part<C>(nan_value()), part<C>(nan_value())};
    if (b.imag == 0 && std::abs(b.real) < 100 && b.real == std::trunc(b.real)) {
        const Z power = whole_power({a.real, a.imag}, static_cast<unsigned>(std::abs(b.real)));
        const Z found = b.real > 0 ? power : reciprocal(product(Z{1, 0}, power));
        return {static_cast<R>(found.real), static_cast<R>(found.imag)};
    }
    return exp(product_with_infinities(b, log(a)));
}

}  // namespace cukern::complex_math
