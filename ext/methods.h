// The module's functions, a table from each file that defines some.
#pragma once

#include "module_state.h"

#include "cukern/backend.h"

namespace cukern::py {

using FastFunction = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

// The cast that PyMethodDef wants, without a warning.
inline PyCFunction as_method(FastFunction function) noexcept {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Each ends in a row of nulls.
extern PyMethodDef kElementwiseMethods[];
extern PyMethodDef kMatmulMethods[];
extern PyMethodDef kBackendMethods[];
extern PyMethodDef kTestingMethods[];

// The rows of the table of operations as a tuple of dicts, for stubs, tests and benchmarks.
PyObject *make_table() noexcept;

// Chooses the back-end on first use and gives its warning once; an exception is set when there is none.
bool ensure_backend(PyObject *module, const char *function, Backend *backend) noexcept;

// Lets cuda-pathfinder find cuBLAS, once. That it finds none is no error: the usual names are tried then. False
// with an exception set when the search was interrupted.
bool seek_cublas(PyObject *module) noexcept;

}  // namespace cukern::py
