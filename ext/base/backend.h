// The back-end's choice, and what ext/ brings to it.
#pragma once

#include "base/module_state.h"

#include "cukern/backend.h"

namespace cukern::py {

// Chooses the back-end on first use and gives its warning once; an exception is set when there is none.
bool ensure_backend(ModuleState &state, const char *function, Backend *backend) noexcept;

// Whether the host back-end is in use, or none.
inline bool is_host_in_use() noexcept {
    Backend backend = Backend::host;
    return active_backend(&backend) != CUKERN_OK || backend == Backend::host;
}

// Lets cuda-pathfinder find cuBLAS, once. That it finds none is no error: the usual names are tried then. False
// with an exception set when the search was interrupted.
bool seek_cublas(PyObject *module) noexcept;

}  // namespace cukern::py
