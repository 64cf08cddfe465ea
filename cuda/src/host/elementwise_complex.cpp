// Elementwise operations on the CPU that compute in complex numbers.
#include "host/elementwise.h"

namespace cukern::host {

template RangeFunction range_function<Complex64>(Op) noexcept;
template RangeFunction range_function<Complex128>(Op) noexcept;

}  // namespace cukern::host
