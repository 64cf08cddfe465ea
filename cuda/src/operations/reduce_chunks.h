// Reductions on the host's memory by way of the device, where the device does not hold the array: box by box.
#pragma once

#include "cukern/operations.h"
#include "context/context.h"

namespace cukern {

// `out` is written at the very end.
Status reduce_in_chunks(const ReduceCall &call, int device) noexcept;

// A reduction whose arrays the stream's device reaches, or on the processor (reduce.cpp).
Status run_reduction(Context &context, const ReduceCall &call, const StreamRef &stream) noexcept;
// out = view, by way of `type`.
Status convert_by(Context &context, const TensorView &view, ElementType type, const TensorView &out,
                  const StreamRef &stream) noexcept;
// A number as a value of an element type.
TensorView number(ElementType type, Complex128 value) noexcept;
inline bool gives_index(Op op) noexcept { return info(op).rule == ResultRule::index; }
inline bool is_variance(Op op) noexcept { return info(op).rule == ResultRule::variance; }
// The element type that it computes in, where what is asked for is not wide enough for what comes between.
ElementType widened(const ReduceCall &call) noexcept;

}  // namespace cukern
