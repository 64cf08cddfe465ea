// Whole numbers, rounded up.
#pragma once

#include <cstdint>

namespace cukern {

constexpr std::int64_t divided_up(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

// The exponent of the first power of two from n on.
constexpr int bits_from(std::int64_t n) noexcept {
    int bits = 0;
    while (bits < 62 && (std::int64_t{1} << bits) < n) ++bits;
    return bits;
}

}  // namespace cukern
