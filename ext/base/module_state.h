// What the module keeps: one list of its Python objects, from which traverse and clear are made.
#pragma once

#include "base/py_ref.h"

namespace cukern::py {

#define CUKERN_STATE_OBJECTS(X)                                           \
    X(cuda_error)          /* CudaError(RuntimeError) */                  \
    X(out_of_memory_error) /* OutOfMemoryError(CudaError, MemoryError) */ \
    X(device_lost_error)   /* DeviceLostError(CudaError) */               \
    X(compile_error)       /* CompileError(RuntimeError) */               \
    X(array_type)          /* the types of the module */                  \
    X(stream_type)                                                        \
    X(event_type)                                                         \
    X(device_type)                                                        \
    X(graph_type)                                                         \
    X(raw_kernel_type)                                                    \
    X(raw_module_type)                                                    \
    X(launcher_type)                                                      \
    X(pointer_type)                                                       \
    X(traced_type) /* cukern._fuse.Recorded, once it is imported */       \
    X(bfloat16_type)                                                      \
    X(bfloat16)         /* cukern.bfloat16, its one instance */           \
    X(dtypes)           /* NumPy's dtypes by ElementType, a tuple */      \
    X(numpy)            /* the module numpy */                            \
    X(modules)          /* sys.modules */                                 \
    X(restore)          /* _cukern._restore, which pickles name */        \
    X(exchange_capsule) /* cukern.Array's DLPack exchange API */          \
    X(get_blocks)       /* reads the context variable of `with` blocks */ \
    X(set_blocks)       /* sets it: see with_blocks.h */                  \
    X(set_probe)        /* gives a token of the current context */        \
    X(reset_probe)      /* takes it back, in that context alone */        \
    X(name_out)         /* interned names */                              \
    X(name_stream)                                                        \
    X(name_exchange)      /* __dlpack_c_exchange_api__ */                 \
    X(name_dlpack)        /* __dlpack__ */                                \
    X(name_dlpack_device) /* __dlpack_device__ */                         \
    X(name_cai)           /* __cuda_array_interface__ */                  \
    X(name_cuda_stream)   /* __cuda_stream__ */                           \
    X(name_namespace)     /* __array_namespace__ */                       \
    X(name_array_ufunc)   /* __array_ufunc__ */                           \
    X(ndarray_ufunc)      /* numpy.ndarray.__array_ufunc__ */             \
    X(axis_error)         /* numpy.exceptions.AxisError */                \
    X(name_shape)                                                         \
    X(name_strides)                                                       \
    X(name_typestr)                                                       \
    X(name_data)                                                          \
    X(name_mask)                                                          \
    X(name_from_dlpack)                                                   \
    X(dlpack_version) /* (1, 3) */

struct TypeRecord;
struct PlannedCalls;

struct ModuleState {
#define CUKERN_STATE_MEMBER(name) PyObject *name = nullptr;
    CUKERN_STATE_OBJECTS(CUKERN_STATE_MEMBER)
#undef CUKERN_STATE_MEMBER
    TypeRecord *types = nullptr;    // what is known of other libraries' types: see frameworks.h
    unsigned next_type = 0;         // the record that goes when all are taken
    PlannedCalls *plans = nullptr;  // of calls that may be made again: see planned_calls.h
    bool backend_ready = false;     // chosen, and its warning given
    bool cublas_sought = false;     // cuda-pathfinder was searched
};

inline ModuleState &state_of(PyObject *module) noexcept {
    return *static_cast<ModuleState *>(PyModule_GetState(module));
}

// The state through an object of one of the module's own types, which nothing derives from.
inline ModuleState &state_of_type(PyObject *object) noexcept {
    return *static_cast<ModuleState *>(PyType_GetModuleState(Py_TYPE(object)));
}

}  // namespace cukern::py
