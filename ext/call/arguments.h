// The arguments of array operations, f(a, b, /, *, out=None, stream=None), without making a tuple or a dict.
#pragma once

#include "base/module_state.h"

namespace cukern::py {

// Whether looking at an argument may run Python code: not of None, of numbers and text of Python's own types, of
// element types, and of a tuple of these. Null counts as None.
bool may_run_code(PyObject *object) noexcept;

constexpr int kMaxPositional = 3;

struct Arguments {
    PyObject *positional[kMaxPositional] = {};  // borrowed, as are the others
    PyObject *out = nullptr;                    // null when absent or None
    PyObject *stream = nullptr;                 // likewise
};

// Raises TypeError on a wrong number or name of arguments.
bool parse_arguments(const ModuleState &state, const char *function, int positional, PyObject *const *values,
                     Py_ssize_t count, PyObject *names, Arguments *arguments) noexcept;

}  // namespace cukern::py
