// Functions of real floats that the C++ library does not have, or not as NumPy defines them.
#pragma once

#include <cmath>
#include <cstdint>

#include "formulas/convert.cuh"
#include "formulas/double_power.cuh"
#include "formulas/float_math.cuh"

namespace cukern {

// A quotient of floats, the whole number next to it, or next but one, and what is left, which is exact.
template <typename T>
struct WholeQuotient {
    T quotient;
    T whole;
    T rest;
};

// Only where a / b is so small that the whole number next to it is exact, and so is what NumPy makes of it.
template <typename T>
inline constexpr T kMostWhole = sizeof(T) == 8 ? T{1LL << 50} : T{1 << 21};

// To some units in the last place.
template <typename T>
CUKERN_HD T rough_ratio(T a, T b) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(T) == sizeof(float)) return a * float_math::rough_inverse(b);
#endif
    return a / b;
}

// Whether it did: not where the quotient is larger or no number, or b beyond what rough_inverse takes.
template <typename T>
CUKERN_HD bool divide_whole(T a, T b, WholeQuotient<T> *result) {
    constexpr T kShift = sizeof(T) == 8 ? T{3LL << 51} : T{3 << 22};  // sums with it are rounded to whole numbers
    const T quotient = rough_ratio(a, b);
    const bool is_small = std::abs(a) < std::abs(b);  // a - b may not be exact then
    const T whole = is_small ? 0 : (quotient + kShift) - kShift;
    const T rest = is_small ? a : std::fma(-whole, b, a);
    *result = {quotient, whole, rest};
    return std::abs(quotient) < kMostWhole<T> && std::abs(rest) < std::abs(b);
}

template <typename T>
CUKERN_LONG_FUNCTION T long_fmod(T a, T b) {
    return std::fmod(a, b);
}

template <typename T>
CUKERN_HD T fmod(T a, T b) {
#ifdef __CUDA_ARCH__  // where std::fmod takes as long for what is no number
    constexpr T kInfinity = float_math::kInfinity;
    if (b == 0 || b != b || !(std::abs(a) < kInfinity)) return kInfinity - kInfinity;
#endif
    return long_fmod(a, b);
}

template <typename T>
CUKERN_HD bool has_other_sign(T rest, T b) {
    return rest != 0 && (rest < 0) != (b < 0);
}

// NumPy's divmod: the remainder of fmod moved to the divisor's sign, and the quotient that belongs to it.
template <typename T>
CUKERN_HD T floor_remainder_of(T a, T b) {
    WholeQuotient<T> parts;
    const T rest = divide_whole(a, b, &parts) ? parts.rest : fmod(a, b);
    return has_other_sign(rest, b) ? rest + b : rest == 0 ? std::copysign(T{0}, b) : rest;
}

template <typename T>
CUKERN_HD T floor_quotient_of(T a, T b) {
    WholeQuotient<T> parts;
    if (divide_whole(a, b, &parts)) {
        const T whole = has_other_sign(parts.rest, b) ? parts.whole - 1 : parts.whole;
        return whole == 0 ? std::copysign(T{0}, parts.quotient) : whole;
    }
    if (b == 0) return a / b;
    const T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    if (has_other_sign(rest, b)) quotient -= 1;
    T whole = std::floor(quotient);
    if (quotient - whole > T{0.5}) whole += 1;
    return whole == 0 ? std::copysign(T{0}, a / b) : whole;
}

template <typename T>
CUKERN_HD T log_of_sum(T a, T b) {
    if (a == b) return a + T{0.693147180559945309417};
    const T difference = a - b;
    return (difference > 0 ? a : b) + std::log1p(std::exp(-std::abs(difference)));
}

// Functions of float64: on a GPU those of double_math.cuh where CUDA's own are slow.
namespace of_double {
#ifdef __CUDA_ARCH__
#define CUKERN_DOUBLE_FUNCTION(id, standard) using double_math::id;
#else
#define CUKERN_DOUBLE_FUNCTION(id, standard) using standard;
#endif
CUKERN_DOUBLE_FUNCTION(asin, std::asin)
CUKERN_DOUBLE_FUNCTION(acos, std::acos)
CUKERN_DOUBLE_FUNCTION(atan2, std::atan2)
CUKERN_DOUBLE_FUNCTION(sinh, std::sinh)
CUKERN_DOUBLE_FUNCTION(log1p, std::log1p)
CUKERN_DOUBLE_FUNCTION(asinh, std::asinh)
CUKERN_DOUBLE_FUNCTION(acosh, std::acosh)
CUKERN_DOUBLE_FUNCTION(atanh, std::atanh)
CUKERN_DOUBLE_FUNCTION(pow, std::pow)
CUKERN_DOUBLE_FUNCTION(log_of_sum, cukern::log_of_sum)
#undef CUKERN_DOUBLE_FUNCTION
}  // namespace of_double

// Functions of which CUDA's own for float32 are further off than 2 units in the last place: on a GPU those of
// float_math.cuh, on the host those of double, rounded.
namespace real_math {

#ifdef __CUDA_ARCH__
template <typename T>
inline constexpr bool has_own = std::is_same_v<T, float>;
#else
template <typename T>
inline constexpr bool has_own = false;
#endif

#define CUKERN_REAL_FUNCTION(id, in_double)                              \
    template <typename... Ts>                                            \
    CUKERN_HD auto id(Ts... x) {                                         \
        using T = std::common_type_t<Ts...>;                             \
        if constexpr (has_own<T>)                                        \
            return float_math::id(x...);                                 \
        else                                                             \
            return static_cast<T>(in_double(static_cast<double>(x)...)); \
    }
CUKERN_REAL_FUNCTION(tan, std::tan)
CUKERN_REAL_FUNCTION(sinh, of_double::sinh)
CUKERN_REAL_FUNCTION(asinh, of_double::asinh)
CUKERN_REAL_FUNCTION(acosh, of_double::acosh)
CUKERN_REAL_FUNCTION(atanh, of_double::atanh)
CUKERN_REAL_FUNCTION(hypot, std::hypot)
CUKERN_REAL_FUNCTION(atan2, of_double::atan2)
CUKERN_REAL_FUNCTION(pow, of_double::pow)
CUKERN_REAL_FUNCTION(log_of_sum, of_double::log_of_sum)
#undef CUKERN_REAL_FUNCTION

// Of float32 CUDA's own.
#define CUKERN_FUNCTION_BUT_OF_DOUBLE(id)          \
    template <typename T>                          \
    CUKERN_HD T id(T x) {                          \
        if constexpr (sizeof(T) == sizeof(double)) \
            return of_double::id(x);               \
        else                                       \
            return std::id(x);                     \
    }
CUKERN_FUNCTION_BUT_OF_DOUBLE(asin)
CUKERN_FUNCTION_BUT_OF_DOUBLE(acos)
CUKERN_FUNCTION_BUT_OF_DOUBLE(log1p)
#undef CUKERN_FUNCTION_BUT_OF_DOUBLE

}  // namespace real_math

// The same for results that are rounded to 16 bits: on a GPU CUDA's own, which are up to 4 units in the last place
// of a float32 off, or others that are less work.
namespace coarse_math {

#ifdef __CUDA_ARCH__
#define CUKERN_COARSE_FUNCTION(id) using std::id;
// A power of two, by a logarithm whose error stays small beside 16 bits for any finite result.
template <typename T, typename U>
CUKERN_HD float pow(T a, U b) {
    return signed_power<float>(a, b, ::exp2f(b * ::log2f(std::fabs(a))));
}
CUKERN_HD float atan2(float y, float x) { return float_math::rough_angle(y, x); }
CUKERN_HD float log_of_sum(float a, float b) {
    const float difference = a == b ? 0 : std::fabs(a - b);
    const float sum = 1 + float_math::rough_exp2(-difference * 1.44269504F);
    return std::fma(0.693147181F, float_math::rough_log2(sum), a > b ? a : b);
}
#else
#define CUKERN_COARSE_FUNCTION(id) using real_math::id;
using real_math::atan2;
using real_math::log_of_sum;
using real_math::pow;
#endif
CUKERN_COARSE_FUNCTION(tan)
CUKERN_COARSE_FUNCTION(sinh)
CUKERN_COARSE_FUNCTION(asinh)
CUKERN_COARSE_FUNCTION(acosh)
CUKERN_COARSE_FUNCTION(atanh)
#undef CUKERN_COARSE_FUNCTION
}  // namespace coarse_math

// Whether b's first 20 digits are those of 0, a power of two or one and a half times one: in one comparison, which
// hardly any other exponent passes.
CUKERN_HD bool may_have_two_digits(float b) { return (bit_cast<std::uint32_t>(b) & 0x003FFFFFU) == 0; }
CUKERN_HD bool may_have_two_digits(double b) {
    return (static_cast<std::uint32_t>(bit_cast<std::uint64_t>(b) >> 32) & 0x0007FFFFU) == 0;
}

// Powers that few operations give within 2 units in the last place come to those, wherever they are met.
template <typename T, typename Power>
CUKERN_HD T real_power(T a, T b, Power power) {
    if (may_have_two_digits(b) && std::abs(b) <= 3) {
        if (b == 2) return a * a;
        if (b == 3) return a * a * a;
        if (b == -1) return 1 / a;
        if (b == -2) return (1 / a) * (1 / a);
        if (a > 0 && b == T{0.5}) return std::sqrt(a);
        if (a > 0 && b == T{-0.5}) return 1 / std::sqrt(a);
    }
    return power(a, b);
}

// The neighbour on the way to `to`, of a 16-bit float by its bits: sign and magnitude.
template <typename T>
CUKERN_HD T stored_neighbour(T from, T to) {
    const float x = to_float(from);
    const float y = to_float(to);
    if (x != x) return from;
    if (y != y || x == y) return to;
    if (x == 0) return {static_cast<std::uint16_t>((to.bits & 0x8000U) | 1U)};
    const bool grows = (x < y) == (x > 0);  // away from zero
    return {static_cast<std::uint16_t>(grows ? from.bits + 1 : from.bits - 1)};
}

}  // namespace cukern
