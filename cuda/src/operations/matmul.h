// Products as their parts need them: on one device, and of the host's memory through it.
#pragma once

#include "cukern/operations.h"

namespace cukern {

struct Context;

// What a product is computed in on a context's devices.
ElementType computed_in(Context &context, const MatmulCall &call) noexcept;

// Whether the arrays of a product on the host's memory fit on a device together, with what they are converted to
// there; -1: on the current one.
bool product_fits(const MatmulCall &call, int device) noexcept;

// A product whose matrices the stream's device reaches.
Status multiply(Context &context, const MatmulCall &call, const StreamRef &stream) noexcept;

}  // namespace cukern
