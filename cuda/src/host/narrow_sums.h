// Sums of packed integers that are narrower than their sum.
#pragma once

#include <cstdint>

#include "cukern/element_type.h"

namespace cukern::host {

// The sum of n of them modulo 2**64, of signed numbers in two's complement; null where elements have 64 bits, or
// are no integers.
using NarrowSum = std::uint64_t (*)(const char *from, std::int64_t n) noexcept;
NarrowSum narrow_sum_of(ElementType type) noexcept;

}  // namespace cukern::host
