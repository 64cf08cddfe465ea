#include "base/python.h"

#include "base/methods.h"
#include "call/traced.h"

namespace cukern::py {

namespace {

// The last traced value, where a call has failed because of one; null without one.
PyObject *find_traced(const ModuleState &state, PyObject *const *values, Py_ssize_t count) noexcept {
    if (state.traced_type == nullptr || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return nullptr;
    PyObject *traced = nullptr;
    for (Py_ssize_t i = 0; i < count; ++i)
        if (PyType_IsSubtype(Py_TYPE(values[i]), reinterpret_cast<PyTypeObject *>(state.traced_type)) != 0)
            traced = values[i];
    return traced;
}

}  // namespace

PyObject *refuse_if_traced(const ModuleState &state, PyObject *const *values, Py_ssize_t count) noexcept {
    if (find_traced(state, values, count) == nullptr) return nullptr;
    PyErr_Clear();
    PyErr_SetString(
        PyExc_TypeError,
        "fuse: a function that is fused cannot change an array from outside in place; write a = a + b");
    return nullptr;
}

PyObject *record_if_traced(const ModuleState &state, const char *function, PyObject *const *values,
                           Py_ssize_t count, PyObject *names) noexcept {
    const Py_ssize_t all = count + (names == nullptr ? 0 : PyTuple_Size(names));
    PyObject *const traced = find_traced(state, values, all);
    if (traced == nullptr) return nullptr;
    PyErr_Clear();  // it says that the traced value is no array
    const PyRef positional = PyRef::steal(PyTuple_New(count));
    const PyRef options = PyRef::steal(PyDict_New());
    if (!positional || !options) return nullptr;
    for (Py_ssize_t i = 0; i < count; ++i)
        PyTuple_SetItem(positional.get(), i, PyRef::borrow(values[i]).release());
    for (Py_ssize_t i = count; i < all; ++i)
        if (PyDict_SetItem(options.get(), PyTuple_GetItem(names, i - count), values[i]) != 0) return nullptr;
    return PyObject_CallMethod(traced, "_record", "sOO", function, positional.get(), options.get());
}

namespace {

// _set_traced_type(type)
PyObject *set_traced_type(PyObject *module, PyObject *type) {
    if (PyType_Check(type) == 0) return PyErr_Format(PyExc_TypeError, "_set_traced_type: expected a type");
    ModuleState &state = state_of(module);
    PyObject *const old = state.traced_type;
    state.traced_type = PyRef::borrow(type).release();
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

}  // namespace

PyMethodDef kTracedMethods[] = {
    {"_set_traced_type", set_traced_type, METH_O,
     "_set_traced_type(type, /)\n--\n\nTell the type of what a fused function is traced with."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
