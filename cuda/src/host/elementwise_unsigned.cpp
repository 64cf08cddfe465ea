// Elementwise operations on the CPU that compute in unsigned integers and bool.
#include "host/elementwise.h"

namespace cukern::host {

template RangeFunction range_function<std::uint8_t>(Op) noexcept;
template RangeFunction range_function<std::uint16_t>(Op) noexcept;
template RangeFunction range_function<std::uint32_t>(Op) noexcept;
template RangeFunction range_function<std::uint64_t>(Op) noexcept;
template RangeFunction range_function<Bool>(Op) noexcept;

}  // namespace cukern::host
