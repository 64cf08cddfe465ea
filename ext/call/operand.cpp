#include "base/python.h"

#include "call/operand.h"

#include <cstdint>
#include <cstring>

#include "array/array.h"
#include "base/backend.h"
#include "base/recursion.h"
#include "call/arguments.h"
#include "types/element_types.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

PyRef type_name(PyObject *object) noexcept {
    return PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(object)), "__name__"));
}

bool refuse_object(const ArgumentInfo &argument, PyObject *object, const char *advice) noexcept {
    const PyRef name = type_name(object);
    if (name)
        PyErr_Format(PyExc_TypeError, "%s: %s is of type %U; %s", argument.function, argument.name, name.get(),
                     advice);
    return false;
}

bool refuse_element_type(const ArgumentInfo &argument, PyObject *name, const char *advice) noexcept {
    PyErr_Format(PyExc_TypeError, "%s: %s has element type %S; supported are %s%s", argument.function,
                 argument.name, name, all_element_types(), advice);
    return false;
}

bool refuse_byte_order(const ArgumentInfo &argument) noexcept {
    PyErr_Format(PyExc_TypeError,
                 "%s: %s is byte-swapped; convert it to native byte order first, as by "
                 "x.astype(x.dtype.newbyteorder('='))",
                 argument.function, argument.name);
    return false;
}

// numpy.ma's arrays, and those of others that tell by a mask of their type. False with an exception set where the
// look-up was interrupted.
bool find_mask(PyObject *object, bool *is_masked) noexcept {
    const PyRef mask = PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(object)), "mask"));
    *is_masked = static_cast<bool>(mask);
    return mask || clear_lookup_error();
}

bool is_numpy_scalar(PyObject *object) noexcept { return PyArray_IsScalar(object, Generic); }

}  // namespace

bool is_number(PyObject *object) noexcept {
    return PyLong_Check(object) ||
           ((PyFloat_Check(object) || PyComplex_Check(object)) && !is_numpy_scalar(object));
}

Weak weak_of(PyObject *number) noexcept {
    return PyBool_Check(number)      ? Weak::boolean
           : PyLong_Check(number)    ? Weak::integer
           : PyComplex_Check(number) ? Weak::complex
                                     : Weak::real;
}

bool Operand::read(const ArgumentInfo &argument, PyObject *object, ReadContext &reading) noexcept {
    object_ = object;
    access_.name = argument.name;
    if (is_array(argument.state, object)) return read_own(object);
    const bool is_ndarray = PyArray_CheckExact(object);
    if (const TypeRecord *known = is_ndarray ? nullptr : known_foreign(argument.state, object); known != nullptr)
        return read_library(argument, object, reading, false, known) && (aligned_ || use_aligned_copy(argument));
    if (is_ndarray || PyArray_Check(object)) {
        if (!read_array(argument, as_array(object), reading)) return false;
        return aligned_ || use_aligned_copy(argument);
    }
    if (is_number(object)) {
        reading.ran_code =
            reading.ran_code || may_run_code(object);  // a subclass tells its value by code of its own
        weak_ = weak_of(object);
        access_.view.immediate = true;
        return true;
    }
    if (is_numpy_scalar(object)) return read_numpy_scalar(argument, object);
    if (PyList_Check(object) || PyTuple_Check(object))
        return refuse_object(argument, object, "pass an array, as made by cukern.asarray() or numpy.asarray()");
    if (!read_library(argument, object, reading, false)) return false;
    return aligned_ || use_aligned_copy(argument);
}

bool Operand::read_out(const ArgumentInfo &argument, PyObject *object, ReadContext &reading) noexcept {
    object_ = object;
    access_.name = argument.name;
    if (is_array(argument.state, object)) {
        if (!read_own(object)) return false;
    } else if (const TypeRecord *known = known_foreign(argument.state, object); known != nullptr) {
        if (!read_library(argument, object, reading, true, known)) return false;
    } else if (PyArray_Check(object)) {
        if (!read_array(argument, as_array(object), reading)) return false;
    } else if (is_plain(object) || is_numpy_scalar(object)) {
        return refuse_object(argument, object, "expected an array or a writable object with the buffer protocol");
    } else if (!read_library(argument, object, reading, true)) {
        return false;
    }
    return make_writable(argument);
}

bool Operand::read_memory(const ArgumentInfo &argument, PyObject *object, bool writes) noexcept {
    ReadContext reading;
    if (writes) return read_out(argument, object, reading);
    object_ = object;
    access_.name = argument.name;
    if (is_number(object)) return refuse_object(argument, object, "expected an array");
    return read(argument, object, reading);
}

bool Operand::read_layout(const ArgumentInfo &argument, PyObject *object, ReadContext &reading) noexcept {
    object_ = object;
    access_.name = argument.name;
    if (PyArray_Check(object)) return read_array(argument, as_array(object), reading);
    return read_library(argument, object, reading, true, known_foreign(argument.state, object));
}

bool Operand::read_address(const ArgumentInfo &argument, PyObject *object, ReadContext &reading) noexcept {
    if (!read_layout(argument, object, reading)) return false;
    if (aligned_) return true;
    PyErr_Format(PyExc_ValueError, "%s: %s is not aligned to its elements of %d bytes", argument.function,
                 argument.name, size_of(type()));
    return false;
}

// An output that cannot be written to; a zero-dimensional one is memory, not a value.
bool Operand::make_writable(const ArgumentInfo &argument) noexcept {
    if (!writable_) {
        PyErr_Format(PyExc_ValueError, "%s: %s is read-only", argument.function, argument.name);
        return false;
    }
    if (access_.view.immediate) {
        access_.view.immediate = false;
        access_.view.data = const_cast<void *>(layout_.data);
    }
    return aligned_ || use_aligned_copy(argument);
}

bool Operand::read_own(PyObject *object) noexcept {
    const Array *array = array_of(object);
    family_ = Family::array;
    tracked_view_of(array, &access_);
    writable_ = !array->read_only;
    const std::int64_t size = size_of(array->type);
    layout_ = {array->data, size, array->ndim, array->shape(), array->strides(), size};
    return true;
}

bool Operand::read_array(const ArgumentInfo &argument, PyArrayObject *array, ReadContext &reading) noexcept {
    bool is_masked = false;
    if (!PyArray_CheckExact(object_)) {
        reading.ran_code = true;
        if (!find_mask(object_, &is_masked)) return false;
    }
    if (is_masked)
        return refuse_object(argument, object_, "its mask would be lost; pass x.filled(value) or x.data");
    PyArray_Descr *descr = PyArray_DESCR(array);
    if (!element_type_of(argument.state, descr, &access_.view.type))
        return refuse_element_type(argument, reinterpret_cast<PyObject *>(descr), "");
    if (!PyArray_ISNOTSWAPPED(array)) return refuse_byte_order(argument);
    family_ = Family::numpy;
    writable_ = PyArray_ISWRITEABLE(array);
    access_.holder = object_;
    static_assert(sizeof(npy_intp) == sizeof(std::int64_t), "shapes are copied as they are");
    return set_memory(argument, PyArray_DATA(array), PyArray_NDIM(array),
                      reinterpret_cast<const std::int64_t *>(PyArray_DIMS(array)),
                      reinterpret_cast<const std::int64_t *>(PyArray_STRIDES(array)), PyArray_ITEMSIZE(array));
}

bool Operand::read_library(const ArgumentInfo &argument, PyObject *object, ReadContext &reading, bool writes,
                           const TypeRecord *known) noexcept {
    if (known != nullptr) {
        const HeldRecord held(*known);
        const bool by_functions_of_c = held->protocol == Protocol::exchange &&
                                       (held->requires_grad.name == nullptr || held->requires_grad.get != nullptr);
        if (!by_functions_of_c && !enough_stack(argument.function)) return false;
        if (!by_functions_of_c) reading.ran_code = true;
        return read_by_record(argument, object, *held, reading, writes);
    }
    if (!enough_stack(argument.function)) return false;
    reading.ran_code = true;
    HeldRecord held;
    auto &state = const_cast<ModuleState &>(argument.state);  // the records of types are a cache
    return find_record(state, object, &held) && read_by_record(argument, object, *held, reading, writes);
}

bool Operand::read_by_record(const ArgumentInfo &argument, PyObject *object, const TypeRecord &record,
                             ReadContext &reading, bool writes) noexcept {
    if (record.protocol == Protocol::other) {
        if (PyObject_CheckBuffer(object)) return read_buffer(argument, object);
        return refuse_object(argument, object,
                             "expected an array of cukern, NumPy or another library (with __dlpack__ or "
                             "__cuda_array_interface__), an object with the buffer protocol, or a number");
    }
    ForeignArray array;
    if (!read_foreign(argument, record, object, reading, writes, &array)) return false;
    keeper_ = std::move(array.keeper);
    api_ = record.api;
    foreign_device_ = array.device;
    family_ = record.api != nullptr                 ? Family::exchange
              : record.is_cupy                      ? Family::cupy
              : record.protocol == Protocol::dlpack ? Family::dlpack
                                                    : Family::cuda;
    if (reading.located.type != array.device.type || reading.located.id != array.device.id) {
        reading.located = {};
        if (!locate(argument, array.device, &reading.location)) return false;
        reading.located = array.device;
    }
    access_.location = reading.location;
    access_.has_producer = array.has_producer;
    access_.producer = array.producer;
    if (array.own != nullptr && access_.location.reachable && is_array(argument.state, array.own)) {
        access_.storage = array_of(array.own)->storage;  // which orders the work on an Array that is lent
        access_.storage->record_returned();
    }
    access_.set_object(object, family_ == Family::cuda ? object : static_cast<void *>(Py_TYPE(object)));
    if (!array.reused_in_order) access_.holder = keeper_ ? keeper_.get() : object;
    access_.view.type = array.type;
    writable_ = !array.read_only;
    is_copy_ = array.is_copy;
    return set_memory(argument, array.data, array.ndim, array.shape, array.strides, size_of(array.type));
}

bool Operand::take_result(const ArgumentInfo &argument, PyObject *object, ElementType type) noexcept {
    object_ = object;
    access_.name = argument.name;
    if (is_array(argument.state, object)) return read_own(object);
    PyArrayObject *array = as_array(object);
    access_.view.type = type;
    access_.holder = object;
    family_ = Family::numpy;
    writable_ = true;
    return set_memory(argument, PyArray_DATA(array), PyArray_NDIM(array),
                      reinterpret_cast<const std::int64_t *>(PyArray_DIMS(array)),
                      reinterpret_cast<const std::int64_t *>(PyArray_STRIDES(array)), size_of(type)) &&
           make_writable(argument);
}

bool Operand::take_fresh(const ArgumentInfo &argument, PyObject *object, const ForeignArray &array,
                         const Operand &like) noexcept {
    object_ = object;
    access_.name = argument.name;
    api_ = like.api_;
    foreign_device_ = array.device;
    family_ = like.family_;
    writable_ = true;
    access_.location = like.access_.location;
    access_.set_object(object, like.access_.library);
    access_.has_producer = like.access_.has_producer;
    access_.producer = like.access_.producer;
    access_.view.type = array.type;
    return set_memory(argument, array.data, array.ndim, array.shape, array.strides, size_of(array.type)) &&
           make_writable(argument);
}

bool Operand::read_buffer(const ArgumentInfo &argument, PyObject *object) noexcept {
    if (!buffer_.acquire(object, PyBUF_RECORDS_RO)) return false;
    const Py_buffer &buffer = buffer_.get();
    const Format format = element_type_of(buffer.format, buffer.itemsize, &access_.view.type);
    if (format == Format::byte_swapped) return refuse_byte_order(argument);
    untyped_ = format == Format::untyped;
    if (untyped_ && buffer.itemsize == 1) {  // bytes, which may stand for anything: 8-bit integers
        access_.view.type = buffer.format != nullptr && std::strchr(buffer.format, 'b') != nullptr
                                ? ElementType::int8
                                : ElementType::uint8;
    } else if (format != Format::known) {
        const PyRef name = PyRef::steal(PyUnicode_FromFormat(
            "'%s' of %zd bytes", buffer.format == nullptr ? "B" : buffer.format, buffer.itemsize));
        return name && refuse_element_type(argument, name.get(), "");
    }
    family_ = Family::numpy;
    writable_ = buffer.readonly == 0;
    access_.holder = object;
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxDims];
    std::int64_t stride = buffer.itemsize;
    for (int i = buffer.ndim - 1; i >= 0 && buffer.ndim <= kMaxDims; --i) {
        shape[i] = buffer.shape[i];
        strides[i] = buffer.strides != nullptr ? buffer.strides[i] : stride;
        stride *= buffer.shape[i];
    }
    return set_memory(argument, buffer.buf, buffer.ndim, shape, strides, buffer.itemsize);
}

bool Operand::read_numpy_scalar(const ArgumentInfo &argument, PyObject *object) noexcept {
    const PyRef descr = PyRef::steal(reinterpret_cast<PyObject *>(PyArray_DescrFromScalar(object)));
    if (!descr) return false;
    if (!element_type_of(argument.state, reinterpret_cast<PyArray_Descr *>(descr.get()), &access_.view.type))
        return refuse_element_type(argument, descr.get(), "");
    access_.view.immediate = true;
    if (numpy_type_of(access_.view.type) >= 0) {
        PyArray_ScalarAsCtype(object, access_.view.value.bytes);
        return true;
    }
    // A type that another package has given NumPy: only its array knows how a scalar is stored.
    const PyRef array = PyRef::steal(PyArray_FromScalar(object, nullptr));
    if (!array) return false;
    std::memcpy(access_.view.value.bytes, PyArray_DATA(as_array(array)),
                static_cast<std::size_t>(size_of(type())));
    return true;
}

bool Operand::set_memory(const ArgumentInfo &argument, void *data, int ndim, const std::int64_t *shape,
                         const std::int64_t *strides, std::int64_t item_size) noexcept {
    if (ndim > kMaxDims) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %d dimensions; at most %d are supported", argument.function,
                     argument.name, ndim, kMaxDims);
        return false;
    }
    TensorView &view = access_.view;
    view.data = data;
    view.ndim = ndim;
    // Sizes and alignments are powers of two: divisions would take longer than the rest of this.
    const int shift = __builtin_ctzll(static_cast<unsigned long long>(item_size));
    aligned_ =
        (reinterpret_cast<std::uintptr_t>(data) & static_cast<std::uintptr_t>(alignment_of(view.type) - 1)) == 0;
    for (int i = 0; i < ndim; ++i) {
        layout_shape_[i] = view.shape[i] = shape[i];
        byte_strides_[i] = strides[i];
        view.strides[i] = strides[i] >> shift;
        if (shape[i] > 1 && (strides[i] & (item_size - 1)) != 0) aligned_ = false;
    }
    std::int64_t bytes = 0;
    if (!checked_size(argument.function, argument.name, ndim, view.shape, size_of(view.type), &bytes))
        return false;
    layout_ = {data, item_size, ndim, layout_shape_, byte_strides_};
    if (ndim == 0 && !access_.location.reachable) {  // its value travels with the call
        view.immediate = true;
        std::memcpy(view.value.bytes, data, static_cast<std::size_t>(item_size));
    }
    return true;
}

PyRef Operand::ndarray() const noexcept {
    if (object_ == nullptr || PyArray_CheckExact(object_)) return PyRef::borrow(object_);
    // A subclass may have NumPy call it back: what it does to products is not ours to know.
    if (PyArray_Check(object_)) return PyRef::steal(PyArray_View(as_array(object_), nullptr, &PyArray_Type));
    if (buffer_.held()) return PyRef::steal(PyArray_FromAny(object_, nullptr, 0, 0, 0, nullptr));
    // Another library's memory on the host, or an Array's: a view, valid while this operand lives.
    const int number = numpy_type_of(access_.view.type);
    if (number < 0) {
        raise_no_bfloat16("ndarray");
        return {};
    }
    npy_intp shape[kMaxDims];
    npy_intp strides[kMaxDims];
    for (int i = 0; i < layout_.ndim; ++i) {
        shape[i] = layout_.shape[i];
        strides[i] = layout_.stride(i);
    }
    return PyRef::steal(PyArray_New(&PyArray_Type, layout_.ndim, shape, number, strides,
                                    const_cast<void *>(layout_.data), 0, writable_ ? NPY_ARRAY_WRITEABLE : 0,
                                    nullptr));
}

// An operand whose elements do not lie where the type wants them is worked on in an aligned copy. On a device
// there is none: the producer has broken its protocol.
bool Operand::use_aligned_copy(const ArgumentInfo &argument) noexcept {
    if (access_.view.immediate) return true;
    if (access_.location.reachable) {
        PyErr_Format(PyExc_ValueError, "%s: %s is not aligned to its elements of %d bytes", argument.function,
                     argument.name, size_of(access_.view.type));
        return false;
    }
    const PyRef own = ndarray();
    if (!own) return false;
    copy_ = PyRef::steal(PyArray_NewCopy(as_array(own), NPY_CORDER));
    if (!copy_) return false;
    access_.view.data = PyArray_DATA(as_array(copy_));
    set_contiguous(access_.view);
    return true;
}

bool Operand::check_unchanged(const char *function) const noexcept {
    const void *data = layout_.data;
    int ndim = layout_.ndim;
    const std::int64_t *shape = layout_.shape;
    const std::int64_t *strides = layout_.strides;  // in units of `scale` bytes
    std::int64_t scale = layout_.stride_unit;
    bool same_type = true;
    dlpack::Tensor tensor{};
    if (family_ == Family::numpy && PyArray_Check(object_)) {
        PyArrayObject *array = as_array(object_);
        data = PyArray_DATA(array);
        ndim = PyArray_NDIM(array);
        shape = reinterpret_cast<const std::int64_t *>(PyArray_DIMS(array));
        strides = reinterpret_cast<const std::int64_t *>(PyArray_STRIDES(array));
        scale = 1;
        same_type = PyArray_ITEMSIZE(array) == layout_.item_size;
    } else if (family_ == Family::exchange && !keeper_ && has_memory() && api_->tensor_from_object != nullptr) {
        if (api_->tensor_from_object(object_, &tensor) != 0) return false;
        data = static_cast<char *>(tensor.data) + tensor.byte_offset;
        ndim = tensor.ndim;
        shape = tensor.shape;
        strides = tensor.strides;
        scale = layout_.item_size;
        same_type = tensor.dtype.bits == 8 * layout_.item_size;
    }
    bool same = data == layout_.data && ndim == layout_.ndim && same_type;
    for (int i = 0; same && i < ndim; ++i)
        same = shape[i] == layout_.shape[i] &&
               (strides == nullptr || shape[i] <= 1 || strides[i] * scale == layout_.stride(i));
    if (!same)
        PyErr_Format(
            PyExc_RuntimeError,
            "%s: %s has been given other memory or another shape by code that ran while the operands were "
            "read, as in another operand's __dlpack__",
            function, access_.name);
    return same;
}

bool Operand::finish_out() noexcept {
    if (!copy_) return true;
    const PyRef own = ndarray();
    return own && PyArray_CopyInto(as_array(own), as_array(copy_)) == 0;
}

bool describe(ModuleState &state, const char *function, const char *argument, PyObject *object,
              Description *description) noexcept {
    Backend backend;
    ReadContext reading;
    Operand a;
    if (!ensure_backend(state, function, &backend) || !a.read({state, function, argument}, object, reading))
        return false;
    description->type = a.weak() == Weak::none ? a.type() : weak_type(a.weak());
    description->shape = Shape(a.view().ndim, a.view().shape);
    return true;
}

}  // namespace cukern::py
