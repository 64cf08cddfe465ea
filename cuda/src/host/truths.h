// Which elements are true: all but 0 and -0.0.
#pragma once

#include <cstdint>

#include "cukern/element_type.h"
#include "cukern/scalar_types.h"

namespace cukern::host {

// Which kinds of elements there are among n packed ones, as Reducer<Op::any, Bool> has them.
struct KindsOf {
    std::uint8_t (*function)(const char *from, std::int64_t n, std::uint64_t mask) noexcept;
    std::uint64_t mask;

    std::uint8_t operator()(const char *from, std::int64_t n) const noexcept { return function(from, n, mask); }
};
KindsOf kinds_of(ElementType type) noexcept;

// Whether each of n elements is true; the stride is in elements.
void load_truths(ElementType type, const char *from, std::int64_t stride, Bool *to, std::int64_t n) noexcept;

}  // namespace cukern::host
