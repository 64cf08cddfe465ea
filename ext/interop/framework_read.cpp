// Other libraries' arrays read: through the exchange API, a capsule, __cuda_array_interface__.
#include "base/python.h"

#include "interop/frameworks.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "interop/array_exchange.h"
#include "types/element_types.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

template <typename Managed>
void delete_managed(PyObject *capsule) {
    auto *managed = static_cast<Managed *>(PyCapsule_GetPointer(capsule, nullptr));
    const HeldError held;  // the array may be given up because something failed
    if (managed->deleter != nullptr) managed->deleter(managed);
}

// -1 with an exception; 0 where there is no such method.
int call_bool_method(const BoolMethod &bool_method, PyObject *object) noexcept {
    if (bool_method.method == nullptr) return 0;
    const PyRef answer = PyRef::steal(bool_method.function != nullptr
                                          ? bool_method.function(object, nullptr)
                                          : PyObject_CallFunctionObjArgs(bool_method.method, object, nullptr));
    return answer ? Py_IsTrue(answer.get()) : -1;
}

PyRef value_of(const AttributeGetter &getter, PyObject *object) noexcept {
    return PyRef::steal(getter.get != nullptr ? getter.get(object, getter.closure)
                                              : PyObject_GetAttrString(object, getter.name));
}

// Whether torch's negative bit may be set: only on the imaginary part of a conjugated tensor, which is strided or
// starts inside a complex number. Elsewhere is_neg() is skipped, since it releases the GIL.
bool may_be_negative(const TypeRecord &record, const ForeignArray &array) noexcept {
    const std::int64_t size = size_of(array.type);
    std::int64_t dense = size;
    for (int i = array.ndim - 1; i >= 0; --i) {
        if (array.shape[i] != 1 && array.strides[i] != dense) return true;
        dense *= array.shape[i];
    }
    const auto address = reinterpret_cast<std::uintptr_t>(array.data);
    return !record.is_torch || dense == size || (address & static_cast<std::uintptr_t>(2 * size - 1)) != 0;
}

// What torch's __dlpack__ checks, and its exchange API does not.
bool check_torch(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object,
                 const ForeignArray &array) noexcept {
    if (record.requires_grad.name != nullptr && (is_floating(array.type) || kind_of(array.type) == 'c')) {
        const PyRef requires_grad = value_of(record.requires_grad, object);
        if (!requires_grad) return false;
        if (Py_IsTrue(requires_grad.get()) != 0) {
            PyObject *torch = PyDict_GetItemString(argument.state.modules, "torch");
            const PyRef enabled =
                torch != nullptr ? PyRef::steal(PyObject_CallMethod(torch, "is_grad_enabled", nullptr)) : PyRef();
            if (!enabled && !clear_lookup_error()) return false;
            if (!enabled || Py_IsTrue(enabled.get()) != 0)
                return refuse(argument,
                              "requires gradients, which cukern does not record; pass x.detach(), or call under "
                              "torch.no_grad()");
        }
    }
    const int negative = may_be_negative(record, array) ? call_bool_method(record.is_neg, object) : 0;
    if (negative > 0)
        refuse(argument, "has its negative bit set: its memory holds other values; pass x.resolve_neg()");
    if (negative != 0) return false;
    const int conjugate = kind_of(array.type) == 'c' ? call_bool_method(record.is_conj, object) : 0;
    if (conjugate > 0)
        refuse(argument, "has its conjugate bit set: its memory holds other values; pass x.resolve_conj()");
    return conjugate == 0;
}

// For `out`: the managed form tells whether it may be written. torch has no read-only tensors.
bool read_flags(const TypeRecord &record, PyObject *object, ForeignArray *array) noexcept {
    dlpack::ManagedTensorVersioned *managed = nullptr;
    if (record.api->managed_from_object(object, &managed) != 0 || managed == nullptr) return false;
    array->read_only = (managed->flags & dlpack::kReadOnly) != 0;
    if (managed->deleter != nullptr) managed->deleter(managed);
    return true;
}

// The owner of a tensor; null with an exception set: the tensor is deleted then.
PyRef keeper_of(dlpack::ManagedTensorVersioned *managed) noexcept {
    PyRef keeper = PyRef::steal(PyCapsule_New(managed, nullptr, delete_managed<dlpack::ManagedTensorVersioned>));
    if (!keeper && managed->deleter != nullptr) managed->deleter(managed);
    return keeper;
}

// What another library raises for arrays that have no plain memory (sparse, meta, fake) may be of any type and
// length.
bool raised(const ArgumentInfo &argument) noexcept {
    CaughtError error;
    if (!error.is_ordinary()) {
        error.restore();
        return false;
    }
    const char *reason = error.text();
    char first[400] = "";  // its first line
    if (reason != nullptr)
        std::snprintf(first, sizeof first, ": %.*s", static_cast<int>(std::strcspn(reason, "\r\n")), reason);
    PyErr_Format(PyExc_TypeError,
                 "%s: %s has no memory that could be read in place (a sparse, fake or lazy tensor?)%s",
                 argument.function, argument.name, first);
    return false;
}

bool read_by_exchange(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object,
                      ReadContext &reading, bool writes, ForeignArray *array) noexcept {
    if (record.api->tensor_from_object != nullptr) {
        dlpack::Tensor tensor{};
        if (record.api->tensor_from_object(object, &tensor) != 0) return raised(argument);
        if (!read_tensor(argument, tensor, array)) return false;
        if (writes && !record.is_torch && !read_flags(record, object, array)) return raised(argument);
    } else {
        dlpack::ManagedTensorVersioned *managed = nullptr;
        if (record.api->managed_from_object(object, &managed) != 0 || managed == nullptr) return raised(argument);
        array->keeper = keeper_of(managed);
        if (!array->keeper) return false;
        array->read_only = (managed->flags & dlpack::kReadOnly) != 0;
        if (!read_tensor(argument, managed->tensor, array)) return false;
    }
    if (!check_torch(argument, record, object, *array)) return false;
    if (array->device.type == dlpack::kCPU) return true;
    if (reading.api != record.api || reading.device.type != array->device.type ||
        reading.device.id != array->device.id) {
        void *handle = nullptr;
        if (record.api->current_stream(array->device.type, array->device.id, &handle) != 0)
            return raised(argument);
        const Status status = stream_ref(handle, array->device.id, &reading.producer);
        if (status != CUKERN_OK) {
            raise_status(argument.state, argument.function, status);
            return false;
        }
        reading.api = record.api;
        reading.device = array->device;
    }
    array->producer = reading.producer;
    array->has_producer = array->reused_in_order = true;
    return true;
}

// JAX exports no bfloat16 from the CPU by DLPack; its __array__ is a view of ml_dtypes' element type.
bool read_by_array(const ArgumentInfo &argument, PyObject *object, ForeignArray *array) noexcept {
    PyRef view = PyRef::steal(PyObject_CallMethod(object, "__array__", nullptr));
    if (!view) return false;
    if (!PyArray_Check(view.get()) || PyArray_NDIM(as_array(view)) > kMaxDims ||
        !element_type_of(argument.state, PyArray_DESCR(as_array(view)), &array->type))
        return refuse(argument, "cannot be read by __dlpack__, nor by __array__");
    PyArrayObject *own = as_array(view);
    array->data = PyArray_DATA(own);
    array->device = {dlpack::kCPU, 0};
    array->ndim = PyArray_NDIM(own);
    for (int i = 0; i < array->ndim; ++i) {
        array->shape[i] = PyArray_DIM(own, i);
        array->strides[i] = PyArray_STRIDE(own, i);
    }
    array->keeper = std::move(view);
    return true;
}

bool read_by_dlpack(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object,
                    const StreamRef &consumer, ForeignArray *array) noexcept {
    dlpack::Device where{};
    Location location;
    if (!ask_device(argument, object, &where) || !locate(argument, where, &location)) return false;
    const bool on_device = where.type != dlpack::kCPU;
    StreamRef ready = consumer;
    if (on_device && ready.device != location.device) {
        ready = {};
        ready.device = location.device;
    }
    const PyRef capsule =
        call_dlpack(argument.state, object, takes_stream(where) ? &ready : nullptr, Py_None, nullptr);
    if (!capsule && record.is_jax && !on_device && PyErr_ExceptionMatches(PyExc_BufferError) != 0) {
        PyErr_Clear();
        return read_by_array(argument, object, array);
    }
    if (!capsule || !read_capsule(argument, capsule.get(), CapsuleUse::operand, nullptr, array)) return false;
    array->has_producer = on_device;
    array->producer = ready;
    return true;
}

}  // namespace

void delete_tensor(dlpack::ManagedTensorVersioned *managed) noexcept {
    const HeldError held;
    if (managed->deleter != nullptr) managed->deleter(managed);
}

bool refuse(const ArgumentInfo &argument, const char *what) noexcept {
    PyErr_Format(PyExc_TypeError, "%s: %s %s", argument.function, argument.name, what);
    return false;
}

bool read_tensor(const ArgumentInfo &argument, const dlpack::Tensor &tensor, ForeignArray *array) noexcept {
    if (tensor.ndim < 0 || tensor.ndim > kMaxDims) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %d dimensions; at most %d are supported", argument.function,
                     argument.name, tensor.ndim, kMaxDims);
        return false;
    }
    if (!element_type_of(tensor.dtype, &array->type)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: %s has DLPack's element type (code %d, %d bits, %d lanes); supported are %s",
                     argument.function, argument.name, tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes,
                     all_element_types());
        return false;
    }
    if (tensor.ndim > 0 && tensor.shape == nullptr)
        return refuse(argument, "is a DLPack tensor of some dimensions without a shape");
    array->device = tensor.device;
    array->ndim = tensor.ndim;
    const std::int64_t size = size_of(array->type);
    std::int64_t stride = size;
    bool empty = false;
    for (int i = 0; i < tensor.ndim; ++i) empty = empty || tensor.shape[i] == 0;
    for (int i = tensor.ndim - 1; i >= 0; --i) {
        array->shape[i] = tensor.shape[i];
        array->strides[i] = stride;
        const bool fits =
            tensor.strides != nullptr
                ? !__builtin_mul_overflow(tensor.strides[i], size, &array->strides[i])
                : !__builtin_mul_overflow(stride, std::max<std::int64_t>(tensor.shape[i], 1), &stride);
        if (!fits && tensor.shape[i] > 1 && !empty) {
            if (tensor.strides == nullptr)
                raise_too_large(argument.function, argument.name, tensor.ndim, tensor.shape);
            else
                PyErr_Format(PyExc_ValueError, "%s: %s has longer strides than memory can hold", argument.function,
                             argument.name);
            return false;
        }
    }
    if (tensor.data == nullptr && !empty)
        return refuse(argument, "has elements, but no memory (a fake or lazy tensor)");
    array->data = tensor.data == nullptr ? nullptr : static_cast<char *>(tensor.data) + tensor.byte_offset;
    return true;
}

namespace {

// An exception of a short way is dropped, since the long way meets its cause again; an interrupt is kept.
bool leave_to_long_way() noexcept {
    CaughtError error;
    if (!error.is_ordinary()) error.restore();
    return false;
}

}  // namespace

bool glance_at_tensor(const TypeRecord &record, PyObject *object, dlpack::Tensor *tensor,
                      ElementType *type) noexcept {
    if (record.api == nullptr || record.api->tensor_from_object == nullptr) return false;
    if (record.api->tensor_from_object(object, tensor) != 0) return leave_to_long_way();
    if (!element_type_of(tensor->dtype, type) || tensor->data == nullptr || tensor->strides == nullptr)
        return false;
    const auto address = reinterpret_cast<std::uintptr_t>(tensor->data) + tensor->byte_offset;
    return address % static_cast<std::uintptr_t>(2 * size_of(*type)) == 0;  // see may_be_negative
}

bool is_without_gradients(const TypeRecord &record, PyObject *object, ElementType type) noexcept {
    if (record.requires_grad.name == nullptr || !(is_floating(type) || kind_of(type) == 'c')) return true;
    const PyRef requires_grad = value_of(record.requires_grad, object);
    return requires_grad ? requires_grad.get() == Py_False : leave_to_long_way();
}

bool current_stream_of(const TypeRecord &record, int device, void **handle) noexcept {
    return record.api->current_stream(dlpack::kCUDA, device, handle) == 0 || leave_to_long_way();
}

bool check_memory(const ArgumentInfo &argument, ForeignArray *array) noexcept {
    if (array->bytes >= 0) return true;
    const int size = size_of(array->type);
    const auto address = reinterpret_cast<std::uintptr_t>(array->data);
    bool aligned = address % static_cast<std::uintptr_t>(alignment_of(array->type)) == 0;
    for (int i = 0; i < array->ndim; ++i)
        if (array->shape[i] > 1 && array->strides[i] % size != 0) aligned = false;
    if (!aligned) {
        PyErr_Format(PyExc_BufferError, "%s: %s is not aligned to its elements of %d bytes", argument.function,
                     argument.name, size);
        return false;
    }
    std::int64_t bytes = 0;
    if (!checked_size(argument.function, argument.name, array->ndim, array->shape, size, &bytes)) return false;
    array->bytes = bytes;
    return true;
}

bool check_foreign(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object,
                   const ForeignArray &array) noexcept {
    return record.api == nullptr || check_torch(argument, record, object, array);
}

bool import_by_exchange(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object,
                        ForeignArray *array, bool *imported) noexcept {
    *imported = false;
    dlpack::ManagedTensorVersioned *managed = nullptr;
    if (record.api->managed_from_object(object, &managed) != 0 || managed == nullptr) {
        CaughtError error;
        if (error.is_ordinary()) return true;
        error.restore();
        return false;
    }
    array->tensor.take(managed);
    if (!read_tensor(argument, managed->tensor, array) || !check_memory(argument, array)) return false;
    array->read_only = (managed->flags & dlpack::kReadOnly) != 0;
    array->is_copy = (managed->flags & dlpack::kIsCopied) != 0;
    array->own = lender_of(*managed);
    *imported = true;
    return array->is_copy || check_torch(argument, record, object, *array);
}

bool read_foreign(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object, ReadContext &reading,
                  bool writes, ForeignArray *array) noexcept {
    switch (record.protocol) {
        case Protocol::exchange: return read_by_exchange(argument, record, object, reading, writes, array);
        case Protocol::cuda: return read_by_interface(argument, record, object, array);
        case Protocol::dlpack:
            if (!read_by_dlpack(argument, record, object, reading.consumer, array)) return false;
            array->read_only = array->read_only || record.is_jax;
            return true;
        case Protocol::other: break;
    }
    PyErr_SetString(PyExc_SystemError, "read_foreign: a type without a protocol");
    return false;
}

namespace {

// Takes over a capsule's tensor after all checks: until then the capsule stays as it was, and its owner deletes
// it.
template <typename Managed>
bool take_capsule(const ArgumentInfo &argument, PyObject *capsule, const char *used_name, CapsuleUse use,
                  ImportStream *stream, Managed *managed, ForeignArray *array) noexcept {
    Location location;
    if (!read_tensor(argument, managed->tensor, array)) return false;
    if (use == CapsuleUse::array &&
        (!locate(argument, array->device, &location) || !check_memory(argument, array)))
        return false;
    if (stream != nullptr && !stream->fit(argument, location)) return false;
    PyRef keeper = PyRef::steal(PyCapsule_New(managed, nullptr, nullptr));
    if (!keeper || PyCapsule_SetName(capsule, used_name) != 0) return false;
    PyCapsule_SetDestructor(keeper.get(), delete_managed<Managed>);
    array->keeper = std::move(keeper);
    array->own = lender_of(*managed);
    return true;
}

}  // namespace

bool ImportStream::fit(const ArgumentInfo &argument, const Location &location) noexcept {
    if (!location.reachable || stream->device == location.device) return true;
    const bool must_fit = is_named && location.kind == MemoryKind::device;
    if (must_fit && stream->owner != nullptr)
        return check_stream_device(argument.function, stream, location.device);
    StreamRef fitted;
    const Status status = stream_ref(must_fit ? stream->handle : nullptr, location.device, &fitted);
    if (status == CUKERN_OK)
        stream = fitted;
    else
        raise_status(argument.state, argument.function, status);
    return status == CUKERN_OK;
}

bool read_capsule(const ArgumentInfo &argument, PyObject *capsule, CapsuleUse use, ImportStream *stream,
                  ForeignArray *array) noexcept {
    if (PyCapsule_IsValid(capsule, dlpack::kVersionedName) != 0) {
        auto *managed =
            static_cast<dlpack::ManagedTensorVersioned *>(PyCapsule_GetPointer(capsule, dlpack::kVersionedName));
        if (managed->version.major != dlpack::kMajor) {  // left unused: its owner's destructor deletes it
            PyErr_Format(PyExc_BufferError, "%s: %s is a DLPack capsule of version %u.%u; 1.x is supported",
                         argument.function, argument.name, managed->version.major, managed->version.minor);
            return false;
        }
        array->read_only = (managed->flags & dlpack::kReadOnly) != 0;
        array->is_copy = (managed->flags & dlpack::kIsCopied) != 0;
        return take_capsule(argument, capsule, dlpack::kVersionedUsedName, use, stream, managed, array);
    }
    if (PyCapsule_IsValid(capsule, dlpack::kLegacyName) != 0) {
        auto *managed = static_cast<dlpack::ManagedTensor *>(PyCapsule_GetPointer(capsule, dlpack::kLegacyName));
        return take_capsule(argument, capsule, dlpack::kLegacyUsedName, use, stream, managed, array);
    }
    const bool used = PyCapsule_IsValid(capsule, dlpack::kLegacyUsedName) != 0 ||
                      PyCapsule_IsValid(capsule, dlpack::kVersionedUsedName) != 0;
    PyErr_Format(
        used ? PyExc_ValueError : PyExc_TypeError, "%s: %s %s", argument.function, argument.name,
        used ? "is a DLPack capsule that has been used; one capsule makes one array" : "gave no DLPack capsule");
    return false;
}

}  // namespace cukern::py
