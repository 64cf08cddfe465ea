// Elementwise operations on the CPU that compute in real floats of 32 and 64 bits.
#include "host/elementwise.h"

namespace cukern::host {

template RangeFunction range_function<float>(Op) noexcept;
template RangeFunction range_function<double>(Op) noexcept;

}  // namespace cukern::host
