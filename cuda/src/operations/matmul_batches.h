// Batches of matrix products on the host's memory by way of the device, a few matrices at a time.
#pragma once

#include "cukern/operations.h"

namespace cukern {

// Whether the call has so much to bring over the link that chunks pay, or more than the device holds, and its
// matrices fit into a chunk.
bool is_in_batches(const MatmulCall &call, int device) noexcept;

// Returns when `out` holds the products. After a failure it may be written in part.
Status matmul_in_batches(const MatmulCall &call, int device) noexcept;

}  // namespace cukern
