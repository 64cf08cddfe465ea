// Matrix products on the host's memory whose sums are too long for the device.
#pragma once

#include <cstdint>

#include "cukern/operations.h"

namespace cukern {

// Cuts k into ranges of at most `longest`. Returns when `out` holds the product, which is written at the end; it
// takes twice as much of the host's memory besides. Without that it returns CUKERN_OUT_OF_MEMORY.
Status matmul_in_ranges(const MatmulCall &call, int device, std::int64_t longest) noexcept;

}  // namespace cukern
