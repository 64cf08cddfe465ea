// An Array lent to other libraries: DLPack capsules and __cuda_array_interface__.
#include "base/python.h"

#include "array/array.h"

#include <cstring>
#include <limits>
#include <new>

#include "array/signatures.h"
#include "base/errors.h"
#include "base/signature.h"
#include "interop/array_exchange.h"
#include "interop/frameworks.h"
#include "streams/streams.h"
#include "types/element_types.h"

namespace cukern::py {
namespace {

// What a lent tensor points to; the array is owned.
template <typename Managed>
struct ExportedTensor {
    Managed managed;
    PyObject *array;
    std::int64_t dimensions[2 * kMaxDims];
};

// Called by a consumer, on whatever thread, with or without the GIL.
template <typename Managed>
void delete_lent(Managed *managed) {
    auto *lent = reinterpret_cast<ExportedTensor<Managed> *>(managed);
    if (Py_IsInitialized() == 0) return;  // the process ends
    {
        const GilHold gil;
        Py_DECREF(lent->array);
    }
    delete lent;
}

template <typename Managed>
void delete_unused(PyObject *capsule) {
    const char *name = PyCapsule_GetName(capsule);
    if (name == nullptr ||
        (std::strcmp(name, dlpack::kVersionedName) != 0 && std::strcmp(name, dlpack::kLegacyName) != 0))
        return;  // a consumer has taken it over
    auto *managed = static_cast<Managed *>(PyCapsule_GetPointer(capsule, name));
    const HeldError held;
    if (managed->deleter != nullptr) managed->deleter(managed);
}

}  // namespace

dlpack::Device device_of(const Array *array) noexcept {
    if (array->storage->backend() == Backend::host) return {dlpack::kCPU, 0};
    switch (array->kind()) {
        case MemoryKind::device: return {dlpack::kCUDA, array->device()};
        case MemoryKind::managed: return {dlpack::kCUDAManaged, array->device()};
        case MemoryKind::pinned: break;
    }
    return {dlpack::kCUDAHost, array->device()};
}

namespace {

void fill_tensor(Array *array, const dlpack::Device &device, std::int64_t *dimensions,
                 dlpack::Tensor *tensor) noexcept {
    for (int i = 0; i < 2 * array->ndim; ++i) dimensions[i] = array->dimensions[i];
    tensor->data = array->data;
    tensor->device = device;
    tensor->ndim = array->ndim;
    tensor->dtype = dlpack_type_of(array->type);
    tensor->shape = dimensions;
    tensor->strides = dimensions + array->ndim;
    tensor->byte_offset = 0;
}

template <typename Managed>
Managed *export_tensor(Array *array, const dlpack::Device &device) noexcept {
    auto *lent = new (std::nothrow) ExportedTensor<Managed>{};
    if (lent == nullptr) {
        PyErr_NoMemory();
        return nullptr;
    }
    fill_tensor(array, device, lent->dimensions, &lent->managed.tensor);
    lent->array = PyRef::borrow(object_of(array)).release();
    lent->managed.manager_context = lent;
    lent->managed.deleter = delete_lent<Managed>;
    array->storage->record_lent();
    return &lent->managed;
}

template <typename Managed>
PyObject *in_capsule(Managed *managed, const char *name) noexcept {
    if (managed == nullptr) return nullptr;
    PyObject *capsule = PyCapsule_New(managed, name, delete_unused<Managed>);
    if (capsule == nullptr && managed->deleter != nullptr) managed->deleter(managed);
    return capsule;
}

}  // namespace

dlpack::ManagedTensorVersioned *export_versioned(Array *array, const dlpack::Device &device,
                                                 bool is_copy) noexcept {
    auto *managed = export_tensor<dlpack::ManagedTensorVersioned>(array, device);
    if (managed == nullptr) return nullptr;
    managed->version = {dlpack::kMajor, dlpack::kMinor};
    managed->flags = (array->read_only ? dlpack::kReadOnly : 0) | (is_copy ? dlpack::kIsCopied : 0);
    return managed;
}

PyRef in_versioned_capsule(dlpack::ManagedTensorVersioned *managed) noexcept {
    return PyRef::steal(in_capsule(managed, dlpack::kVersionedName));
}

namespace {

// The `stream` argument: false with an exception where it is none that the standard knows; `sync` false: -1.
bool parse_consumer(const ModuleState &state, PyObject *stream, int device, bool *sync,
                    HeldStream *consumer) noexcept {
    *sync = true;
    consumer->set_default(device);
    if (Py_IsNone(stream) != 0) return true;  // the legacy default stream
    if (PyLong_Check(stream) == 0 || PyBool_Check(stream) != 0) {
        PyErr_Format(PyExc_TypeError, "__dlpack__: stream is %R; expected None or an int", stream);
        return false;
    }
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(stream, &overflow);
    if (number == -1 && overflow == 0) {
        *sync = false;
        return PyErr_Occurred() == nullptr;
    }
    if (number == 0 || number < -1 || overflow != 0) {
        PyErr_Format(
            PyExc_ValueError,
            "__dlpack__: stream is %R, which is ambiguous or unknown; 1 is the legacy default stream, 2 the "
            "per-thread one, -1 asks for no ordering",
            stream);
        return false;
    }
    return parse_stream(state, "__dlpack__", stream, device, consumer);
}

// False with an exception; a version that asks for the versioned form.
bool parse_version(PyObject *version, bool *versioned) noexcept {
    *versioned = false;
    if (!is_given(version)) return true;
    if (PyTuple_Check(version) == 0 || PyTuple_Size(version) != 2) {
        PyErr_Format(PyExc_TypeError, "__dlpack__: max_version is %R; expected (major, minor) or None", version);
        return false;
    }
    const long major = PyLong_AsLong(PyTuple_GetItem(version, 0));
    *versioned = major >= static_cast<long>(dlpack::kMajor);
    return PyErr_Occurred() == nullptr;
}

bool parse_device_pair(PyObject *pair, dlpack::Device *device) noexcept {
    if (!is_given(pair)) return true;
    const PyRef type = PyTuple_Check(pair) && PyTuple_Size(pair) == 2
                           ? PyRef::steal(PyNumber_Index(PyTuple_GetItem(pair, 0)))
                           : PyRef();
    const PyRef id = type ? PyRef::steal(PyNumber_Index(PyTuple_GetItem(pair, 1))) : PyRef();
    if (!id) {
        if (!clear_lookup_error()) return false;
        PyErr_Format(PyExc_TypeError, "__dlpack__: dl_device is %R; expected (type, id) or None", pair);
        return false;
    }
    const long numbers[] = {PyLong_AsLong(type.get()), PyLong_AsLong(id.get())};
    for (const long number : numbers) {
        if (number >= 0 && number <= std::numeric_limits<std::int32_t>::max()) continue;
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "__dlpack__: dl_device is %R, which is no device", pair);
        return false;
    }
    *device = {static_cast<std::int32_t>(numbers[0]), static_cast<std::int32_t>(numbers[1])};
    return true;
}

bool refuse_copy() noexcept {
    PyErr_SetString(PyExc_BufferError,
                    "__dlpack__: copy=False, but the memory is not on the device that is asked for");
    return false;
}

struct ExportRequest {
    dlpack::Device device;
    bool always = false;  // copy=True
    bool never = false;   // copy=False
    bool no_stream = false;
};

// The array to lend: itself, or a copy where it has to be one.
PyRef array_to_lend(const ModuleState &state, PyObject *self, const ExportRequest &request, bool sync,
                    const StreamRef &consumer, dlpack::Device *device, bool *is_copy) noexcept {
    Array *array = array_of(self);
    const dlpack::Device own = device_of(array);
    const bool to_host = request.device.type == dlpack::kCPU && request.device.id == 0 && own.type != dlpack::kCPU;
    const bool same = request.device.type == own.type && request.device.id == own.id;
    if (!same && !to_host) {
        PyErr_Format(
            PyExc_BufferError,
            "__dlpack__: the array is on device (%d, %d), and goes to the CPU or stays; (%d, %d) was asked for",
            own.type, own.id, request.device.type, request.device.id);
        return {};
    }
    *device = request.device;
    *is_copy = request.always || (to_host && !on_host(array->kind()));
    if (*is_copy && request.never) {
        refuse_copy();
        return {};
    }
    PyRef lent = PyRef::borrow(self);
    if (*is_copy) {
        const MemoryKind kind = to_host ? MemoryKind::pinned : array->kind();
        StreamRef stream = consumer;
        TrackedView source;
        tracked_view_of(array, &source);
        lent = new_copy(state, "__dlpack__", source, kind, array->type, nullptr, stream);
        if (!lent) return {};
    }
    Storage *storage = array_of(lent.get())->storage;
    // Who names no stream may be the host, which looks at once.
    const bool host_looks = request.no_stream && on_host(array_of(lent.get())->kind());
    if (to_host || own.type == dlpack::kCPU || host_looks)
        return wait_for_host(state, "__dlpack__", storage, true) ? std::move(lent) : PyRef();
    if (!sync) return lent;
    const Status status = storage->wait_before_use(consumer, true);
    if (status != CUKERN_OK) raise_status(state, "__dlpack__", status);
    return status == CUKERN_OK ? std::move(lent) : PyRef();
}

}  // namespace

PyObject *array_to_dlpack(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ARRAY_DLPACK);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("__dlpack__", self, values, count, names, arguments)) return nullptr;
    PyObject *const stream = arguments[1] != nullptr ? arguments[1] : Py_None;
    const ModuleState &state = state_of_type(self);
    Array *array = array_of(self);
    bool sync = true;
    bool versioned = false;
    HeldStream consumer;
    ExportRequest request{device_of(array)};
    request.no_stream = Py_IsNone(stream) != 0;
    if (!parse_copy("__dlpack__", arguments[4], &request.always, &request.never) ||
        !parse_consumer(state, stream, array->device(), &sync, &consumer) ||
        !parse_version(arguments[2], &versioned) || !parse_device_pair(arguments[3], &request.device))
        return nullptr;
    if (array->read_only && !versioned && !request.always) {
        PyErr_SetString(
            PyExc_BufferError,
            "__dlpack__: the array is read-only, which a capsule before DLPack 1.0 cannot say; ask with "
            "max_version=(1, 0)");
        return nullptr;
    }
    dlpack::Device device{};
    bool is_copy = false;
    const PyRef lent = array_to_lend(state, self, request, sync, consumer, &device, &is_copy);
    if (!lent) return nullptr;
    if (versioned) return in_versioned_capsule(export_versioned(array_of(lent.get()), device, is_copy)).release();
    return in_capsule(export_tensor<dlpack::ManagedTensor>(array_of(lent.get()), device), dlpack::kLegacyName);
}

PyObject *array_dlpack_device(PyObject *self, PyObject *) {
    const dlpack::Device device = device_of(array_of(self));
    return Py_BuildValue("ii", static_cast<int>(device.type), static_cast<int>(device.id));
}

PyObject *array_cuda_interface(PyObject *self, void *) {
    Array *array = array_of(self);
    if (array->storage->backend() == Backend::host || array->type == ElementType::bfloat16) {
        PyErr_SetString(PyExc_AttributeError,
                        array->type == ElementType::bfloat16
                            ? "__cuda_array_interface__ has no type for bfloat16; use DLPack"
                            : "__cuda_array_interface__ needs a GPU, and cukern uses its host "
                              "back-end here");
        return nullptr;
    }
    const ModuleState &state = state_of_type(self);
    HeldStream stream;
    if (!stream_on(state, "__cuda_array_interface__", nullptr, array->device(), &stream)) return nullptr;
    leave_graph(&stream);
    Status status = array->storage->wait_before_use(stream, true);
    if (status != CUKERN_OK) {
        raise_status(state, "__cuda_array_interface__", status);
        return nullptr;
    }
    array->storage->record_lent();
    const PyRef shape = PyRef::steal(PyObject_GetAttr(self, state.name_shape));
    const bool packed = is_c_contiguous(array->ndim, array->shape(), array->strides());
    const PyRef strides =
        packed ? PyRef::borrow(Py_None) : PyRef::steal(PyObject_GetAttr(self, state.name_strides));
    const PyRef handle = dlpack_stream(stream);
    const PyRef dtype = numpy_dtype(state, array->type);
    const PyRef typestr = dtype ? PyRef::steal(PyObject_GetAttrString(dtype.get(), "str")) : PyRef();
    const PyRef pointer = PyRef::steal(PyLong_FromVoidPtr(array->size() == 0 ? nullptr : array->data));
    if (!shape || !strides || !handle || !typestr || !pointer) return nullptr;
    return Py_BuildValue("{s:O,s:O,s:(OO),s:O,s:O,s:i}", "shape", shape.get(), "typestr", typestr.get(), "data",
                         pointer.get(), array->read_only ? Py_True : Py_False, "strides", strides.get(), "stream",
                         handle.get(), "version", 3);
}

PyObject *lender_of(const dlpack::ManagedTensorVersioned &managed) noexcept {
    using Own = ExportedTensor<dlpack::ManagedTensorVersioned>;
    const bool ours = managed.deleter == delete_lent<dlpack::ManagedTensorVersioned>;
    return ours ? static_cast<Own *>(managed.manager_context)->array : nullptr;
}

PyObject *lender_of(const dlpack::ManagedTensor &managed) noexcept {
    using Own = ExportedTensor<dlpack::ManagedTensor>;
    const bool ours = managed.deleter == delete_lent<dlpack::ManagedTensor>;
    return ours ? static_cast<Own *>(managed.manager_context)->array : nullptr;
}

}  // namespace cukern::py
