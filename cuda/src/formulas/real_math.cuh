// Functions of real floats that the C++ library does not have, or not as NumPy defines them.
#pragma once

#include <cmath>
#include <cstdint>

#include "formulas/convert.cuh"
#include "formulas/float_math.cuh"

namespace cukern {

// A quotient of floats cut to a whole number, and what is left, both exact.
template <typename T>
struct WholeQuotient {
    T whole;
    T rest;
};

// Only where a / b is so small that the whole number next to it is exact, and so is what NumPy makes of it.
template <typename T>
inline constexpr T kMostWhole = sizeof(T) == 8 ? T{1LL << 50} : T{1 << 21};

// Not where the quotient is larger or no number. The quotient may have been rounded up to a whole number, in which
// case what is left has the other sign.
template <typename T>
CUKERN_HD bool divide_whole(T a, T b, WholeQuotient<T> *result) {
    const T quotient = a / b;
    if (!(std::abs(quotient) < kMostWhole<T>)) return false;
    T whole = std::trunc(quotient);
    T rest = whole == 0 ? a : std::fma(-whole, b, a);
    if (rest != 0 && (rest < 0) != (a < 0)) {
        whole -= std::copysign(T{1}, quotient);
        rest = std::fma(-whole, b, a);
    }
    *result = {whole, rest};
    return true;
}

template <typename T>
CUKERN_LONG_FUNCTION T long_fmod(T a, T b) {
    return std::fmod(a, b);
}

// NumPy's divmod: the remainder of fmod moved to the divisor's sign, and the quotient that belongs to it.
template <typename T>
CUKERN_HD T floor_remainder_of(T a, T b) {
    WholeQuotient<T> parts;
    T rest = divide_whole(a, b, &parts) ? parts.rest : long_fmod(a, b);
    if (b == 0) return rest;
    if (rest == 0) return std::copysign(T{0}, b);
    if ((b < 0) != (rest < 0)) rest += b;
    return rest;
}

template <typename T>
CUKERN_HD T floor_quotient_of(T a, T b) {
    WholeQuotient<T> parts;
    if (divide_whole(a, b, &parts)) {
        if (parts.rest != 0 && (b < 0) != (parts.rest < 0)) parts.whole -= 1;
        return parts.whole == 0 ? std::copysign(T{0}, a / b) : parts.whole;
    }
    if (b == 0) return a / b;
    const T rest = long_fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    const T whole = std::floor(quotient);
    return quotient - whole > T{0.5} ? whole + 1 : whole;
}

template <typename T>
CUKERN_HD T log_of_sum(T a, T b) {
    if (a == b) return a + T{0.693147180559945309417};
    const T difference = a - b;
    // One path for both signs: the threads of a warp would take two one after the other.
    return (difference > 0 ? a : b) + std::log1p(std::exp(-std::abs(difference)));
}

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

#define CUKERN_REAL_FUNCTION(id, of_double)                              \
    template <typename... Ts>                                            \
    CUKERN_HD auto id(Ts... x) {                                         \
        using T = std::common_type_t<Ts...>;                             \
        if constexpr (has_own<T>)                                        \
            return float_math::id(x...);                                 \
        else                                                             \
            return static_cast<T>(of_double(static_cast<double>(x)...)); \
    }
CUKERN_REAL_FUNCTION(tan, std::tan)
CUKERN_REAL_FUNCTION(sinh, std::sinh)
CUKERN_REAL_FUNCTION(asinh, std::asinh)
CUKERN_REAL_FUNCTION(acosh, std::acosh)
CUKERN_REAL_FUNCTION(atanh, std::atanh)
CUKERN_REAL_FUNCTION(hypot, std::hypot)
CUKERN_REAL_FUNCTION(atan2, std::atan2)
CUKERN_REAL_FUNCTION(pow, std::pow)
CUKERN_REAL_FUNCTION(log_of_sum, cukern::log_of_sum)
#undef CUKERN_REAL_FUNCTION

}  // namespace real_math

// The same for results that are rounded to 16 bits: on a GPU CUDA's own, which are up to 4 units in the last place
// of a float32 off, and a fraction of the work.
namespace coarse_math {

#ifdef __CUDA_ARCH__
#define CUKERN_COARSE_FUNCTION(id) \
    template <typename... Ts>      \
    CUKERN_HD float id(Ts... x) {  \
        return std::id(x...);      \
    }
#else
#define CUKERN_COARSE_FUNCTION(id)  \
    template <typename... Ts>       \
    CUKERN_HD float id(Ts... x) {   \
        return real_math::id(x...); \
    }
#endif
CUKERN_COARSE_FUNCTION(tan)
CUKERN_COARSE_FUNCTION(sinh)
CUKERN_COARSE_FUNCTION(asinh)
CUKERN_COARSE_FUNCTION(acosh)
CUKERN_COARSE_FUNCTION(atanh)
CUKERN_COARSE_FUNCTION(hypot)
CUKERN_COARSE_FUNCTION(atan2)
CUKERN_COARSE_FUNCTION(pow)
#undef CUKERN_COARSE_FUNCTION

}  // namespace coarse_math

// Powers that few operations give within 2 units in the last place come to those, wherever they are met.
template <typename T, typename Power>
CUKERN_HD T real_power(T a, T b, Power power) {
    if (b == 2) return a * a;
    if (b == 3) return a * a * a;
    if (b == -1) return 1 / a;
    if (b == -2) return (1 / a) * (1 / a);
    if (a > 0 && b == T{0.5}) return std::sqrt(a);
    if (a > 0 && b == T{-0.5}) return 1 / std::sqrt(a);
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
