// Whether two strided arrays share memory: the rule about `out` is decided here.
#pragma once

#include <cstdint>

#include "cukern/tensor_view.h"

namespace cukern {

// Elements of any alignment. Strides are in units of `stride_unit` bytes.
struct ByteLayout {
    const void *data;
    std::int64_t item_size;
    int ndim;
    const std::int64_t *shape;
    const std::int64_t *strides;
    std::int64_t stride_unit = 1;

    std::int64_t stride(int axis) const noexcept { return strides[axis] * stride_unit; }  // in bytes
};

// That of a view, which must not be an immediate value, and has to outlive it.
inline ByteLayout layout_of(const TensorView &view) noexcept {
    const int size = size_of(view.type);
    return {view.data, size, view.ndim, view.shape, view.strides, size};
}

// Same first byte, item size, shape and strides (strides of lengths below 2 don't count).
bool identical(const ByteLayout &a, const ByteLayout &b) noexcept;

// Exact for all arrays met in practice: a bounded search, which answers true when it gives up.
bool overlaps(const ByteLayout &a, const ByteLayout &b) noexcept;

// True when two elements may lie on the same bytes (stride 0, or rows that are folded over each other).
bool overlaps_itself(const ByteLayout &a) noexcept;

}  // namespace cukern
