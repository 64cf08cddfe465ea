// Other libraries' arrays read: through the exchange API, a capsule, __cuda_array_interface__.
#include "python.h"

#include "frameworks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "element_types.h"
#include "errors.h"
#include "lending.h"
#include "shapes.h"

namespace cukern::py {
namespace {

template <typename Managed>
void delete_managed(PyObject *capsule) {
    auto *managed = static_cast<Managed *>(PyCapsule_GetPointer(capsule, nullptr));
    const HeldError held;  // the array may be given up because something failed
    if (managed->deleter != nullptr) managed->deleter(managed);
}

// -1 with an exception; 0 where there is no such method.
int ask(const Question &question, PyObject *object) noexcept {
    if (question.method == nullptr) return 0;
    const PyRef answer = PyRef::steal(question.function != nullptr
                                          ? question.function(object, nullptr)
                                          : PyObject_CallFunctionObjArgs(question.method, object, nullptr));
    return answer ? Py_IsTrue(answer.get()) : -1;
}

PyRef value_of(const Getter &getter, PyObject *object) noexcept {
    return PyRef::steal(getter.get != nullptr ? getter.get(object, getter.closure)
                                              : PyObject_GetAttrString(object, getter.name));
}

// Whether memory may be that of other values, by torch's negative bit. It comes from the imaginary part of a
// conjugate: elements that lie apart, the first of them the second half of a complex number, which as_strided()
// by itself does not change. Asking, which releases the GIL there, is left out where neither is so.
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
bool check_torch(const Place &place, const TypeRecord &record, PyObject *object,
                 const ForeignArray &array) noexcept {
    if (record.requires_grad.name != nullptr && (is_floating(array.type) || kind_of(array.type) == 'c')) {
        const PyRef requires_grad = value_of(record.requires_grad, object);
        if (!requires_grad) return false;
        if (Py_IsTrue(requires_grad.get()) != 0) {
            PyObject *torch = PyDict_GetItemString(place.state.modules, "torch");
            const PyRef enabled =
                torch != nullptr ? PyRef::steal(PyObject_CallMethod(torch, "is_grad_enabled", nullptr)) : PyRef();
            if (!enabled && !clear_absence()) return false;
            if (!enabled || Py_IsTrue(enabled.get()) != 0)
                return refuse(place,
                              "requires gradients, which cukern does not record; pass x.detach(), or call under "
                              "torch.no_grad()");
        }
    }
    const int negative = may_be_negative(record, array) ? ask(record.is_neg, object) : 0;
    if (negative > 0)
        refuse(place, "has its negative bit set: its memory holds other values; pass x.resolve_neg()");
    if (negative != 0) return false;
    const int conjugate = kind_of(array.type) == 'c' ? ask(record.is_conj, object) : 0;
    if (conjugate > 0)
        refuse(place, "has its conjugate bit set: its memory holds other values; pass x.resolve_conj()");
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

// What another library raises for arrays that have no plain memory (sparse, meta, fake) may be of any type and
// length.
bool raised(const Place &place) noexcept {
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
                 place.function, place.argument, first);
    return false;
}

bool read_by_exchange(const Place &place, const TypeRecord &record, PyObject *object, Reading &reading,
                      bool writes, ForeignArray *array) noexcept {
    if (record.api->tensor_from_object != nullptr) {
        dlpack::Tensor tensor{};
        if (record.api->tensor_from_object(object, &tensor) != 0) return raised(place);
        if (!read_tensor(place, tensor, array)) return false;
        if (writes && !record.is_torch && !read_flags(record, object, array)) return raised(place);
    } else {
        dlpack::ManagedTensorVersioned *managed = nullptr;
        if (record.api->managed_from_object(object, &managed) != 0 || managed == nullptr) return raised(place);
        array->keeper =
            PyRef::steal(PyCapsule_New(managed, nullptr, delete_managed<dlpack::ManagedTensorVersioned>));
        if (!array->keeper) {
            if (managed->deleter != nullptr) managed->deleter(managed);
            return false;
        }
        array->read_only = (managed->flags & dlpack::kReadOnly) != 0;
        if (!read_tensor(place, managed->tensor, array)) return false;
    }
    if (!check_torch(place, record, object, *array)) return false;
    if (array->device.type == dlpack::kCPU) return true;
    if (reading.api != record.api || reading.device.type != array->device.type ||
        reading.device.id != array->device.id) {
        void *handle = nullptr;
        if (record.api->current_stream(array->device.type, array->device.id, &handle) != 0) return raised(place);
        const Status status = stream_ref(handle, array->device.id, &reading.producer);
        if (status != CUKERN_OK) {
            raise_status(place.state, place.function, status);
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
bool read_by_array(const Place &place, PyObject *object, ForeignArray *array) noexcept {
    PyRef view = PyRef::steal(PyObject_CallMethod(object, "__array__", nullptr));
    if (!view) return false;
    if (!PyArray_Check(view.get()) || PyArray_NDIM(as_array(view)) > kMaxDims ||
        !element_type_of(place.state, PyArray_DESCR(as_array(view)), &array->type))
        return refuse(place, "cannot be read by __dlpack__, nor by __array__");
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

bool read_by_dlpack(const Place &place, const TypeRecord &record, PyObject *object, const StreamRef &consumer,
                    ForeignArray *array) noexcept {
    dlpack::Device where{};
    Location location;
    if (!ask_device(place, object, &where) || !locate(place, where, &location)) return false;
    const bool on_device = where.type != dlpack::kCPU;
    StreamRef ready = consumer;
    if (on_device && ready.device != location.device) {
        ready = {};
        ready.device = location.device;
    }
    const PyRef capsule =
        call_dlpack(place.state, object, takes_stream(where) ? &ready : nullptr, Py_None, nullptr);
    if (!capsule && record.is_jax && !on_device && PyErr_ExceptionMatches(PyExc_BufferError) != 0) {
        PyErr_Clear();
        return read_by_array(place, object, array);
    }
    if (!capsule || !read_capsule(place, capsule.get(), CapsuleUse::operand, array)) return false;
    array->has_producer = on_device;
    array->producer = ready;
    return true;
}

// --- __cuda_array_interface__ ---

bool bad_interface(const Place &place, const char *what) noexcept {
    if (!clear_absence()) return false;
    PyErr_Format(PyExc_TypeError, "%s: %s has a __cuda_array_interface__ whose %s cannot be read", place.function,
                 place.argument, what);
    return false;
}

bool read_integers(PyObject *tuple, int ndim, std::int64_t *values) noexcept {
    for (int i = 0; i < ndim; ++i) {
        values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (values[i] == -1 && PyErr_Occurred() != nullptr) return false;
    }
    return true;
}

bool read_typestr(const Place &place, PyObject *typestr, ElementType *type) noexcept {
    Py_ssize_t length = 0;
    const char *text =
        typestr != nullptr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, &length) : nullptr;
    if (text == nullptr || length < 3) return bad_interface(place, "typestr");
    if (text[0] == '>') {
        PyErr_Format(PyExc_TypeError, "%s: %s is byte-swapped; convert it to native byte order first",
                     place.function, place.argument);
        return false;
    }
    const int size = static_cast<int>(std::strtol(text + 2, nullptr, 10));
    for (int i = 0; i < kNumElementTypes; ++i) {
        const auto own = static_cast<ElementType>(i);
        if (kind_of(own) != text[1] || size_of(own) != size || own == ElementType::bfloat16) continue;
        *type = own;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s: %s has element type '%s'; supported are %s", place.function, place.argument,
                 text, all_element_types());
    return false;
}

// CuPy's interface calls bfloat16 two bytes of unknown meaning; its dtype is that of ml_dtypes. False with an
// exception set.
bool find_bfloat16(const ModuleState &state, PyObject *typestr, PyObject *object, ElementType *type,
                   bool *found) noexcept {
    if (typestr == nullptr || !PyUnicode_Check(typestr) || PyUnicode_CompareWithASCIIString(typestr, "<V2") != 0)
        return true;
    const PyRef dtype = PyRef::steal(PyObject_GetAttrString(object, "dtype"));
    if (!dtype) return clear_absence();
    *found = PyArray_DescrCheck(dtype.get()) &&
             element_type_of(state, reinterpret_cast<PyArray_Descr *>(dtype.get()), type);
    return true;
}

// The items of the interface, owned: an __index__ of one of them may change the dict.
struct InterfaceItems {
    PyRef shape;
    PyRef strides;
    PyRef data;
    PyRef mask;
    PyRef typestr;
    PyRef stream;

    bool take(const ModuleState &state, PyObject *interface) noexcept {
        const auto get = [&](PyObject *name, PyRef *item) {
            *item = PyRef::borrow(PyDict_GetItemWithError(interface, name));
            return *item || PyErr_Occurred() == nullptr;
        };
        return get(state.name_shape, &shape) && get(state.name_strides, &strides) && get(state.name_data, &data) &&
               get(state.name_mask, &mask) && get(state.name_typestr, &typestr) && get(state.name_stream, &stream);
    }
};

bool read_interface_stream(const Place &place, PyObject *stream, const TypeRecord &record,
                           ForeignArray *array) noexcept {
    if (stream == nullptr || Py_IsNone(stream) != 0) return true;
    void *handle = PyLong_AsVoidPtr(stream);
    if (handle == nullptr) {
        if (PyErr_Occurred() != nullptr) return bad_interface(place, "stream");
        PyErr_Format(PyExc_ValueError,
                     "%s: %s names stream 0 in its __cuda_array_interface__, which is ambiguous; 1 is the legacy "
                     "default stream",
                     place.function, place.argument);
        return false;
    }
    StreamRef producer;
    const Status status = stream_ref(handle, array->device.id, &producer);
    array->producer = producer;
    if (status != CUKERN_OK) {
        raise_status(place.state, place.function, status);
        return false;
    }
    array->has_producer = true;
    array->reused_in_order = record.is_cupy;
    return true;
}

bool read_by_interface(const Place &place, const TypeRecord &record, PyObject *object,
                       ForeignArray *array) noexcept {
    const ModuleState &state = place.state;
    const PyRef interface = PyRef::steal(PyObject_GetAttr(object, state.name_cai));
    if (!interface) return false;
    Backend backend;
    if (active_backend(&backend) == CUKERN_OK && backend == Backend::host)
        return refuse(place, "is in a GPU's memory, and cukern uses its host back-end here");
    if (PyDict_Check(interface.get()) == 0) return bad_interface(place, "value, which is no dict,");
    InterfaceItems items;
    if (!items.take(state, interface.get())) return bad_interface(place, "items");
    PyObject *const shape = items.shape.get();
    PyObject *const strides = items.strides.get();
    PyObject *const data = items.data.get();
    PyObject *const typestr = items.typestr.get();
    if (items.mask && Py_IsNone(items.mask.get()) == 0) return refuse(place, "is masked, which is not supported");
    bool is_known = false;
    if (record.is_cupy && !find_bfloat16(state, typestr, object, &array->type, &is_known)) return false;
    if (!is_known && !read_typestr(place, typestr, &array->type)) return false;
    if (shape == nullptr || PyTuple_Check(shape) == 0 || PyTuple_Size(shape) > kMaxDims)
        return bad_interface(place, "shape");
    array->ndim = static_cast<int>(PyTuple_Size(shape));
    if (!read_integers(shape, array->ndim, array->shape)) return bad_interface(place, "shape");
    if (strides != nullptr && Py_IsNone(strides) == 0) {
        if (PyTuple_Check(strides) == 0 || PyTuple_Size(strides) != array->ndim ||
            !read_integers(strides, array->ndim, array->strides))
            return bad_interface(place, "strides");
    } else {
        std::int64_t stride = size_of(array->type);
        for (int i = array->ndim - 1; i >= 0; --i) {
            array->strides[i] = stride;
            if (__builtin_mul_overflow(stride, array->shape[i] > 0 ? array->shape[i] : 1, &stride))
                return bad_interface(place, "shape");
        }
    }
    if (data == nullptr || PyTuple_Check(data) == 0 || PyTuple_Size(data) != 2)
        return bad_interface(place, "data");
    array->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    if (array->data == nullptr && PyErr_Occurred() != nullptr) return bad_interface(place, "data");
    const int read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1));
    if (read_only < 0) return bad_interface(place, "data");
    array->read_only = read_only != 0;
    array->device = {dlpack::kCUDA, 0};
    bool empty = false;
    for (int i = 0; i < array->ndim; ++i) empty = empty || array->shape[i] == 0;
    if (array->data == nullptr && !empty) return refuse(place, "has elements, but no memory");
    if (empty) {
        array->data = nullptr;
        Status status = current_device(&array->device.id);
        if (status != CUKERN_OK) raise_status(state, place.function, status);
        if (status != CUKERN_OK) return false;
    } else {
        PointerInfo where;
        if (const Status status = pointer_info(array->data, &where); status != CUKERN_OK) {
            raise_status(state, place.function, status);
            return false;
        }
        if (!where.known)
            return refuse(place, "has a __cuda_array_interface__ whose pointer is of no memory that CUDA knows");
        array->device.id = where.device;
        if (where.kind == MemoryKind::managed) array->device.type = dlpack::kCUDAManaged;
        if (where.kind == MemoryKind::pinned) array->device.type = dlpack::kCUDAHost;
    }
    return read_interface_stream(place, items.stream.get(), record, array);
}

}  // namespace

bool refuse(const Place &place, const char *what) noexcept {
    PyErr_Format(PyExc_TypeError, "%s: %s %s", place.function, place.argument, what);
    return false;
}

bool read_tensor(const Place &place, const dlpack::Tensor &tensor, ForeignArray *array) noexcept {
    if (tensor.ndim < 0 || tensor.ndim > kMaxDims) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %d dimensions; at most %d are supported", place.function,
                     place.argument, tensor.ndim, kMaxDims);
        return false;
    }
    if (!element_type_of(tensor.dtype, &array->type)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: %s has DLPack's element type (code %d, %d bits, %d lanes); supported are %s",
                     place.function, place.argument, tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes,
                     all_element_types());
        return false;
    }
    if (tensor.ndim > 0 && tensor.shape == nullptr)
        return refuse(place, "is a DLPack tensor of some dimensions without a shape");
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
            PyErr_Format(PyExc_ValueError, "%s: %s has more elements, or longer strides, than memory can hold",
                         place.function, place.argument);
            return false;
        }
    }
    if (tensor.data == nullptr && !empty)
        return refuse(place, "has elements, but no memory (a fake or lazy tensor)");
    array->data = tensor.data == nullptr ? nullptr : static_cast<char *>(tensor.data) + tensor.byte_offset;
    return true;
}

bool check_memory(const Place &place, const ForeignArray &array, std::int64_t *bytes) noexcept {
    const int size = size_of(array.type);
    const auto address = reinterpret_cast<std::uintptr_t>(array.data);
    bool aligned = address % static_cast<std::uintptr_t>(alignment_of(array.type)) == 0;
    for (int i = 0; i < array.ndim; ++i)
        if (array.shape[i] > 1 && array.strides[i] % size != 0) aligned = false;
    if (!aligned) {
        PyErr_Format(PyExc_BufferError, "%s: %s is not aligned to its elements of %d bytes", place.function,
                     place.argument, size);
        return false;
    }
    if (checked_bytes(array.shape, array.ndim, size, bytes)) return true;
    PyErr_Format(PyExc_ValueError, "%s: %s has a negative length, or more elements than memory can hold",
                 place.function, place.argument);
    return false;
}

bool check_foreign(const Place &place, const TypeRecord &record, PyObject *object,
                   const ForeignArray &array) noexcept {
    return record.api == nullptr || check_torch(place, record, object, array);
}

bool read_foreign(const Place &place, const TypeRecord &record, PyObject *object, Reading &reading, bool writes,
                  ForeignArray *array) noexcept {
    switch (record.protocol) {
        case Protocol::exchange: return read_by_exchange(place, record, object, reading, writes, array);
        case Protocol::cuda: return read_by_interface(place, record, object, array);
        case Protocol::dlpack:
            if (!read_by_dlpack(place, record, object, reading.consumer, array)) return false;
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
bool take_capsule(const Place &place, PyObject *capsule, const char *used_name, CapsuleUse use, Managed *managed,
                  ForeignArray *array) noexcept {
    std::int64_t bytes = 0;
    Location location;
    if (!read_tensor(place, managed->tensor, array)) return false;
    if (use == CapsuleUse::array &&
        (!locate(place, array->device, &location) || !check_memory(place, *array, &bytes)))
        return false;
    PyRef keeper = PyRef::steal(PyCapsule_New(managed, nullptr, nullptr));
    if (!keeper || PyCapsule_SetName(capsule, used_name) != 0) return false;
    PyCapsule_SetDestructor(keeper.get(), delete_managed<Managed>);
    array->keeper = std::move(keeper);
    array->own = lender_of(*managed);
    return true;
}

}  // namespace

bool read_capsule(const Place &place, PyObject *capsule, CapsuleUse use, ForeignArray *array) noexcept {
    if (PyCapsule_IsValid(capsule, dlpack::kVersionedName) != 0) {
        auto *managed =
            static_cast<dlpack::ManagedTensorVersioned *>(PyCapsule_GetPointer(capsule, dlpack::kVersionedName));
        if (managed->version.major != dlpack::kMajor) {  // left unused: its owner's destructor deletes it
            PyErr_Format(PyExc_BufferError, "%s: %s is a DLPack capsule of version %u.%u; 1.x is supported",
                         place.function, place.argument, managed->version.major, managed->version.minor);
            return false;
        }
        array->read_only = (managed->flags & dlpack::kReadOnly) != 0;
        array->is_copy = (managed->flags & dlpack::kIsCopied) != 0;
        return take_capsule(place, capsule, dlpack::kVersionedUsedName, use, managed, array);
    }
    if (PyCapsule_IsValid(capsule, dlpack::kLegacyName) != 0) {
        auto *managed = static_cast<dlpack::ManagedTensor *>(PyCapsule_GetPointer(capsule, dlpack::kLegacyName));
        return take_capsule(place, capsule, dlpack::kLegacyUsedName, use, managed, array);
    }
    const bool used = PyCapsule_IsValid(capsule, dlpack::kLegacyUsedName) != 0 ||
                      PyCapsule_IsValid(capsule, dlpack::kVersionedUsedName) != 0;
    PyErr_Format(
        used ? PyExc_ValueError : PyExc_TypeError, "%s: %s %s", place.function, place.argument,
        used ? "is a DLPack capsule that has been used; one capsule makes one array" : "gave no DLPack capsule");
    return false;
}

}  // namespace cukern::py
