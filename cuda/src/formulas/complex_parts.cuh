// What functions of complex numbers are made of: constants, parts, quotients and angles.
#pragma once

#include <cmath>
#include <limits>

#include "formulas/convert.cuh"
#include "formulas/float_math.cuh"

#ifndef __CUDA_ARCH__
#include "formulas/complex_on_host.h"
#endif

namespace cukern::complex_math {

using Z = Complex128;

constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2 = 0.693147180559945309417;
constexpr double kLog2E = 1.44269504088896340736;
constexpr double kLog10E = 0.434294481903251827651;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Its square is finite, that of larger numbers may not be.
template <typename R>
inline constexpr R kLargest = static_cast<R>(sizeof(R) == sizeof(float) ? 1e18 : 1e150);

CUKERN_HD double nan_value() { return kInfinity - kInfinity; }
template <typename C>
using Part = decltype(C::real);
template <typename C>
CUKERN_HD bool is_finite(C z) {
    return std::isfinite(z.real) && std::isfinite(z.imag);
}
template <typename C>
CUKERN_HD C plus_i(C z) {  // times i
    return {-z.imag, z.real};
}
template <typename C>
CUKERN_HD C minus_i(C z) {  // times -i
    return {z.imag, -z.real};
}
template <typename C>
CUKERN_HD Part<C> largest(C z) {
    return std::fmax(std::abs(z.real), std::abs(z.imag));
}
// A constant in the type of a complex number's parts.
template <typename C>
CUKERN_HD constexpr Part<C> part(double value) {
    return static_cast<Part<C>>(value);
}

// a * b + c, on a GPU rounded once: of two products the compiler would choose either, in a function another one
// than in the kernel that has it in place.
template <typename R>
CUKERN_HD R fused(R a, R b, R c) {
#ifdef __CUDA_ARCH__
    return std::fma(a, b, c);
#else
    return a * b + c;
#endif
}

// To 2 units in the last place of float32, in a few instructions, where `b` is from 2**-126 to 2**126; of float64
// as exact as it gets.
template <typename R>
CUKERN_HD R rough_quotient(R a, R b) {
    if constexpr (sizeof(R) == sizeof(float))
        return float_math::rough_quotient(a, b);
    else
        return a / b;
}
// The same of a root.
template <typename R>
CUKERN_HD R rough_root(R a) {
    if constexpr (sizeof(R) == sizeof(float))
        return float_math::rough_root(a);
    else
        return std::sqrt(a);
}

// atan2, likewise, to 6 units.
CUKERN_HD double angle(double y, double x) { return std::atan2(y, x); }
CUKERN_HD float angle(float y, float x) {
#ifdef __CUDA_ARCH__
    return float_math::rough_angle(y, x);
#else
    return angle_by_series(y, x);
#endif
}

}  // namespace cukern::complex_math
