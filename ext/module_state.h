// What the module keeps: one list of its Python objects, from which traverse and clear are made.
#pragma once

#include "py_ref.h"

namespace cukern::py {

#define CUKERN_STATE_OBJECTS(X)                                             \
    X(cuda_error)          /* CudaError(RuntimeError) */                    \
    X(out_of_memory_error) /* OutOfMemoryError(CudaError, MemoryError) */   \
    X(device_lost_error)   /* DeviceLostError(CudaError) */                 \
    X(name_out)            /* the interned str "out" */                     \
    X(numpy_matmul)        /* numpy.matmul: numpy.dot leaks in NumPy 2.5 */ \
    X(quiet)               /* makes numpy.errstate(all="ignore") */

struct ModuleState {
#define CUKERN_STATE_MEMBER(name) PyObject *name = nullptr;
    CUKERN_STATE_OBJECTS(CUKERN_STATE_MEMBER)
#undef CUKERN_STATE_MEMBER
    bool backend_ready = false;  // chosen, and its warning given
    bool cublas_sought = false;  // cuda-pathfinder has been asked
};

inline ModuleState &state_of(PyObject *module) noexcept {
    return *static_cast<ModuleState *>(PyModule_GetState(module));
}

}  // namespace cukern::py
