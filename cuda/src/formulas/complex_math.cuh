// Functions of complex numbers. Those of complex64 are computed in float32, whose errors stay small beside the
// modulus: at most 2.8 epsilon of it on the host, where 8 are allowed.
//
// The values at infinities, NaN and signed zeros are those of C99's Annex G, which NumPy gives on Linux. Methods:
// W. Kahan, "Branch Cuts for Complex Elementary Functions" (1987), with log1p near 1 for logarithms.
//
// `ordinary_...` is a function's short way, which most numbers take: see in_place.cuh.
#pragma once

#include "formulas/complex_log.cuh"

namespace cukern::complex_math {

// Sine and cosine in one: on a GPU they share what takes longest.
template <typename R>
struct SineCosine {
    R sine;
    R cosine;
};
#ifdef __CUDA_ARCH__
// Of any other x, whose reduction by many digits of 2 / pi is long code.
__device__ __noinline__ inline SineCosine<float> far_sine_and_cosine(float x) {
    SineCosine<float> both;
    ::sincosf(x, &both.sine, &both.cosine);
    return both;
}
#endif
// Of an x below float_math::kFewTurns.
template <typename R>
CUKERN_HD SineCosine<R> near_sine_and_cosine(R x) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(R) == sizeof(float)) {
        const auto [sine, cosine] = float_math::near_sine_and_cosine(x);
        return {sine, cosine};
    } else {
        SineCosine<R> both;
        ::sincos(x, &both.sine, &both.cosine);
        return both;
    }
#else
    return {std::sin(x), std::cos(x)};
#endif
}
template <typename R>
CUKERN_HD SineCosine<R> sine_and_cosine(R x) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(R) == sizeof(float))
        if (!(std::abs(x) < float_math::kFewTurns)) return far_sine_and_cosine(x);
#endif
    return near_sine_and_cosine(x);
}

// exp(x) - 1 and exp(x) of an x that is_ordinary allows, of float32 by one exponential.
template <typename R>
struct Exponential {
    R less_1;
    R value;
};
template <typename R>
CUKERN_HD Exponential<R> exponential(R x) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(R) == sizeof(float)) {
        const float_math::Power power = float_math::exp_in_parts({x, 0});
        const float scale = power.scale(0);
        return {std::fma(scale, power.beyond_1, scale - 1), std::fma(scale, power.beyond_1, scale)};
    }
#endif
    return {std::expm1(x), std::exp(x)};
}

// Both hyperbolic functions, likewise. With e = exp(|x|) - 1 the sine is (e + e / (e + 1)) / 2, the cosine
// (e + 1 + 1 / (e + 1)) / 2.
template <typename R>
CUKERN_HD SineCosine<R> hyperbolic_sine_and_cosine(R x) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(R) == sizeof(float)) {
        const float e = exponential(std::abs(x)).less_1;
        const float inverse = float_math::rough_inverse(e + 1);
        const float rest = e < 1 ? rounded_product(e, inverse) : 1 - inverse;
        return {std::copysign((e + rest) / 2, x), (e + 1 + inverse) / 2};
    }
#endif
    return {std::sinh(x), std::cosh(x)};
}

// The same of an x up to kLargeTanh, whose square is finite.
template <typename R>
CUKERN_HD SineCosine<R> hyperbolic_by_root(R x) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(R) == sizeof(float)) return hyperbolic_sine_and_cosine(x);
#endif
    const R sine = std::sinh(x);
    return {sine, rough_root(fused(sine, sine, R{1}))};
}

// exp of more overflows; and exp of it.
template <typename R>
inline constexpr R kLargeExp = static_cast<R>(sizeof(R) == sizeof(float) ? 88 : 709);
template <typename R>
inline constexpr R kLargestExp =
    static_cast<R>(sizeof(R) == sizeof(float) ? 1.6516362549940018e38 : 8.2184074615549722e307);

// value * exp(x) * factor for an x whose exponential overflows: the product may be finite.
template <typename R>
CUKERN_HD R times_exp(R value, R x, R factor) {
    R product = value * (kLargestExp<R> * factor);
    R rest = x - kLargeExp<R>;
    if (rest > kLargeExp<R>) {
        product *= kLargestExp<R>;
        rest -= kLargeExp<R>;
    }
    return product * std::exp(rest);
}

// Whether exponentials of z are finite, and few digits reduce its angle. Such numbers are computed by the same
// formula in place and by a call, since both have to give the same bits.
template <typename C>
CUKERN_HD bool is_ordinary(C z, Part<C> most = kLargeExp<Part<C>>) {
    return std::abs(z.real) <= most && std::abs(z.imag) < float_math::kFewTurns;
}

template <typename C>
CUKERN_HD C exp_by(SineCosine<Part<C>> of_y, C z) {
    const Part<C> factor = std::exp(z.real);
    return {factor * of_y.cosine, factor * of_y.sine};
}
template <typename C>
CUKERN_HD C ordinary_exp(C z) {
    return exp_by(near_sine_and_cosine(z.imag), z);
}
template <typename C>
CUKERN_LONG_FUNCTION C exp(C z) {
    using R = Part<C>;
    if (z.imag == 0) return {std::exp(z.real), z.imag};
    if (!std::isfinite(z.imag)) {
        if (z.real == -part<C>(kInfinity)) return {0, std::copysign(R{0}, z.imag)};
        return {part<C>(z.real == part<C>(kInfinity) ? kInfinity : nan_value()), part<C>(nan_value())};
    }
    const SineCosine<R> of_y = sine_and_cosine(z.imag);
    if (z.real > kLargeExp<R>) return {times_exp<R>(of_y.cosine, z.real, 1), times_exp<R>(of_y.sine, z.real, 1)};
    return exp_by(of_y, z);
}

// By half the angle: 1 - cos(y) is 2 sin(y / 2)**2.
template <typename C>
CUKERN_HD C expm1_by(SineCosine<Part<C>> half, C z) {
    const auto [less_1, value] = exponential(z.real);
    const Part<C> versine = 2 * half.sine * half.sine;
    return {fused(less_1, 1 - versine, -versine), value * (2 * half.sine * half.cosine)};
}
// An exponential that is no normal number would be lost, and of a real part of 0 the sign.
template <typename R>
inline constexpr R kLeastExp = 1 - kLargeExp<R>;
template <typename C>
CUKERN_HD bool is_ordinary_for_expm1(C z) {
    return is_ordinary(z) && z.real >= kLeastExp<Part<C>> && z.real != 0;
}
template <typename C>
CUKERN_HD C ordinary_expm1(C z) {
    return expm1_by(near_sine_and_cosine(z.imag / 2), z);
}
template <typename C>
CUKERN_LONG_FUNCTION C expm1(C z) {
    using R = Part<C>;
    if (z.imag == 0 && !is_ordinary_for_expm1(z)) return {std::expm1(z.real), z.imag};
    if (!is_finite(z) || z.real > kLargeExp<R>) {
        const C e = exp(z);
        return {z.real == -part<C>(kInfinity) ? R{-1} : e.real, e.imag};
    }
    if (z.real < kLeastExp<R>) return {-1, std::exp(z.real) * std::sin(z.imag)};
    return expm1_by(sine_and_cosine(z.imag / 2), z);
}

// Scaled by an even power of two where a square would overflow or vanish.
template <typename C>
CUKERN_LONG_FUNCTION C sqrt(C z) {
    using R = Part<C>;
    constexpr bool kIsFloat = sizeof(R) == sizeof(float);
    constexpr int kFar = kIsFloat ? 60 : 500;
    constexpr int kDown = kIsFloat ? 68 : 600;
    constexpr int kUp = kIsFloat ? 112 : 700;
    const R nan = part<C>(nan_value());
    constexpr R kInf = part<C>(kInfinity);
    R scale = 1;
    R back = 1;
    const R size = largest(z);
    if (!(size < power_of_two<R>(kFar))) {
        if (std::isinf(z.imag)) return {kInf, z.imag};
        if (z.real != z.real || (z.imag != z.imag && std::isfinite(z.real))) return {nan, nan};
        if (z.real == kInf) return {kInf, z.imag != z.imag ? z.imag : std::copysign(R{0}, z.imag)};
        if (z.real == -kInf) return {z.imag != z.imag ? z.imag : 0, std::copysign(kInf, z.imag)};
        scale = power_of_two<R>(-kDown);
        back = power_of_two<R>(kDown / 2);
    } else if (size < power_of_two<R>(-kFar)) {
        if (z.real == 0 && z.imag == 0) return {0, z.imag};
        scale = power_of_two<R>(kUp);
        back = power_of_two<R>(-kUp / 2);
    }
    const R x = z.real * scale;
    const R y = z.imag * scale;
    const R root = rough_root((std::abs(x) + rough_root(x * x + y * y)) / 2);
    const R large = root * back;
    const R other = rough_quotient(y, 2 * root) * back;
    return x >= 0 ? C{large, other} : C{std::abs(other), std::copysign(large, z.imag)};
}

// The halves of of_y's parts, times exp of what overflows, with the sign of the one that is a sine.
template <typename C>
CUKERN_HD C halves_of_large(SineCosine<Part<C>> of_y, Part<C> x, Part<C> real_half, Part<C> imag_half) {
    return {times_exp(of_y.cosine, std::abs(x), real_half), times_exp(of_y.sine, std::abs(x), imag_half)};
}

template <typename C>
CUKERN_HD C cosh_by(SineCosine<Part<C>> of_y, C z) {
    const auto [sine, cosine] = hyperbolic_sine_and_cosine(z.real);
    return {cosine * of_y.cosine, sine * of_y.sine};
}
template <typename C>
CUKERN_HD C ordinary_cosh(C z) {
    return cosh_by(near_sine_and_cosine(z.imag), z);
}
template <typename C>
CUKERN_LONG_FUNCTION C cosh(C z) {
    using R = Part<C>;
    const R x = z.real;
    const R y = z.imag;
    if (y == 0 && !is_ordinary(z)) return {std::cosh(x), x != x ? y : y * std::copysign(R{1}, x)};
    if (!std::isfinite(y)) {
        if (x == 0) return {part<C>(nan_value()), 0};
        return {part<C>(std::isinf(x) ? kInfinity : nan_value()), part<C>(nan_value())};
    }
    const SineCosine<R> of_y = sine_and_cosine(y);
    constexpr R kHalf = R(0.5);
    if (std::abs(x) > kLargeExp<R>) return halves_of_large<C>(of_y, x, kHalf, std::copysign(kHalf, x));
    return cosh_by(of_y, z);
}

template <typename C>
CUKERN_HD C sinh_by(SineCosine<Part<C>> of_y, C z) {
    const auto [sine, cosine] = hyperbolic_sine_and_cosine(z.real);
    return {sine * of_y.cosine, cosine * of_y.sine};
}
template <typename C>
CUKERN_HD C ordinary_sinh(C z) {
    return sinh_by(near_sine_and_cosine(z.imag), z);
}
template <typename C>
CUKERN_LONG_FUNCTION C sinh(C z) {
    using R = Part<C>;
    const R x = z.real;
    const R y = z.imag;
    if (y == 0 && !is_ordinary(z)) return {std::sinh(x), y};
    if (!std::isfinite(y)) {
        if (x == 0) return {x, part<C>(nan_value())};
        return {part<C>(std::isinf(x) ? kInfinity : nan_value()), part<C>(nan_value())};
    }
    const SineCosine<R> of_y = sine_and_cosine(y);
    constexpr R kHalf = R(0.5);
    if (std::abs(x) > kLargeExp<R>) return halves_of_large<C>(of_y, x, std::copysign(kHalf, x), kHalf);
    return sinh_by(of_y, z);
}

template <typename R>
inline constexpr R kLargeTanh = sizeof(R) == sizeof(float) ? 10 : 22;  // tanh of more is 1

// Of an x up to kLargeTanh, from the sine and the cosine of y.
template <typename R>
CUKERN_HD SineCosine<R> tanh_by(SineCosine<R> of_y, R x) {
    const auto [s, c] = hyperbolic_by_root(x);
    const R one = rough_quotient(R{1}, fused(s, s, of_y.cosine * of_y.cosine));
    return {s * c * one, of_y.sine * of_y.cosine * one};
}
template <typename C>
CUKERN_HD bool is_ordinary_for_tanh(C z) {
    return is_ordinary(z, kLargeTanh<Part<C>>);
}
template <typename C>
CUKERN_HD C ordinary_tanh(C z) {
    const auto [real, imag] = tanh_by(near_sine_and_cosine(z.imag), z.real);
    return {real, imag};
}
template <typename C>
CUKERN_LONG_FUNCTION C tanh(C z) {
    using R = Part<C>;
    const R nan = part<C>(nan_value());
    const R x = z.real;
    const R y = z.imag;
    if (std::isinf(x))
        return {std::copysign(R{1}, x),
                std::copysign(R{0}, std::isfinite(y) && std::abs(y) > 1 ? std::sin(y) * std::cos(y) : y)};
    if (y == 0 && !is_ordinary_for_tanh(z)) return {std::tanh(x), y};
    if (x != x || !std::isfinite(y)) return {x == 0 ? x : nan, nan};
    const SineCosine<R> of_y = sine_and_cosine(y);
    if (std::abs(x) > kLargeTanh<R>)
        return {std::copysign(R{1}, x), 4 * of_y.sine * of_y.cosine * std::exp(-2 * std::abs(x))};
    const auto [real, imag] = tanh_by(of_y, x);
    return {real, imag};
}

template <typename C>
CUKERN_HD C cos(C z) {
    return cosh(plus_i(z));
}
template <typename C>
CUKERN_HD C sin(C z) {
    const C found = minus_i(sinh(plus_i(z)));
    const bool has_no_direction = std::isinf(z.imag) && !std::isfinite(z.real);
    return has_no_direction ? C{part<C>(nan_value()), part<C>(kInfinity)} : found;
}
template <typename C>
CUKERN_HD C tan(C z) {
    return minus_i(tanh(plus_i(z)));
}

// The real part of a * b, and the imaginary one of conj(a) * b, of square roots whose parts have such signs that
// the sums do not cancel.
template <typename C>
CUKERN_HD Part<C> real_product(C a, C b) {
    return a.real * b.real - a.imag * b.imag;
}
template <typename C>
CUKERN_HD Part<C> imag_product(C a, C b) {
    return a.real * b.imag - a.imag * b.real;
}

template <typename C>
CUKERN_LONG_FUNCTION C asinh(C z) {
    using R = Part<C>;
    const R nan = part<C>(nan_value());
    const R x = z.real;
    const R y = z.imag;
    if (!(largest(z) <= kLargest<R>) || x != x || y != y) {
        if (std::isinf(y))
            return {std::copysign(part<C>(kInfinity), x),
                    x != x ? x : std::copysign(part<C>(std::isinf(x) ? kPi / 4 : kPi / 2), y)};
        if (std::isinf(x)) return {x, y != y ? y : std::copysign(R{0}, y)};
        if (x != x) return {x, y == 0 ? y : nan};
        if (y != y) return {nan, nan};
        return {std::copysign(log_modulus(z) + part<C>(kLn2), x), angle(y, std::abs(x))};
    }
    const C a = sqrt(C{1 - y, x});  // of 1 + i z and 1 - i z
    const C b = sqrt(C{1 + y, -x});
    return {std::asinh(imag_product(b, a)), angle(y, real_product(a, b))};
}

template <typename C>
CUKERN_HD C asin(C z) {
    if (z.imag != z.imag && z.real == 0) return z;
    return minus_i(asinh(plus_i(z)));
}

template <typename C>
CUKERN_LONG_FUNCTION C acos(C z) {
    using R = Part<C>;
    const R x = z.real;
    const R y = z.imag;
    if (!is_finite(z)) {
        if (std::isinf(y))
            return {x != x ? x : part<C>(std::isinf(x) ? (x < 0 ? 3 * kPi / 4 : kPi / 4) : kPi / 2), -y};
        if (std::isinf(x))
            return {y != y ? y : part<C>(x < 0 ? kPi : 0), std::copysign(part<C>(kInfinity), y != y ? R{-1} : -y)};
        return {part<C>(x == 0 ? kPi / 2 : nan_value()), part<C>(nan_value())};
    }
    if (largest(z) > kLargest<R>)
        return {angle(std::abs(y), x), std::copysign(log_modulus(z) + part<C>(kLn2), -y)};
    const C a = sqrt(C{1 - x, -y});
    const C b = sqrt(C{1 + x, y});
    return {2 * angle(a.real, b.real), std::asinh(imag_product(b, a))};
}

template <typename C>
CUKERN_HD C acosh(C z) {
    const C w = acos(z);
    return {std::abs(w.imag), std::copysign(w.real, z.imag)};
}

template <typename C>
CUKERN_LONG_FUNCTION C atanh(C z) {
    using R = Part<C>;
    constexpr R kHalfPi = static_cast<R>(kPi / 2);
    const R y = z.imag;
    const R x = std::abs(z.real);
    if (!is_finite(z)) {
        if (std::isinf(y)) return {std::copysign(R{0}, z.real), std::copysign(kHalfPi, y)};
        if (std::isinf(x)) return {std::copysign(R{0}, z.real), y != y ? y : std::copysign(kHalfPi, y)};
        return {z.real == 0 ? z.real : part<C>(nan_value()), part<C>(nan_value())};
    }
    if (largest(z) > kLargest<R>) {
        const R modulus = std::hypot(x / 2, y / 2);
        return {std::copysign(x / 4 / modulus / modulus, z.real), std::copysign(kHalfPi, y)};
    }
    if (x == 1 && std::abs(y) < 1 / kLargest<R>) {  // its square would vanish
        const R real = y == 0 ? part<C>(kInfinity) : (static_cast<R>(kLn2) - std::log(std::abs(y))) / 2;
        return {std::copysign(real, z.real), y == 0 ? y : std::copysign(kHalfPi / 2, y)};
    }
    const R real = std::log1p(rough_quotient(4 * x, (1 - x) * (1 - x) + y * y)) / 4;
    return {std::copysign(real, z.real), angle(2 * y, (1 - x) * (1 + x) - y * y) / 2};
}

template <typename C>
CUKERN_HD C atan(C z) {
    return minus_i(atanh(plus_i(z)));
}

}  // namespace cukern::complex_math
