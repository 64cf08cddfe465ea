// Functions of real floats that the C++ library does not have, or not as NumPy defines them.
#pragma once

#include <cmath>
#include <cstdint>

#include "formulas/convert.cuh"

namespace cukern {

// NumPy's divmod: the remainder of fmod moved to the divisor's sign, and the quotient that belongs to it.
template <typename T>
CUKERN_HD T floor_remainder_of(T a, T b) {
    T rest = std::fmod(a, b);
    if (b == 0) return rest;
    if (rest == 0) return std::copysign(T{0}, b);
    if ((b < 0) != (rest < 0)) rest += b;
    return rest;
}

template <typename T>
CUKERN_HD T floor_quotient_of(T a, T b) {
    if (b == 0) return a / b;
    const T rest = std::fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return std::copysign(T{0}, a / b);
    const T whole = std::floor(quotient);
    return quotient - whole > T{0.5} ? whole + 1 : whole;
}

template <typename T>
CUKERN_HD T log_of_sum(T a, T b) {
    if (a == b) return a + T{0.693147180559945309417};
    const T difference = a - b;
    if (difference > 0) return a + std::log1p(std::exp(-difference));
    if (difference <= 0) return b + std::log1p(std::exp(difference));
    return difference;  // NaN
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
