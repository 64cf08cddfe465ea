// DLPack's C exchange API on the type Array: consumers take Arrays, and have them allocated, without Python's
// calls.
#include "base/python.h"

#include "array/array.h"
#include "base/backend.h"
#include "base/errors.h"
#include "interop/array_exchange.h"
#include "interop/frameworks.h"
#include "streams/streams.h"
#include "streams/with_blocks.h"
#include "types/element_types.h"

namespace cukern::py {
namespace {

ModuleState *g_state = nullptr;  // for C functions that are given no Python object; set while the module lives

// The stream that calls on Arrays run on, for a consumer that works there too.
bool work_stream(int device, HeldStream *stream) noexcept {
    if (g_state != nullptr) return stream_on(*g_state, "DLPack exchange", nullptr, device, stream);
    stream->set_default(device);
    return true;
}

// Makes our current stream wait for pending work, and records the consumer's use on it.
bool order_for_consumer(Array *array) noexcept {
    HeldStream stream;
    if (!work_stream(array->device(), &stream)) return false;
    Status status = array->storage->wait_before_use(stream, !array->read_only);
    if (status == CUKERN_OK) status = array->storage->record_use(stream, !array->read_only);
    if (status != CUKERN_OK) raise_status(state_of_type(object_of(array)), "DLPack exchange", status);
    return status == CUKERN_OK;
}

PyRef allocate_for(MemoryKind kind, ElementType type, const dlpack::Tensor &prototype, int device) noexcept {
    HeldStream stream;
    if (!work_stream(device, &stream)) return {};
    return new_array(*g_state, "DLPack exchange", kind, type, prototype.ndim, prototype.shape, nullptr, stream);
}

int exchange_allocate(dlpack::Tensor *prototype, dlpack::ManagedTensorVersioned **out, void *context,
                      dlpack::SetError set_error) {
    const GilHold gil;
    PyRef array;
    ElementType type;
    if (g_state == nullptr) {
        PyErr_SetString(PyExc_RuntimeError, "cukern has been unloaded");
    } else if (prototype->ndim < 0 || prototype->ndim > kMaxDims) {
        PyErr_Format(PyExc_ValueError, "cukern's arrays have 0 to %d dimensions, not %d", kMaxDims,
                     prototype->ndim);
    } else if (!element_type_of(prototype->dtype, &type)) {
        PyErr_SetString(PyExc_TypeError, "cukern has no such element type");
    } else {
        const bool host = is_host_in_use();
        MemoryKind kind = MemoryKind::device;
        if (prototype->device.type == dlpack::kCUDAManaged) kind = MemoryKind::managed;
        if (prototype->device.type == dlpack::kCUDAHost) kind = MemoryKind::pinned;
        const bool ours = prototype->device.type == dlpack::kCUDA || kind != MemoryKind::device;
        if (host ? prototype->device.type != dlpack::kCPU : !ours)
            PyErr_SetString(PyExc_BufferError, "cukern does not allocate on that device");
        else
            array = allocate_for(kind, type, *prototype, host ? 0 : prototype->device.id);
    }
    *out = array ? export_versioned(array_of(array.get()), device_of(array_of(array.get())), false) : nullptr;
    array = PyRef();
    if (*out == nullptr) {
        CaughtError error;
        const char *message = error.text();
        set_error(context, error.is(PyExc_MemoryError) ? "MemoryError" : "RuntimeError",
                  message != nullptr ? message : "allocation failed");
    }
    return *out != nullptr ? 0 : -1;
}

// Another class may carry our capsule: its objects are no Arrays.
bool check_own(void *object) noexcept {
    auto *own = static_cast<PyObject *>(object);
    if (g_state != nullptr && is_array(*g_state, own)) return true;
    PyErr_Format(PyExc_TypeError, "DLPack exchange: expected a cukern.Array, got an object of type %R",
                 reinterpret_cast<PyObject *>(Py_TYPE(own)));
    return false;
}

int exchange_managed_from_object(void *object, dlpack::ManagedTensorVersioned **out) {
    *out = nullptr;
    if (!check_own(object)) return -1;
    Array *array = array_of(static_cast<PyObject *>(object));
    *out = order_for_consumer(array) ? export_versioned(array, device_of(array), false) : nullptr;
    return *out != nullptr ? 0 : -1;
}

int exchange_object_from_managed(dlpack::ManagedTensorVersioned *tensor, void **out) {
    *out = nullptr;
    const PyRef capsule = in_versioned_capsule(tensor);
    if (!capsule) return -1;
    if (g_state == nullptr) {
        PyErr_SetString(PyExc_RuntimeError, "cukern has been unloaded");
        return -1;
    }
    const ArgumentInfo argument{*g_state, "DLPack exchange", "the tensor"};
    ForeignArray foreign;
    if (!read_capsule(argument, capsule.get(), CapsuleUse::array, nullptr, &foreign)) return -1;
    foreign.has_producer = foreign.device.type != dlpack::kCPU;
    if (!work_stream(foreign.device.id, &foreign.producer)) return -1;
    *out = adopt_array(argument, foreign, foreign.keeper.get(), nullptr).release();
    return *out != nullptr ? 0 : -1;
}

int exchange_tensor_from_object(void *object, dlpack::Tensor *out) {
    if (!check_own(object)) return -1;
    Array *array = array_of(static_cast<PyObject *>(object));
    if (!order_for_consumer(array)) return -1;
    out->data = array->data;
    out->device = device_of(array);
    out->ndim = array->ndim;
    out->dtype = dlpack_type_of(array->type);
    out->shape = array->shape();
    out->strides = array->strides();
    out->byte_offset = 0;
    return 0;
}

int exchange_current_stream(std::int32_t device_type, std::int32_t device, void **out) {
    *out = nullptr;
    if (device_type == dlpack::kCPU || !any_active_blocks()) return 0;
    const GilHold gil;  // the caller need not have it
    HeldStream stream;
    if (!work_stream(device, &stream)) return -1;
    *out = stream->handle;
    return 0;
}

const dlpack::ExchangeAPI kExchange = {
    {{dlpack::kMajor, dlpack::kMinor}, nullptr},
    exchange_allocate,
    exchange_managed_from_object,
    exchange_object_from_managed,
    exchange_tensor_from_object,
    exchange_current_stream,
};

}  // namespace

bool offer_exchange(ModuleState &state) noexcept {
    state.exchange_capsule =
        PyCapsule_New(const_cast<dlpack::ExchangeAPI *>(&kExchange), dlpack::kExchangeName, nullptr);
    if (state.exchange_capsule == nullptr ||
        PyObject_SetAttr(state.array_type, state.name_exchange, state.exchange_capsule) != 0)
        return false;
    g_state = &state;
    return true;
}

void withdraw_exchange(const ModuleState &state) noexcept {
    if (g_state == &state) g_state = nullptr;
}

}  // namespace cukern::py
