// What functions of complex64 take on the processor instead of the C library's functions of float32: float64 holds
// their arguments and squares exactly, and is no slower for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "formulas/convert.cuh"

namespace cukern::complex_math {

// log(sum) / 2, where sum is 1 + beyond_1. Of small numbers std::log1p takes a third of the time that it takes of
// others, for which std::log is accurate enough.
inline float half_of_log(double sum, double beyond_1) {
    return static_cast<float>((std::abs(beyond_1) < 0x1p-4 ? std::log1p(beyond_1) : std::log(sum)) / 2);
}

// log(abs(x + i y)), whatever the size of both: their squares, which are exact, and what rounding takes from the
// sum (D. E. Knuth, "The Art of Computer Programming", volume 2, 4.2.2).
inline float log_modulus_by_squares(double x, double y) {
    const double a = x * x;
    const double b = y * y;
    const double sum = a + b;
    const double added = sum - a;
    const double dropped = (a - (sum - added)) + (b - added);
    return half_of_log(sum, (sum - 1) + dropped);
}

// log(abs(1 + x + i y)).
inline float log_modulus_of_1_and(double x, double y) {
    return half_of_log((1 + x) * (1 + x) + y * y, x * (2 + x) + y * y);
}

// atan2(y, x): of the quotient of both, turned by an eighth where that makes it smaller, by the series of atan, of
// which what is left out is below 2**-32. Without branches but for zeros, infinities and NaN: no processor could
// foresee them.
inline float angle_by_series(float y, float x) {
    constexpr double kTurned = 0.41421356237309503;     // tan(pi / 8)
    constexpr double kEighth = 0.78539816339744830962;  // pi / 4
    static constexpr double kBase[] = {0,           kEighth,     2 * kEighth, kEighth,
                                       4 * kEighth, 3 * kEighth, 2 * kEighth, 3 * kEighth};
    static constexpr double kSign[] = {1, 1, -1, -1, -1, -1, 1, 1};
    constexpr std::uint32_t kSignBit = 0x80000000;
    constexpr std::uint32_t kInfinite = 0x7F800000;
    const std::uint32_t a = bit_cast<std::uint32_t>(y) & ~kSignBit;
    const std::uint32_t b = bit_cast<std::uint32_t>(x) & ~kSignBit;
    const std::uint32_t most = std::max(a, b);  // their bits are in the order of floats
    const std::uint32_t least = std::min(a, b);
    if (least == 0 || most >= kInfinite) return std::atan2(y, x);
    const double larger = bit_cast<float>(most);
    const double smaller = bit_cast<float>(least);
    const int is_turned = smaller > kTurned * larger ? 1 : 0;
    const double turned = is_turned;
    const double t = (smaller - larger * turned) / (larger + smaller * turned);
    const double z = t * t;
    const double z2 = z * z;
    const double z4 = z2 * z2;
    const double low = (-1 / 3.0 + z * (1 / 5.0)) + z2 * (-1 / 7.0 + z * (1 / 9.0));
    const double middle = (-1 / 11.0 + z * (1 / 13.0)) + z2 * (-1 / 15.0 + z * (1 / 17.0));
    const double high = -1 / 19.0 + z * (1 / 21.0);
    const double angle = t + t * z * (low + z4 * (middle + z4 * high));
    const int octant = is_turned + (a > b ? 2 : 0) + ((bit_cast<std::uint32_t>(x) & kSignBit) != 0 ? 4 : 0);
    return std::copysign(static_cast<float>(kBase[octant] + kSign[octant] * angle), y);
}

}  // namespace cukern::complex_math
