// Basic indexing of an Array: a view, dimension by dimension.
#include "base/python.h"

#include "array/array.h"

namespace cukern::py {
namespace {

// The view that an index makes, dimension by dimension.
struct Indexing {
    char *data;
    Shape shape;
    std::int64_t strides[kMaxDims];
    int axis = 0;  // the next dimension of the array
};

bool add_dimension(Indexing &at, std::int64_t length, std::int64_t stride) noexcept {
    if (at.shape.ndim == kMaxDims) {
        PyErr_Format(PyExc_IndexError, "the index gives more than %d dimensions", kMaxDims);
        return false;
    }
    at.shape.lengths[at.shape.ndim] = length;
    at.strides[at.shape.ndim++] = stride;
    return true;
}

bool apply_integer(const Array *array, PyObject *item, Indexing &at) noexcept {
    const Py_ssize_t length = array->shape()[at.axis];
    const Py_ssize_t index = PyNumber_AsSsize_t(item, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred() != nullptr) return false;
    if (index < -length || index >= length) {
        PyErr_Format(PyExc_IndexError, "index %zd is out of bounds for dimension %d of length %zd", index, at.axis,
                     length);
        return false;
    }
    at.data += (index < 0 ? index + length : index) * array->strides()[at.axis] * size_of(array->type);
    ++at.axis;
    return true;
}

bool apply_slice(const Array *array, PyObject *item, Indexing &at) noexcept {
    Py_ssize_t start = 0;
    Py_ssize_t stop = 0;
    Py_ssize_t step = 0;
    if (PySlice_Unpack(item, &start, &stop, &step) != 0) return false;
    const Py_ssize_t length = PySlice_AdjustIndices(array->shape()[at.axis], &start, &stop, step);
    if (length > 0) at.data += start * array->strides()[at.axis] * size_of(array->type);
    const std::int64_t stride = length > 1 ? array->strides()[at.axis] * step : array->strides()[at.axis];
    ++at.axis;
    return add_dimension(at, length, stride);
}

bool apply_whole(const Array *array, Indexing &at) noexcept {
    const int axis = at.axis++;
    return add_dimension(at, array->shape()[axis], array->strides()[axis]);
}

bool apply_item(const Array *array, PyObject *item, int rest, Indexing &at) noexcept {
    if (Py_IsNone(item) != 0) return add_dimension(at, 1, 0);
    if (item == Py_Ellipsis) {
        while (at.axis < array->ndim - rest)
            if (!apply_whole(array, at)) return false;
        return true;
    }
    if (PySlice_Check(item)) return apply_slice(array, item, at);
    const bool is_own = is_own_array(item);
    const bool is_array = (PyArray_Check(item) && PyArray_NDIM(as_array(item)) > 0) ||
                          (is_own && (array_of(item)->ndim > 0 || kind_of(array_of(item)->type) == 'b'));
    if (PyIndex_Check(item) && PyBool_Check(item) == 0 && !is_array) return apply_integer(array, item, at);
    PyErr_Format(PyExc_IndexError,
                 "an index is an integer, a slice, '...' or None, got %R; lists and arrays of indices are not "
                 "supported",
                 item);
    return false;
}

// How many dimensions of the array an item takes up.
int dimensions_of(PyObject *item) noexcept { return Py_IsNone(item) != 0 || item == Py_Ellipsis ? 0 : 1; }

}  // namespace

PyRef indexed(Array *array, PyObject *key) noexcept {
    const PyRef items = PyTuple_Check(key) ? PyRef::borrow(key) : PyRef::steal(PyTuple_Pack(1, key));
    if (!items) return {};
    const Py_ssize_t count = PyTuple_Size(items.get());
    int taken = 0;
    int ellipses = 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *item = PyTuple_GetItem(items.get(), i);
        taken += dimensions_of(item);
        ellipses += item == Py_Ellipsis ? 1 : 0;
    }
    if (ellipses > 1) {
        PyErr_SetString(PyExc_IndexError, "an index has at most one '...'");
        return {};
    }
    if (taken > array->ndim) {
        PyErr_Format(PyExc_IndexError, "too many indices: the array has %d dimensions, the index %d", array->ndim,
                     taken);
        return {};
    }
    Indexing at;
    at.data = array->data;
    int rest = taken;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *item = PyTuple_GetItem(items.get(), i);
        if (!apply_item(array, item, rest, at)) return {};
        rest -= dimensions_of(item);
    }
    while (at.axis < array->ndim)
        if (!apply_whole(array, at)) return {};
    return array_view(array, at.data, at.shape.ndim, at.shape.lengths, at.strides);
}

PyObject *array_item_at(PyObject *self, Py_ssize_t index) {
    const PyRef key = PyRef::steal(PyLong_FromSsize_t(index));
    return key ? indexed(array_of(self), key.get()).release() : nullptr;
}
PyObject *array_subscript(PyObject *self, PyObject *key) { return indexed(array_of(self), key).release(); }

Py_ssize_t array_length(PyObject *self) {
    const Array *array = array_of(self);
    if (array->ndim > 0) return array->shape()[0];
    PyErr_SetString(PyExc_TypeError, "len() of an array without dimensions");
    return -1;
}

PyObject *array_iterate(PyObject *self) {
    if (array_of(self)->ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "iteration over an array without dimensions");
        return nullptr;
    }
    return PySeqIter_New(self);  // asks for self[0], self[1], ... until IndexError
}

}  // namespace cukern::py
