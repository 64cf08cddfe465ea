// Matrix products on the host's memory by way of the device, panel by panel.
#pragma once

#include <cstdint>

#include "cukern/operations.h"

namespace cukern {

// Whether the call has so much to bring over the link that panels pay, or more than the device holds.
bool is_in_panels(const MatmulCall &call, int device) noexcept;

// The largest k with which panels that are worth it fit on the device; 0: none. Longer sums go by
// matmul_in_ranges.
Status longest_sum(const MatmulCall &call, int device, std::int64_t *longest) noexcept;

// Returns when `out` holds the product. After a failure it may be written in part.
Status matmul_in_panels(const MatmulCall &call, int device) noexcept;

}  // namespace cukern
