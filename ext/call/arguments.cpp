#include "base/python.h"

#include "call/arguments.h"

namespace cukern::py {

namespace {

// Of a type whose values are read without calling any code.
bool is_inert(PyObject *object) noexcept {
    if (PyType_Check(object) != 0)
        return (PyType_GetFlags(reinterpret_cast<PyTypeObject *>(object)) & Py_TPFLAGS_HEAPTYPE) == 0;
    return Py_IsNone(object) != 0 || PyBool_Check(object) != 0 || PyLong_CheckExact(object) ||
           PyFloat_CheckExact(object) || PyComplex_CheckExact(object) || PyUnicode_CheckExact(object) ||
           PyArray_DescrCheck(object);
}

}  // namespace

bool may_run_code(PyObject *object) noexcept {
    if (object == nullptr || is_inert(object)) return false;
    if (!PyTuple_CheckExact(object)) return true;
    for (Py_ssize_t i = 0; i < PyTuple_Size(object); ++i)
        if (!is_inert(PyTuple_GetItem(object, i))) return true;
    return false;
}

[[gnu::hot]] bool parse_arguments(const ModuleState &state, const char *function, int positional,
                                  PyObject *const *values, Py_ssize_t count, PyObject *names,
                                  Arguments *arguments) noexcept {
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
