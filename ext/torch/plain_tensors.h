// Which tensors the kernels in Python may give to the module's functions as they are.
#pragma once

#include "base/python.h"

namespace cukern::py {

// _are_plain(*tensors)
PyObject *are_plain(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names);

}  // namespace cukern::py
