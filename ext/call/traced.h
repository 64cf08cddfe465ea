// Calls whose operands are traced: what `cukern.fuse` gives a function instead of arrays (python/cukern/_fuse.py).
#pragma once

#include "base/module_state.h"

namespace cukern::py {

// Called when a call has failed, with its exception: has a traced value among the arguments record the call, and
// returns what that gives. Without one the exception stays. Calls that succeed never look for any.
PyObject *record_if_traced(const ModuleState &state, const char *function, PyObject *const *values,
                           Py_ssize_t count, PyObject *names) noexcept;

// The same for a call that would change an array in place: the exception says that this cannot be recorded.
PyObject *refuse_if_traced(const ModuleState &state, PyObject *const *values, Py_ssize_t count) noexcept;

}  // namespace cukern::py
