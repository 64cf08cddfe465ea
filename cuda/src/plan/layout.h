// Layouts of strided arrays: reduced to their fewest dimensions, and whether they lie densely in memory.
#pragma once

#include <cstdint>

#include "cukern/tensor_view.h"

namespace cukern {

// Dimensions of `num_arrays` arrays of one shape, reordered together so that array 0's strides decrease, with
// those of length 1 dropped and neighbours merged where every array allows it. Returns the number left.
// strides[array] points at that array's strides; all are changed in place.
int coalesce_dimensions(std::int64_t *shape, std::int64_t *const *strides, int num_arrays, int ndim) noexcept;

// The memory that a view covers when it has no gaps: every byte from `first` on for count elements belongs
// to exactly one element, whatever the order and the signs of the strides.
bool is_dense(const TensorView &view, const void **first) noexcept;

// A C-contiguous view of `view`'s shape over other memory.
TensorView packed_like(const TensorView &view, ElementType type, void *data) noexcept;

// The part of a view at indices [begin, end) of one of its dimensions.
TensorView part_along(const TensorView &view, int axis, std::int64_t begin, std::int64_t end) noexcept;

// Copies elements [begin, end) in C order between a strided view and packed memory.
void gather(const TensorView &view, std::int64_t begin, std::int64_t end, void *packed) noexcept;
void scatter(const TensorView &view, std::int64_t begin, std::int64_t end, const void *packed) noexcept;

// Dimensions from the slowest to the fastest in memory, by their strides; those that repeat elements come first,
// and equals stay as they are.
void order_of_memory(const std::int64_t *strides, int ndim, int *order) noexcept;

}  // namespace cukern
