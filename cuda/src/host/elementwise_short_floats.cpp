// Elementwise operations on the CPU that compute in float16 and bfloat16.
#include "host/elementwise.h"

namespace cukern::host {

template RangeFunction range_function<Float16>(Op) noexcept;
template RangeFunction range_function<BFloat16>(Op) noexcept;

}  // namespace cukern::host
