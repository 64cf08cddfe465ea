// Sums of packed integers.
#pragma once

#include <cstdint>

#include "cukern/element_type.h"

namespace cukern::host {

// The sum of n of them modulo 2**64, of signed numbers in two's complement; null where elements
// are no integers.
using IntegerSum = std::uint64_t (*)(const char *from, std::int64_t n) noexcept;
IntegerSum integer_sum_of(ElementType type) noexcept;

}  // namespace cukern::host
