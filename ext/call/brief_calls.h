// Elementwise calls on packed ndarrays that take less time than planning them does.
//
// Idea: of ndarrays of one element type and shape, in C order, nothing has to be promoted, broadcast or planned,
// and where they are short, no device and no second thread is worth its latency. Such a call checks just that,
// makes its result and calls the loop. Anything else (other layouts, a stream, a placement that was asked for,
// overlap) goes the long way, which also tells what is wrong.
#pragma once

#include "base/module_state.h"
#include "base/python.h"

#include "cukern/ops.h"

namespace cukern::py {

// Whether a call was made so. *result is then what it returns, or null with an exception set. `out` may be null.
bool run_brief(ModuleState &state, Op op, PyObject *const *operands, int num_operands, PyObject *out,
               PyObject **result) noexcept;

}  // namespace cukern::py
