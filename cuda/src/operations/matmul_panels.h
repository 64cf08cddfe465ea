// Matrix products on the host's memory by way of the device, panel by panel.
#pragma once

#include "cukern/operations.h"

namespace cukern {

struct Context;

// Whether the call has so much to bring over the link that panels pay, or more than the device holds.
bool is_in_panels(const MatmulCall &call, int device) noexcept;

// Returns when `out` holds the product. After a failure it may be written in part.
Status matmul_in_panels(const MatmulCall &call, int device) noexcept;

// What a product is computed in on a context's devices.
ElementType computed_in(Context &context, const MatmulCall &call) noexcept;

// Whether the arrays of a product on the host's memory fit on a device together, with what they are converted to
// there; -1: on the current one.
bool product_fits(const MatmulCall &call, int device) noexcept;

// A product whose matrices the stream's device reaches (matmul.cpp).
Status multiply(Context &context, const MatmulCall &call, const StreamRef &stream) noexcept;

}  // namespace cukern
