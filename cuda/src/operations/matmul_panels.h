// Matrix products on the host's memory by way of the device, panel by panel.
#pragma once

#include <cstdint>

#include "cukern/operations.h"

namespace cukern {

// Whether the call has so much to bring over the link that panels pay, or more than the device holds.
bool is_in_panels(const MatmulCall &call, int device) noexcept;

// How long the sums may be that go by panels; 0: the device has too little memory. Longer ones go by
// matmul_in_ranges.
Status longest_sum(const MatmulCall &call, int device, std::int64_t *longest) noexcept;

// Returns when `out` holds the product. After a failure `*untouched` tells whether nothing of it is written.
Status matmul_in_panels(const MatmulCall &call, int device, bool *untouched) noexcept;

}  // namespace cukern
