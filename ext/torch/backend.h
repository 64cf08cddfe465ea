// The back-end for kernels that torch calls, which hold no GIL.
#pragma once

#include "base/module_state.h"
#include "torch/tensors.h"

#include "cukern/operations.h"

namespace cukern::py {

// The module whose functions the kernels are; it lives as long as the process.
void set_torch_module(PyObject *module) noexcept;

// Makes the exception that is set a failure of this thread. Needs the GIL.
Status fail_with_exception() noexcept;

// Chooses the back-end on the first call. Fails as the functions of the module do.
Status ensure_torch_backend(Backend *backend) noexcept;

// Has cuBLAS looked for once, before the first product that would use it.
Status seek_torch_cublas() noexcept;

// Where a call on tensors runs: on torch's current stream of their GPU, or as `placement` says on the host.
Status torch_execution(const TorchPlace &place, Backend backend, Execution *where) noexcept;

}  // namespace cukern::py
