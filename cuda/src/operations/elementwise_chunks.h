// Elementwise operations on the host's memory by way of the device, a chunk of the elements at a time.
#pragma once

#include "cukern/operations.h"

namespace cukern {

struct Context;

// Whether the call has so much to bring over the link that chunks pay, or more than the device holds.
bool is_in_chunks(const ElementwiseCall &call, int device) noexcept;

// Returns when `out` holds the result. After a failure it may be written in part.
Status elementwise_in_chunks(const ElementwiseCall &call, int device) noexcept;

}  // namespace cukern
