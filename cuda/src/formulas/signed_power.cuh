// a**b of any a and b, from that of abs(a) where a and b are finite and a is not 0.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "formulas/arithmetic.cuh"

namespace cukern {

template <typename T>
inline constexpr T kInfinite = std::numeric_limits<T>::infinity();

template <typename T>
CUKERN_HD T signed_power(T a, T b, T power) {
    constexpr T kInfinity = kInfinite<T>;
    constexpr T kAllWhole = static_cast<T>(sizeof(T) == 8 ? 1LL << 52 : 1LL << 23);
    const T size = std::fabs(b);
    if (a > 0 && a < kInfinity && size < kInfinity) return power;
    if (b == 0) return 1;
    if (a != a || b != b) return a == 1 ? 1 : a + b;
    const T magnitude = std::fabs(a);
    if (size == kInfinity) return magnitude == 1 ? 1 : (magnitude > 1) == (b > 0) ? kInfinity : 0;
    const bool is_whole = size >= kAllWhole || (size + kAllWhole) - kAllWhole == size;
    const bool is_odd = is_whole && size < 2 * kAllWhole && (static_cast<std::uint64_t>(size) & 1U) != 0;
    if (magnitude == 0 || magnitude == kInfinity)
        power = (magnitude == 0) == (b < 0) ? kInfinity : 0;
    else if (!is_whole)
        return kInfinity - kInfinity;
    return is_odd && std::signbit(a) ? -power : power;
}

}  // namespace cukern
