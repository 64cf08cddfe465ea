// The choice of the stream and the device that a call runs on, and the module's functions about them.
#include "base/python.h"

#include "streams/stream_types.h"

#include "base/backend.h"
#include "base/methods.h"
#include "base/signature.h"
#include "streams/with_blocks.h"

#include "cukern/graph.h"
#include "cukern/storage.h"

namespace cukern::py {

namespace {

#define CUKERN_WHERE "(device=None)"

PyObject *current_stream_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_WHERE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("current_stream", nullptr, values, count, names, arguments)) return nullptr;
    PyObject *const where = arguments[0];
    const ModuleState &state = state_of(module);
    Backend backend;
    int device = 0;
    if (!ensure_backend(state_of(module), "current_stream", &backend) ||
        !parse_device(state, "current_stream", where, &device))
        return nullptr;
    const bool given = is_given(where);
    PyRef active;
    if ((!given && !innermost_stream(state, &active)) ||
        (!active && !active_stream_object(state, device, &active)))
        return nullptr;
    if (active) return active.release();
    auto *self = make<StreamObject>(state.stream_type);
    if (self == nullptr) return nullptr;
    self->ref = {};
    self->ref.device = device;
    return reinterpret_cast<PyObject *>(self);
}

PyObject *device_count_method(PyObject *module, PyObject *) {
    Backend backend;
    if (!ensure_backend(state_of(module), "device_count", &backend)) return nullptr;
    int count = 0;
    const Status status = device_count(&count);
    if (status != CUKERN_OK) return done(state_of(module), "device_count", status);
    return PyLong_FromLong(count);
}

PyObject *synchronize_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_WHERE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("synchronize", nullptr, values, count, names, arguments)) return nullptr;
    PyObject *const where = arguments[0];
    const ModuleState &state = state_of(module);
    Backend backend;
    int device = 0;
    if (!ensure_backend(state_of(module), "synchronize", &backend) ||
        !parse_device(state, "synchronize", where, &device))
        return nullptr;
    Status status = CUKERN_OK;
    {
        const GilRelease released;
        status = device_synchronize(device);
    }
    if (status == CUKERN_OK) release_finished();
    return done(state, "synchronize", status);
}

}  // namespace

bool parse_stream(const ModuleState &state, const char *function, PyObject *object, int device,
                  HeldStream *stream) noexcept {
    if (reinterpret_cast<PyObject *>(Py_TYPE(object)) == state.stream_type) {
        *stream = as_stream(object)->ref;
        return true;
    }
    PyRef handle;
    if (PyLong_Check(object) && PyBool_Check(object) == 0) {
        handle = PyRef::borrow(object);
    } else {
        const PyRef method = PyRef::steal(PyObject_GetAttr(object, state.name_cuda_stream));
        if (!method) {
            if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return false;
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError,
                         "%s: stream is %R; expected a cukern.Stream, an object with __cuda_stream__, or a handle "
                         "as int",
                         function, object);
            return false;
        }
        PyRef pair = PyRef::borrow(method.get());  // a method by the protocol; a tuple in its first drafts
        if (PyTuple_Check(method.get()) == 0)
            pair = PyRef::steal(PyObject_CallFunctionObjArgs(method.get(), nullptr));
        if (!pair) return false;
        if (PyTuple_Check(pair.get()) == 0 || PyTuple_Size(pair.get()) != 2) {
            PyErr_Format(PyExc_TypeError, "%s: __cuda_stream__ gives %R; expected (version, handle)", function,
                         pair.get());
            return false;
        }
        const long version = PyLong_AsLong(PyTuple_GetItem(pair.get(), 0));
        if (version == -1 && PyErr_Occurred() != nullptr) return false;
        if (version != 0) {
            PyErr_Format(PyExc_TypeError, "%s: __cuda_stream__ has version %ld; 0 is supported", function,
                         version);
            return false;
        }
        handle = PyRef::borrow(PyTuple_GetItem(pair.get(), 1));
    }
    // A handle is an address, or one of the small numbers that stand for a default stream.
    const unsigned long long address = PyLong_AsUnsignedLongLong(handle.get());
    if (address == ~0ULL && PyErr_Occurred() != nullptr) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) return false;
        PyErr_Clear();
        PyErr_Format(PyExc_OverflowError, "%s: stream is %R, which is no handle", function, handle.get());
        return false;
    }
    void *pointer = PyLong_AsVoidPtr(handle.get());
    StreamRef ref;
    const Status status = stream_ref(pointer, device, &ref);
    if (status != CUKERN_OK) raise_status(state, function, status);
    *stream = ref;
    return status == CUKERN_OK;
}

bool parse_device(const ModuleState &state, const char *function, PyObject *object, int *device) noexcept {
    Status status = CUKERN_OK;
    if (object == nullptr || Py_IsNone(object) != 0) {
        bool is_active = false;
        if (!active_device(state, device, &is_active)) return false;
        if (is_active) return true;
        status = current_device(device);
    } else if (reinterpret_cast<PyObject *>(Py_TYPE(object)) == state.device_type) {
        *device = device_of(object);
        return true;
    } else {
        const PyRef number = PyBool_Check(object) != 0 ? PyRef() : PyRef::steal(PyNumber_Index(object));
        if (!number) {
            if (!clear_lookup_error()) return false;
            PyErr_Format(PyExc_TypeError, "%s: device is %R; expected a number or a cukern.Device", function,
                         object);
            return false;
        }
        const long value = PyLong_AsLong(number.get());
        if (value == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();
        int count = 0;
        status = device_count(&count);
        if (status == CUKERN_OK && (value < 0 || value >= count)) {
            PyErr_Format(PyExc_ValueError, "%s: device %S does not exist; there are %d", function, number.get(),
                         count);
            return false;
        }
        *device = static_cast<int>(value);
    }
    if (status != CUKERN_OK) raise_status(state, function, status);
    return status == CUKERN_OK;
}

bool check_stream_device(const char *function, const StreamRef &stream, int device) noexcept {
    if (stream.device == device) return true;
    PyErr_Format(PyExc_ValueError, "%s: the stream is of device %d, the memory is on device %d", function,
                 stream.device, device);
    return false;
}

bool stream_for_new(const ModuleState &state, const char *function, PyObject *device, PyObject *stream,
                    HeldStream *out) noexcept {
    const bool has_device = device != nullptr && Py_IsNone(device) == 0;
    const bool has_stream = stream != nullptr && Py_IsNone(stream) == 0;
    int number = 0;
    if (!has_device && !has_stream && !any_active_blocks()) {
        const Status status = current_device(&number);
        if (status != CUKERN_OK) raise_status(state, function, status);
        out->set_default(number);
        return status == CUKERN_OK;
    }
    if (!has_device && !has_stream) {
        PyRef innermost;
        if (!innermost_stream(state, &innermost)) return false;
        if (innermost) {
            *out = as_stream(innermost.get())->ref;
            return true;
        }
    }
    if (!parse_device(state, function, device, &number)) return false;
    if (!has_stream && !any_active_blocks()) {
        out->set_default(number);
        return true;
    }
    if (has_stream) {
        if (!parse_stream(state, function, stream, number, out)) return false;
        return !has_device || check_stream_device(function, *out, number);
    }
    return stream_on(state, function, nullptr, number, out);
}

bool leave_graph(HeldStream *stream) noexcept {
    if (Graph::captured_on(*stream) == nullptr) return false;
    stream->set_default((*stream)->device);
    return true;
}

bool stream_on(const ModuleState &state, const char *function, PyObject *stream, int device,
               HeldStream *out) noexcept {
    if (stream != nullptr && Py_IsNone(stream) == 0)
        return parse_stream(state, function, stream, device, out) && check_stream_device(function, *out, device);
    bool is_active = false;
    if (!active_stream(state, out, &is_active)) return false;
    if (!is_active || (*out)->device != device) out->set_default(device);
    return true;
}

PyRef make_device(const ModuleState &state, int device) noexcept {
    auto *self = make<DeviceObject>(state.device_type);
    if (self != nullptr) self->device = device;
    return PyRef::steal(reinterpret_cast<PyObject *>(self));
}

bool parse_memory(const char *function, PyObject *object, MemoryKind *kind) noexcept {
    *kind = MemoryKind::device;
    if (object == nullptr || Py_IsNone(object) != 0) return true;
    for (int i = 0; PyUnicode_Check(object) && i < kNumMemoryKinds; ++i) {
        if (PyUnicode_CompareWithASCIIString(object, kMemoryKindNames[i]) != 0) continue;
        *kind = static_cast<MemoryKind>(i);
        return true;
    }
    PyErr_Format(PyExc_ValueError, "%s: memory is %R; expected 'device', 'managed' or 'pinned'", function, object);
    return false;
}

bool add_stream_types(PyObject *module, ModuleState &state) noexcept {
    const auto add = [module](PyType_Spec *spec, const char *name, PyObject **slot) {
        *slot = PyType_FromModuleAndSpec(module, spec, nullptr);
        return *slot != nullptr && PyModule_AddObjectRef(module, name, *slot) == 0;
    };
    return add(&kStreamSpec, "Stream", &state.stream_type) && add(&kEventSpec, "Event", &state.event_type) &&
           add(&kDeviceSpec, "Device", &state.device_type);
}

PyMethodDef kStreamFunctions[] = {
    {"current_stream", as_method(current_stream_method), METH_FASTCALL | METH_KEYWORDS,
     "current_stream" CUKERN_WHERE "\n--\n\nReturn the stream that calls on arrays of cukern run on.\n\n"
     "It is the innermost active ``with Stream()`` of the context, else the legacy default stream of the "
     "device.\n\n"
     "Returns\n-------\nStream\n\n"
     "Examples\n--------\n>>> import cukern\n>>> with cukern.Stream() as stream:\n"
     "...     cukern.current_stream() is stream\nTrue\n"},
    {"device_count", device_count_method, METH_NOARGS,
     "device_count()\n--\n\nReturn the number of devices.\n\nReturns\n-------\nint\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.device_count() >= 1\nTrue\n"},
    {"synchronize", as_method(synchronize_method), METH_FASTCALL | METH_KEYWORDS,
     "synchronize" CUKERN_WHERE "\n--\n\nWait on the host until everything on a device is done.\n\n"
     "Parameters\n----------\ndevice : int or Device, optional\n    The current one by default.\n\n"
     "Raises\n------\nCudaError\n    Work that was waited for has failed.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.synchronize()\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
