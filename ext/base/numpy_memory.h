// Memory of NumPy's arrays from cukern's pools, by NumPy's own interface for allocators (NEP 49): an array owns it
// as any other.
#pragma once

#include "base/py_ref.h"

namespace cukern::py {

// A new ndarray as PyArray_NewFromDescr makes it; a large one of memory that is used again.
PyRef new_ndarray(PyRef dtype, int ndim, const npy_intp *shape, const npy_intp *strides, int flags) noexcept;

}  // namespace cukern::py
