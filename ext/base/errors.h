// Failures as exceptions.
#pragma once

#include "base/module_state.h"

#include "cukern/status.h"

namespace cukern::py {

// Makes the exception types and adds them to the module.
bool add_exceptions(PyObject *module, ModuleState &state) noexcept;

// The one map from a status, with the thread's last error, to an exception. `function` names the caller.
[[gnu::cold]] void raise_status(const ModuleState &state, const char *function, Status status) noexcept;

}  // namespace cukern::py
