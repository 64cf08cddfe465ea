#include "base/python.h"

#include <algorithm>
#include <cstdio>

#include "view/shapes.h"

namespace cukern::py {

bool parse_shape(const char *function, PyObject *object, Shape *shape) noexcept {
    shape->ndim = 0;
    if (PyLong_CheckExact(object)) {
        shape->ndim = 1;
        shape->lengths[0] = PyLong_AsSsize_t(object);
        if (shape->lengths[0] != -1 || PyErr_Occurred() == nullptr) return true;
        PyErr_Clear();  // raised anew below, as of any other index
    }
    if (PyIndex_Check(object) && !(PyArray_Check(object) && PyArray_NDIM(as_array(object)) > 0)) {
        const Py_ssize_t length = PyNumber_AsSsize_t(object, PyExc_ValueError);
        if (length == -1 && PyErr_Occurred() != nullptr) return false;
        shape->ndim = 1;
        shape->lengths[0] = length;
        return true;
    }
    const PyRef tuple = PyRef::steal(
        PySequence_Check(object) != 0 && PyUnicode_Check(object) == 0 ? PySequence_Tuple(object) : nullptr);
    if (!tuple) {
        if (!clear_lookup_error()) return false;
        PyErr_Format(PyExc_TypeError, "%s: shape is %R; expected an int or a tuple of ints", function, object);
        return false;
    }
    const Py_ssize_t ndim = PyTuple_Size(tuple.get());
    if (ndim > kMaxDims) {
        PyErr_Format(PyExc_ValueError, "%s: the shape has %zd dimensions; at most %d are supported", function,
                     ndim, kMaxDims);
        return false;
    }
    for (Py_ssize_t i = 0; i < ndim; ++i) {
        const Py_ssize_t length = PyNumber_AsSsize_t(PyTuple_GetItem(tuple.get(), i), PyExc_ValueError);
        if (length == -1 && PyErr_Occurred() != nullptr) return false;
        shape->lengths[i] = length;
    }
    shape->ndim = static_cast<int>(ndim);
    return true;
}

bool parse_axes(const ModuleState &state, const char *function, PyObject *object, int ndim, int *axes,
                int *count) noexcept {
    const PyRef tuple = PyTuple_Check(object) ? PyRef::borrow(object) : PyRef::steal(PyTuple_Pack(1, object));
    if (!tuple) return false;
    const Py_ssize_t given = PyTuple_Size(tuple.get());
    *count = 0;
    for (Py_ssize_t i = 0; i < given; ++i) {
        Py_ssize_t axis = PyNumber_AsSsize_t(PyTuple_GetItem(tuple.get(), i), PyExc_ValueError);
        if (axis == -1 && PyErr_Occurred() != nullptr) return false;
        if (axis < -ndim || axis >= ndim) {
            PyErr_Format(state.axis_error, "%s: axis %zd is out of bounds for %d dimensions", function, axis,
                         ndim);
            return false;
        }
        if (axis < 0) axis += ndim;
        for (int j = 0; j < *count; ++j) {
            if (axes[j] != axis) continue;
            PyErr_Format(PyExc_ValueError, "%s: axis %zd is given twice", function, axis);
            return false;
        }
        axes[(*count)++] = static_cast<int>(axis);
    }
    return true;
}

bool parse_only_keyword(const char *function, PyObject *keywords, const char *name, PyObject **value) noexcept {
    if (keywords == nullptr) return true;
    PyObject *key = nullptr;
    PyObject *given = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(keywords, &at, &key, &given) != 0) {
        if (PyUnicode_CompareWithASCIIString(key, name) != 0) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R; the only one is '%s'",
                         function, key, name);
            return false;
        }
        *value = given;
    }
    return true;
}

PyRef tuple_of(int count, const std::int64_t *numbers, std::int64_t factor) noexcept {
    PyRef tuple = PyRef::steal(PyTuple_New(count));
    for (int i = 0; tuple && i < count; ++i) {
        PyObject *number = PyLong_FromLongLong(numbers[i] * factor);
        if (number == nullptr || PyTuple_SetItem(tuple.get(), i, number) != 0) return {};
    }
    return tuple;
}

PyRef shape_text(int ndim, const std::int64_t *shape) noexcept {
    const PyRef tuple = tuple_of(ndim, shape);
    return tuple ? PyRef::steal(PyObject_Str(tuple.get())) : PyRef();
}

void raise_too_large(const char *function, const char *what, int ndim, const std::int64_t *shape) noexcept {
    const PyRef lengths = shape == nullptr ? PyRef() : shape_text(ndim, shape);
    if (shape != nullptr && !lengths) return;
    const PyRef text =
        PyRef::steal(lengths ? PyUnicode_FromFormat(" of shape %U", lengths.get()) : PyUnicode_FromString(""));
    bool is_negative = false;
    for (int i = 0; shape != nullptr && i < ndim; ++i) is_negative = is_negative || shape[i] < 0;
    if (text)
        PyErr_Format(PyExc_ValueError, "%s: %s%U has %s", function, what, text.get(),
                     is_negative ? "a negative length" : "more elements than memory can hold");
}

ShapeText::ShapeText(const Shape &shape) noexcept {
    std::size_t used = 0;
    const auto add = [&](const char *format, long long length) {
        const int more = std::snprintf(text + used, sizeof text - used, format, length);
        if (more > 0) used = std::min(used + static_cast<std::size_t>(more), sizeof text - 1);
    };
    add("(", 0);
    for (int i = 0; i < shape.ndim; ++i) add(i == 0 ? "%lld" : ", %lld", shape.lengths[i]);
    add(shape.ndim == 1 ? ",)" : ")", 0);
}

}  // namespace cukern::py
