// Which elements are true: all but 0 and -0.0.
#pragma once

#include <cstdint>

#include "cukern/element_type.h"
#include "cukern/ops.h"
#include "cukern/scalar_types.h"

namespace cukern::host {

// Whether the kind of elements that decides any or all is among n packed ones: as Reducer<Op::any, Bool> has it,
// or 0.
struct DecidingKind {
    std::uint8_t (*function)(const char *from, std::int64_t n, std::uint64_t mask) noexcept;
    std::uint64_t mask;

    std::uint8_t operator()(const char *from, std::int64_t n) const noexcept { return function(from, n, mask); }
};
DecidingKind deciding_kind(ElementType type, Op asked) noexcept;

// Whether each of n elements is true; the stride is in elements.
void load_truths(ElementType type, const char *from, std::int64_t stride, Bool *to, std::int64_t n) noexcept;

}  // namespace cukern::host
