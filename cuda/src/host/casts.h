// Conversions of many elements, whose types are looked at once for all of them.
#pragma once

#include <cstdint>

#include "cukern/element_type.h"

namespace cukern::host {

// `n` elements from one place to another, with strides in elements.
using Cast = void (*)(const void *from, std::int64_t from_stride, void *to, std::int64_t to_stride,
                      std::int64_t n) noexcept;
Cast cast_of(ElementType from, ElementType to) noexcept;

}  // namespace cukern::host
