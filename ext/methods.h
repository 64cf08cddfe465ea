// The module's functions, a table from each file that defines some.
#pragma once

#include "module_state.h"

#include "cukern/backend.h"
#include "cukern/operations.h"

namespace cukern::py {

using FastFunction = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

// The cast that PyMethodDef wants, without a warning.
inline PyCFunction as_method(FastFunction function) noexcept {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

using KeywordFunction = PyObject *(*)(PyObject *, PyObject *, PyObject *);
inline PyCFunction as_method(KeywordFunction function) noexcept {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Each ends in a row of nulls.
extern PyMethodDef kElementwiseMethods[];
extern PyMethodDef kReductionMethods[];
extern PyMethodDef kSpreadMethods[];
extern PyMethodDef kDotMethods[];
extern PyMethodDef kSelectionMethods[];
extern PyMethodDef kCastMethods[];
extern PyMethodDef kCumulativeMethods[];
extern PyMethodDef kMatmulMethods[];
extern PyMethodDef kBackendMethods[];
extern PyMethodDef kStreamFunctions[];
extern PyMethodDef kMemoryMethods[];
extern PyMethodDef kCreationMethods[];
extern PyMethodDef kImportMethods[];
extern PyMethodDef kJoinMethods[];
extern PyMethodDef kHostMethods[];
extern PyMethodDef kPickleMethods[];
extern PyMethodDef kViewMethods[];
extern PyMethodDef kTestingMethods[];

// The operations themselves, for functions and operators alike; `out` and `stream` may be null.
PyObject *run_elementwise(ModuleState &state, Op op, PyObject *first, PyObject *other, PyObject *out,
                          PyObject *given_stream) noexcept;
// A copy of the same kind in another element type; `function` is for messages.
PyObject *run_cast(ModuleState &state, const char *function, PyObject *object, ElementType type, PyObject *out,
                   PyObject *given_stream) noexcept;
// What a reduction is asked for besides its operand; null or None where it is not given.
struct ReductionOptions {
    PyObject *axis = nullptr;
    PyObject *dtype = nullptr;
    int keepdims = 0;
    PyObject *out = nullptr;
    PyObject *stream = nullptr;
};
PyObject *run_reduction(ModuleState &state, Op op, PyObject *object, const ReductionOptions &given) noexcept;
// `function` is for messages.
PyObject *run_matmul(PyObject *module, const char *function, MatmulAlgorithm algorithm, PyObject *first,
                     PyObject *second, PyObject *out, PyObject *given_stream) noexcept;

// The rows of the table of operations as a tuple of dicts, for stubs, tests and benchmarks.
PyObject *make_table() noexcept;

// Chooses the back-end on first use and gives its warning once; an exception is set when there is none.
bool ensure_backend(ModuleState &state, const char *function, Backend *backend) noexcept;

// Lets cuda-pathfinder find cuBLAS, once. That it finds none is no error: the usual names are tried then. False
// with an exception set when the search was interrupted.
bool seek_cublas(PyObject *module) noexcept;

}  // namespace cukern::py
