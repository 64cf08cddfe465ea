#include "python.h"

#include "arguments.h"

namespace cukern::py {

bool parse_arguments(const ModuleState &state, const char *function, int positional, PyObject *const *values,
                     Py_ssize_t count, PyObject *names, Arguments *arguments) noexcept {
    if (count != positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes exactly %d positional arguments (%zd given)", function,
                     positional, count);
        return false;
    }
    for (int i = 0; i < positional; ++i) arguments->positional[i] = values[i];
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < named; ++i) {
        PyObject *name = PyTuple_GetItem(names, i);
        PyObject *value = Py_IsNone(values[count + i]) != 0 ? nullptr : values[count + i];
        if (name == state.name_out || PyUnicode_CompareWithASCIIString(name, "out") == 0) {
            arguments->out = value;
        } else if (name == state.name_stream || PyUnicode_CompareWithASCIIString(name, "stream") == 0) {
            arguments->stream = value;
        } else {
            PyErr_Format(PyExc_TypeError,
                         "%s() got an unexpected keyword argument %R; there are 'out' and 'stream'", function,
                         name);
            return false;
        }
    }
    return true;
}

}  // namespace cukern::py
