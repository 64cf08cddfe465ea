#include "python.h"

#include "operand.h"

#include <cstdint>
#include <cstring>
#include <limits>

namespace cukern::py {
namespace {

PyRef type_name(PyObject *object) noexcept {
    return PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(object)), "__name__"));
}

bool refuse_object(Operand::Place place, PyObject *object, const char *advice) noexcept {
    const PyRef name = type_name(object);
    if (name)
        PyErr_Format(PyExc_TypeError, "%s: %s is of type %U; %s", place.function, place.argument, name.get(),
                     advice);
    return false;
}

bool refuse_element_type(Operand::Place place, PyObject *name, const char *advice) noexcept {
    PyErr_Format(PyExc_TypeError, "%s: %s has element type %S; supported are %s%s", place.function, place.argument,
                 name, supported_element_types(), advice);
    return false;
}

bool refuse_byte_order(Operand::Place place) noexcept {
    PyErr_Format(PyExc_TypeError,
                 "%s: %s is byte-swapped; convert it to native byte order first, as by "
                 "x.astype(x.dtype.newbyteorder('='))",
                 place.function, place.argument);
    return false;
}

// numpy.ma's arrays, and those of others that tell by a mask of their type.
bool is_masked(PyObject *object) noexcept {
    const PyRef mask = PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(object)), "mask"));
    if (!mask) PyErr_Clear();
    return static_cast<bool>(mask);
}

bool is_numpy_scalar(PyObject *object) noexcept { return PyArray_IsScalar(object, Generic); }

template <typename T>
bool store_integer(PyObject *object, ElementType type, Immediate *value) noexcept {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (number == -1 && PyErr_Occurred() != nullptr) return false;
    if (overflow != 0 || number < std::numeric_limits<T>::min() || number > std::numeric_limits<T>::max()) {
        PyErr_Format(PyExc_OverflowError, "Python integer %S out of bounds for %s", object, name_of(type));
        return false;
    }
    const T narrow = static_cast<T>(number);
    std::memcpy(value->bytes, &narrow, sizeof narrow);
    return true;
}

template <typename T>
bool store_real(PyObject *object, Immediate *value) noexcept {
    const double number = PyFloat_AsDouble(object);
    if (number == -1.0 && PyErr_Occurred() != nullptr) return false;
    const T narrow = static_cast<T>(number);
    std::memcpy(value->bytes, &narrow, sizeof narrow);
    return true;
}

}  // namespace

PyRef shape_text(int ndim, const std::int64_t *shape) noexcept {
    PyRef tuple = PyRef::steal(PyTuple_New(ndim));
    for (int i = 0; tuple && i < ndim; ++i) {
        PyObject *length = PyLong_FromLongLong(shape[i]);
        if (length == nullptr || PyTuple_SetItem(tuple.get(), i, length) != 0) return {};
    }
    return tuple ? PyRef::steal(PyObject_Str(tuple.get())) : PyRef();
}

ByteLayout Operand::layout() const noexcept { return layout_; }

bool Operand::read(Place place, PyObject *object) noexcept {
    object_ = object;
    name_ = place.argument;
    if (PyArray_Check(object)) {
        if (!read_array(place, as_array(object))) return false;
        return aligned_ || stand_in();
    }
    if (PyLong_Check(object) || (PyFloat_Check(object) && !is_numpy_scalar(object))) {
        weak_ = PyBool_Check(object) ? Weak::boolean : PyLong_Check(object) ? Weak::integer : Weak::real;
        view_.immediate = true;
        return true;
    }
    if (is_numpy_scalar(object)) return read_numpy_scalar(place, object);
    if (PyList_Check(object) || PyTuple_Check(object))
        return refuse_object(place, object, "pass an array, as made by numpy.asarray()");
    if (!PyObject_CheckBuffer(object))
        return refuse_object(place, object,
                             "expected an ndarray, an object with the buffer protocol, or a number");
    if (!read_buffer(place, object)) return false;
    return aligned_ || stand_in();
}

bool Operand::read_out(Place place, PyObject *object) noexcept {
    object_ = object;
    name_ = place.argument;
    if (PyArray_Check(object)) {
        if (!read_array(place, as_array(object))) return false;
    } else if (PyObject_CheckBuffer(object) && !is_numpy_scalar(object)) {
        if (!read_buffer(place, object)) return false;
    } else {
        return refuse_object(place, object, "expected an ndarray or a writable object with the buffer protocol");
    }
    if (!writable_) {
        PyErr_Format(PyExc_ValueError, "%s: %s is read-only", place.function, place.argument);
        return false;
    }
    if (view_.immediate) {  // zero-dimensional: as an output it is memory
        view_.immediate = false;
        view_.data = const_cast<void *>(layout_.data);
    }
    return aligned_ || stand_in();
}

bool Operand::read_array(Place place, PyArrayObject *array) noexcept {
    if (!PyArray_CheckExact(object_) && is_masked(object_))
        return refuse_object(place, object_, "its mask would be lost; pass x.filled(value) or x.data");
    PyArray_Descr *descr = PyArray_DESCR(array);
    if (!element_type_of(PyArray_TYPE(array), &view_.type))
        return refuse_element_type(place, reinterpret_cast<PyObject *>(descr), "");
    if (!PyArray_ISNOTSWAPPED(array)) return refuse_byte_order(place);
    writable_ = PyArray_ISWRITEABLE(array);
    return set_memory(place, PyArray_DATA(array), PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array),
                      PyArray_ITEMSIZE(array));
}

bool Operand::read_buffer(Place place, PyObject *object) noexcept {
    if (!buffer_.acquire(object, PyBUF_RECORDS_RO)) return false;
    const Py_buffer &buffer = buffer_.get();
    const Format format = element_type_of(buffer.format, buffer.itemsize, &view_.type);
    if (format == Format::byte_swapped) return refuse_byte_order(place);
    if (format != Format::known) {
        const PyRef name =
            PyRef::steal(PyUnicode_FromFormat("'%s'", buffer.format == nullptr ? "B" : buffer.format));
        if (!name) return false;
        const char *advice =
            format == Format::untyped
                ? "; to read its bytes as one of these, pass memoryview(x).cast(\"f\") or the like"
                : "";
        return refuse_element_type(place, name.get(), advice);
    }
    writable_ = buffer.readonly == 0;
    Py_ssize_t packed[kMaxDims];
    const Py_ssize_t *strides = buffer.strides;
    if (strides == nullptr && buffer.ndim <= kMaxDims) {
        Py_ssize_t stride = buffer.itemsize;
        for (int i = buffer.ndim - 1; i >= 0; --i) {
            packed[i] = stride;
            stride *= buffer.shape[i];
        }
        strides = packed;
    }
    return set_memory(place, buffer.buf, buffer.ndim, buffer.shape, strides, buffer.itemsize);
}

bool Operand::read_numpy_scalar(Place place, PyObject *object) noexcept {
    const PyRef descr = PyRef::steal(reinterpret_cast<PyObject *>(PyArray_DescrFromScalar(object)));
    if (!descr) return false;
    if (!element_type_of(reinterpret_cast<PyArray_Descr *>(descr.get())->type_num, &view_.type))
        return refuse_element_type(place, descr.get(), "");
    view_.immediate = true;
    PyArray_ScalarAsCtype(object, view_.value.bytes);
    return true;
}

bool Operand::set_memory(Place place, void *data, int ndim, const Py_ssize_t *shape, const Py_ssize_t *strides,
                         Py_ssize_t item_size) noexcept {
    if (ndim > kMaxDims) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %d dimensions; at most %d are supported", place.function,
                     place.argument, ndim, kMaxDims);
        return false;
    }
    view_.data = data;
    view_.ndim = ndim;
    aligned_ = reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(item_size) == 0;
    for (int i = 0; i < ndim; ++i) {
        layout_shape_[i] = view_.shape[i] = shape[i];
        byte_strides_[i] = strides[i];
        view_.strides[i] = strides[i] / item_size;
        if (shape[i] > 1 && strides[i] % item_size != 0) aligned_ = false;
    }
    std::int64_t bytes = 0;
    if (!checked_bytes(view_.shape, ndim, size_of(view_.type), &bytes)) {
        const PyRef text = shape_text(ndim, view_.shape);
        if (text)
            PyErr_Format(PyExc_ValueError, "%s: %s of shape %U has more elements than memory can hold",
                         place.function, place.argument, text.get());
        return false;
    }
    layout_ = {data, item_size, ndim, layout_shape_, byte_strides_};
    if (ndim == 0) {  // its value travels with the call
        view_.immediate = true;
        std::memcpy(view_.value.bytes, data, static_cast<std::size_t>(item_size));
    }
    return true;
}

PyRef Operand::ndarray() const noexcept {
    if (object_ == nullptr || PyArray_CheckExact(object_)) return PyRef::borrow(object_);
    // A subclass may have NumPy call it back: what it does to products is not ours to know.
    if (PyArray_Check(object_)) return PyRef::steal(PyArray_View(as_array(object_), nullptr, &PyArray_Type));
    return PyRef::steal(PyArray_FromAny(object_, nullptr, 0, 0, 0, nullptr));
}

// An operand whose elements do not lie on multiples of their size is worked on in an aligned copy.
bool Operand::stand_in() noexcept {
    if (view_.immediate) return true;
    const PyRef own = ndarray();
    if (!own) return false;
    copy_ = PyRef::steal(PyArray_NewCopy(as_array(own), NPY_CORDER));
    if (!copy_) return false;
    view_.data = PyArray_DATA(as_array(copy_));
    set_contiguous(view_);
    return true;
}

bool Operand::finish_out() noexcept {
    if (!copy_) return true;
    const PyRef own = ndarray();
    return own && PyArray_CopyInto(as_array(own), as_array(copy_)) == 0;
}

bool Operand::resolve(ElementType type) noexcept {
    if (weak_ == Weak::none) return true;
    view_.type = type;
    switch (type) {
        case ElementType::float32: return store_real<float>(object_, &view_.value);
        case ElementType::float64: return store_real<double>(object_, &view_.value);
        case ElementType::int32: return store_integer<std::int32_t>(object_, type, &view_.value);
        case ElementType::int64: return store_integer<std::int64_t>(object_, type, &view_.value);
    }
    return false;
}

}  // namespace cukern::py
