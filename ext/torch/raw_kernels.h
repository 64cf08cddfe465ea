// RawKernels as operations of torch.
#pragma once

#include "base/python.h"

namespace cukern::py {

// _register_torch_raw_kernel(library, name, kernel, arguments, num_results, size_argument)
PyObject *register_raw_kernel(PyObject *module, PyObject *args);

}  // namespace cukern::py
