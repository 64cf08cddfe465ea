// Shapes and axes as arguments.
#pragma once

#include "view/tracked_view.h"

namespace cukern::py {

// An int or a sequence of ints. Negative lengths are left to the caller.
bool parse_shape(const char *function, PyObject *object, Shape *shape) noexcept;

// An int or a tuple of ints, from -ndim to ndim - 1, each once; made non-negative. NumPy's AxisError, which is a
// ValueError and an IndexError, where there is no such dimension.
bool parse_axes(const ModuleState &state, const char *function, PyObject *object, int ndim, int *axes,
                int *count) noexcept;

// For methods whose positional arguments are read otherwise.
bool parse_only_keyword(const char *function, PyObject *keywords, const char *name, PyObject **value) noexcept;

// A tuple of ints, each times a factor.
PyRef tuple_of(int count, const std::int64_t *numbers, std::int64_t factor = 1) noexcept;

// "(3, 4)", or "(3,)" as Python writes it.
PyRef shape_text(int ndim, const std::int64_t *shape) noexcept;

// The same for messages that are made without the GIL; cut off where it is very long.
struct ShapeText {
    char text[512];
    explicit ShapeText(const Shape &shape) noexcept;
};

// ValueError: the shape of `what` has a negative length, or is too large; null: a shape that cannot be told.
[[gnu::cold]] void raise_too_large(const char *function, const char *what, int ndim,
                                   const std::int64_t *shape) noexcept;

// The bytes of packed elements; false with that ValueError.
inline bool checked_size(const char *function, const char *what, int ndim, const std::int64_t *shape,
                         int item_size, std::int64_t *bytes) noexcept {
    if (checked_bytes(shape, ndim, item_size, bytes)) return true;
    raise_too_large(function, what, ndim, shape);
    return false;
}

}  // namespace cukern::py
