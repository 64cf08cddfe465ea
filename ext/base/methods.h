// The module's functions, a table from each file that defines some.
#pragma once

#include "base/python.h"

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
extern PyMethodDef kDotMethods[];
extern PyMethodDef kWhereMethods[];
extern PyMethodDef kCastMethods[];
extern PyMethodDef kCumulativeMethods[];
extern PyMethodDef kMatmulMethods[];
extern PyMethodDef kBackendMethods[];
extern PyMethodDef kStreamFunctions[];
extern PyMethodDef kGraphFunctions[];
extern PyMethodDef kMemoryMethods[];
extern PyMethodDef kNumpyMemoryMethods[];
extern PyMethodDef kCreationMethods[];
extern PyMethodDef kImportMethods[];
extern PyMethodDef kJoinMethods[];
extern PyMethodDef kHostMethods[];
extern PyMethodDef kPickleMethods[];
extern PyMethodDef kViewMethods[];
extern PyMethodDef kNvrtcMethods[];
extern PyMethodDef kArgumentKeyMethods[];
extern PyMethodDef kRepeatCallMethods[];
extern PyMethodDef kHostArgumentMethods[];
extern PyMethodDef kTracedMethods[];
extern PyMethodDef kLoopMethods[];
extern PyMethodDef kPlacementFunctions[];
extern PyMethodDef kTorchMethods[];
extern PyMethodDef kTestingMethods[];
extern PyMethodDef kKernelTestingMethods[];

// The rows of the table of operations as a tuple of dicts, for stubs, tests and benchmarks.
PyObject *make_table() noexcept;

}  // namespace cukern::py
