#include "base/python.h"

#include "base/signature.h"

namespace cukern::py {

bool Signature::refuse_count(const char *function, Py_ssize_t given, int most) const noexcept {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional argument%s (%zd given)", function, most,
                 most == 1 ? "" : "s", given);
    return false;
}

bool Signature::set_named(const char *function, PyObject *name, PyObject *value,
                          PyObject **arguments) const noexcept {
    for (int i = positional_only_; i < count_; ++i) {
        if (PyUnicode_CompareWithASCIIString(name, names_[i]) != 0) continue;
        if (arguments[i] != nullptr) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", function, names_[i]);
            return false;
        }
        arguments[i] = value;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", function, name);
    return false;
}

bool Signature::parse(const char *function, PyObject *self, PyObject *const *values, Py_ssize_t count,
                      PyObject *names, PyObject **arguments) const noexcept {
    const int first = self != nullptr ? 1 : 0;
    if (count > positional_ - first) return refuse_count(function, count, positional_ - first);
    if (self != nullptr) arguments[0] = self;
    for (Py_ssize_t i = 0; i < count; ++i) arguments[first + i] = values[i];
    for (Py_ssize_t i = first + count; i < count_; ++i) arguments[i] = nullptr;
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < named; ++i)
        if (!set_named(function, PyTuple_GetItem(names, i), values[count + i], arguments)) return false;
    for (int i = first; i < required_; ++i) {
        if (arguments[i] != nullptr) continue;
        PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s' (pos %d)", function, names_[i],
                     i + 1 - first);
        return false;
    }
    return true;
}

}  // namespace cukern::py
