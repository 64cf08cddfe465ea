// What operations cost on the processor, as measured once (benchmarks/placement_model.py): for how many threads
// they are worth it, and for where calls are placed.
#pragma once

#include <cstdint>

#include "cukern/ops.h"

namespace cukern {

constexpr double kCachedBytes = 8 << 20;  // of a call's operands, beyond which memory is the limit

// Nanoseconds that one thread takes for an element of an operation, with its operands in cache. What was not
// measured counts as typical.
double host_cost(Op op, ElementType compute) noexcept;

// Elements that are worth a thread: fewer take less time than waking it does. `bytes`: of all operands of so many
// elements, by which memory may be the limit.
std::int64_t host_grain(Op op, ElementType compute, double elements, double bytes) noexcept;
// The same of elements that take so many nanoseconds.
std::int64_t grain_of_cost(double nanoseconds) noexcept;

}  // namespace cukern
