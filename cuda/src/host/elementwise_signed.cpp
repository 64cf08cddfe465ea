// Elementwise operations on the CPU that compute in signed integers.
#include "host/elementwise.h"

namespace cukern::host {

template RangeFunction range_function<std::int8_t>(Op) noexcept;
template RangeFunction range_function<std::int16_t>(Op) noexcept;
template RangeFunction range_function<std::int32_t>(Op) noexcept;
template RangeFunction range_function<std::int64_t>(Op) noexcept;

}  // namespace cukern::host
