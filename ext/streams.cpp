// cukern.Stream, cukern.Event, cukern.Device.
#include "python.h"

#include "streams.h"

#include <cstddef>
#include <cstring>

#include "errors.h"
#include "methods.h"

#include "cukern/storage.h"

namespace cukern::py {
namespace {

constexpr int kDeepest = 64;  // nested `with` blocks of a thread

struct StreamObject {
    PyObject_HEAD StreamRef ref;  // its owner, if it has one, is owned by this object
    PyObject *source;             // owned: what a handle came from; or null
    PyObject *weak_references;
};

struct EventObject {
    PyObject_HEAD EventRef event;
    bool timing;
    bool recorded;
};

struct DeviceObject {
    PyObject_HEAD int device;
};

// The `with` blocks that a thread is in. Entries are owned.
struct ThreadStack {
    PyObject *streams[kDeepest];
    int num_streams = 0;
    int devices[kDeepest];  // those before each `with Device`
    int num_devices = 0;
};
ThreadStack &stack() noexcept {
    thread_local ThreadStack own;
    return own;
}
// How many streams are active on all threads, guarded by the GIL: every call asks, and mostly there are none.
int g_active_streams = 0;

StreamObject *as_stream(PyObject *object) noexcept { return reinterpret_cast<StreamObject *>(object); }
EventObject *as_event(PyObject *object) noexcept { return reinterpret_cast<EventObject *>(object); }
int device_of(PyObject *object) noexcept { return reinterpret_cast<DeviceObject *>(object)->device; }

// Returns None, or raises what a status says.
PyObject *done(const ModuleState &state, const char *function, Status status) noexcept {
    if (status == CUKERN_OK) Py_RETURN_NONE;
    raise_status(state, function, status);
    return nullptr;
}

void free_object(PyObject *self) noexcept {
    PyTypeObject *type = Py_TYPE(self);
    auto free = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
    free(self);
    Py_DECREF(type);
}

template <typename Object>
Object *make(PyObject *type) noexcept {
    auto allocate =
        reinterpret_cast<allocfunc>(PyType_GetSlot(reinterpret_cast<PyTypeObject *>(type), Py_tp_alloc));
    return reinterpret_cast<Object *>(allocate(reinterpret_cast<PyTypeObject *>(type), 0));
}

// --- Stream ---

PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"non_blocking", "priority", "device", nullptr};
    int non_blocking = 1;
    int priority = 0;
    PyObject *where = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "|piO:Stream", const_cast<char **>(names), &non_blocking,
                                    &priority, &where) == 0)
        return nullptr;
    PyObject *module = PyType_GetModule(type);
    const ModuleState &state = state_of(module);
    Backend backend;
    int device = 0;
    if (!ensure_backend(module, "Stream", &backend) || !parse_device(state, "Stream", where, &device))
        return nullptr;
    auto *self = make<StreamObject>(reinterpret_cast<PyObject *>(type));
    if (self == nullptr) return nullptr;
    const PyRef held = PyRef::steal(reinterpret_cast<PyObject *>(self));
    self->ref = {};
    OwnedStream *owned = nullptr;
    const Status status = OwnedStream::create(device, non_blocking != 0, priority, &owned);
    if (status != CUKERN_OK) return done(state, "Stream", status);
    self->ref = {owned->handle(), owned->id(), owned, device};
    return PyRef::borrow(held.get()).release();
}

void stream_dealloc(PyObject *self) {
    StreamObject *stream = as_stream(self);
    if (stream->weak_references != nullptr) PyObject_ClearWeakRefs(self);
    if (stream->ref.owner != nullptr) stream->ref.owner->release();
    Py_CLEAR(stream->source);
    free_object(self);
}

PyObject *stream_from_handle(PyObject *type, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"handle", "device", nullptr};
    PyObject *handle = nullptr;
    PyObject *where = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O:from_handle", const_cast<char **>(names), &handle,
                                    &where) == 0)
        return nullptr;
    PyObject *module = PyType_GetModule(reinterpret_cast<PyTypeObject *>(type));
    const ModuleState &state = state_of(module);
    Backend backend;
    int device = 0;
    StreamRef ref;
    if (!ensure_backend(module, "from_handle", &backend) || !parse_device(state, "from_handle", where, &device) ||
        !parse_stream(state, "from_handle", handle, device, &ref))
        return nullptr;
    auto *self = make<StreamObject>(type);
    if (self == nullptr) return nullptr;
    self->ref = ref;
    if (ref.owner != nullptr) ref.owner->retain();
    self->source = PyRef::borrow(handle).release();
    return reinterpret_cast<PyObject *>(self);
}

PyObject *stream_synchronize_method(PyObject *self, PyObject *) {
    const StreamRef ref = as_stream(self)->ref;
    Status status = CUKERN_OK;
    {
        const GilRelease released;
        status = stream_synchronize(ref);
    }
    if (status == CUKERN_OK) release_finished();
    return done(state_of_type(self), "synchronize", status);
}

bool check_event(const ModuleState &state, const char *function, PyObject *object) noexcept {
    if (reinterpret_cast<PyObject *>(Py_TYPE(object)) == state.event_type) return true;
    PyErr_Format(PyExc_TypeError, "%s: expected a cukern.Event, got %R", function, object);
    return false;
}

PyObject *stream_record(PyObject *self, PyObject *args) {
    PyObject *event = nullptr;
    if (PyArg_ParseTuple(args, "|O:record", &event) == 0) return nullptr;
    const ModuleState &state = state_of_type(self);
    PyRef made;
    if (event == nullptr || Py_IsNone(event) != 0) {
        made = PyRef::steal(PyObject_CallFunction(state.event_type, "ii", 1, as_stream(self)->ref.device));
        event = made.get();
        if (event == nullptr) return nullptr;
    }
    if (!check_event(state, "record", event)) return nullptr;
    const PyRef result = PyRef::steal(PyObject_CallMethod(event, "record", "O", self));
    return result ? PyRef::borrow(event).release() : nullptr;
}

PyObject *stream_wait_event(PyObject *self, PyObject *event) {
    const ModuleState &state = state_of_type(self);
    if (!check_event(state, "wait_event", event)) return nullptr;
    if (!as_event(event)->recorded) Py_RETURN_NONE;  // as in CUDA: there is nothing to wait for
    return done(state, "wait_event", event_wait(as_stream(self)->ref, as_event(event)->event));
}

PyObject *stream_enter(PyObject *self, PyObject *) {
    ThreadStack &own = stack();
    if (own.num_streams == kDeepest) {
        PyErr_Format(PyExc_RuntimeError, "more than %d nested 'with' blocks of streams", kDeepest);
        return nullptr;
    }
    own.streams[own.num_streams++] = PyRef::borrow(self).release();
    ++g_active_streams;
    return PyRef::borrow(self).release();
}

PyObject *stream_exit(PyObject *self, PyObject *) {
    ThreadStack &own = stack();
    if (own.num_streams == 0 || own.streams[own.num_streams - 1] != self) {
        PyErr_SetString(PyExc_RuntimeError, "this stream is not the innermost active one of the thread");
        return nullptr;
    }
    const PyRef left = PyRef::steal(own.streams[--own.num_streams]);
    --g_active_streams;
    Py_RETURN_NONE;
}

PyObject *stream_cuda_stream(PyObject *self, PyObject *) {
    return Py_BuildValue(
        "iK", 0, static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(as_stream(self)->ref.handle)));
}

PyObject *stream_done_attribute(PyObject *self, void *) {
    bool is_done = false;
    const Status status = stream_done(as_stream(self)->ref, &is_done);
    if (status != CUKERN_OK) return done(state_of_type(self), "done", status);
    return PyBool_FromLong(is_done ? 1 : 0);
}

PyObject *stream_ptr(PyObject *self, void *) { return PyLong_FromVoidPtr(as_stream(self)->ref.handle); }
PyObject *stream_device(PyObject *self, void *) {
    return make_device(state_of_type(self), as_stream(self)->ref.device).release();
}

PyObject *stream_repr(PyObject *self) {
    const StreamRef &ref = as_stream(self)->ref;
    if (ref.id == 0)
        return PyUnicode_FromFormat("<cukern.Stream: the legacy default stream of device %d>", ref.device);
    return PyUnicode_FromFormat("<cukern.Stream %p of device %d>", ref.handle, ref.device);
}

PyObject *stream_compare(PyObject *self, PyObject *other, int operation) {
    if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(self) != Py_TYPE(other)) Py_RETURN_NOTIMPLEMENTED;
    const StreamRef &a = as_stream(self)->ref;
    const StreamRef &b = as_stream(other)->ref;
    const bool same = a.id == b.id && a.device == b.device;
    return PyBool_FromLong(same == (operation == Py_EQ) ? 1 : 0);
}

Py_hash_t stream_hash(PyObject *self) {
    const StreamRef &ref = as_stream(self)->ref;
    return static_cast<Py_hash_t>(ref.id * 64 + static_cast<std::uint64_t>(ref.device)) & 0x7FFFFFFFFFFFFFFF;
}

PyMethodDef kStreamMethods[] = {
    {"from_handle", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(stream_from_handle)),
     METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "from_handle(handle, device=None)\n--\n\nReturn the stream of a raw handle, or of an object with "
     "``__cuda_stream__``.\n\nThe handle is borrowed: its owner keeps the stream alive while it is used. 0 and 1 "
     "are "
     "the legacy\ndefault stream, 2 is the calling thread's default stream."},
    {"synchronize", stream_synchronize_method, METH_NOARGS,
     "synchronize()\n--\n\nWait on the host until everything on the stream is done."},
    {"record", stream_record, METH_VARARGS,
     "record(event=None)\n--\n\nRecord an event, by default a new one, and return it."},
    {"wait_event", stream_wait_event, METH_O,
     "wait_event(event, /)\n--\n\nHave what follows on the stream wait for an event; the host does not wait."},
    {"__enter__", stream_enter, METH_NOARGS, "Make the stream the one that this thread's calls run on."},
    {"__exit__", stream_exit, METH_VARARGS, "Go back to the stream before."},
    {"__cuda_stream__", stream_cuda_stream, METH_NOARGS,
     "__cuda_stream__()\n--\n\nReturn the protocol's version, 0, and the handle."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef kStreamAttributes[] = {
    {"ptr", stream_ptr, nullptr, "The cudaStream_t as int; 0 for the legacy default stream.", nullptr},
    {"done", stream_done_attribute, nullptr, "Whether everything on the stream is done.", nullptr},
    {"device", stream_device, nullptr, "The stream's device.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef kStreamMembers[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(StreamObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

constexpr const char *kStreamDoc =
    "Stream(non_blocking=True, priority=0, device=None)\n--\n\n"
    "A CUDA stream: work on it runs in order, beside that on other streams.\n\n"
    "As a context manager it is the stream of the thread's calls that are given no other.\n\n"
    "Parameters\n----------\n"
    "non_blocking : bool\n    Whether it runs beside the legacy default stream.\n"
    "priority : int\n    Lower numbers come first; 0 is the least.\n"
    "device : int or Device, optional\n    The current one by default.\n\n"
    "Examples\n--------\n>>> import cukern\n>>> with cukern.Stream() as stream:\n"
    "...     a = cukern.zeros(3)\n>>> stream.synchronize()\n>>> stream.done\nTrue\n";

PyType_Slot kStreamSlots[] = {
    {Py_tp_doc, const_cast<char *>(kStreamDoc)},
    {Py_tp_new, reinterpret_cast<void *>(stream_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(stream_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(stream_repr)},
    {Py_tp_richcompare, reinterpret_cast<void *>(stream_compare)},
    {Py_tp_hash, reinterpret_cast<void *>(stream_hash)},
    {Py_tp_methods, kStreamMethods},
    {Py_tp_getset, kStreamAttributes},
    {Py_tp_members, kStreamMembers},
    {0, nullptr},
};
PyType_Spec kStreamSpec = {"cukern.Stream", sizeof(StreamObject), 0, Py_TPFLAGS_DEFAULT, kStreamSlots};

// --- Event ---

PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"timing", "device", nullptr};
    int timing = 1;
    PyObject *where = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "|pO:Event", const_cast<char **>(names), &timing, &where) == 0)
        return nullptr;
    PyObject *module = PyType_GetModule(type);
    const ModuleState &state = state_of(module);
    Backend backend;
    int device = 0;
    if (!ensure_backend(module, "Event", &backend) || !parse_device(state, "Event", where, &device))
        return nullptr;
    auto *self = make<EventObject>(reinterpret_cast<PyObject *>(type));
    if (self == nullptr) return nullptr;
    const PyRef held = PyRef::steal(reinterpret_cast<PyObject *>(self));
    self->event = {};
    self->timing = timing != 0;
    self->recorded = false;
    const Status status = event_create(device, timing != 0, &self->event);
    if (status != CUKERN_OK) return done(state, "Event", status);
    return PyRef::borrow(held.get()).release();
}

void event_dealloc(PyObject *self) {
    event_destroy(as_event(self)->event);
    free_object(self);
}

PyObject *event_record_method(PyObject *self, PyObject *args) {
    PyObject *object = nullptr;
    if (PyArg_ParseTuple(args, "|O:record", &object) == 0) return nullptr;
    const ModuleState &state = state_of_type(self);
    EventObject *event = as_event(self);
    StreamRef stream;
    if (object != nullptr && Py_IsNone(object) == 0) {
        if (!parse_stream(state, "record", object, event->event.device, &stream)) return nullptr;
    } else if (!active_stream(&stream)) {
        stream.device = event->event.device;
    }
    if (stream.device != event->event.device) {
        PyErr_Format(PyExc_ValueError, "record: the stream is of device %d, the event of device %d", stream.device,
                     event->event.device);
        return nullptr;
    }
    const Status status = event_record(event->event, stream);
    event->recorded = event->recorded || status == CUKERN_OK;
    return done(state, "record", status);
}

PyObject *event_synchronize_method(PyObject *self, PyObject *) {
    Status status = CUKERN_OK;
    const EventObject *event = as_event(self);
    if (event->recorded) {
        const GilRelease released;
        status = event_synchronize(event->event);
    }
    return done(state_of_type(self), "synchronize", status);
}

PyObject *event_done_attribute(PyObject *self, void *) {
    bool is_done = true;
    const Status status = as_event(self)->recorded ? event_done(as_event(self)->event, &is_done) : CUKERN_OK;
    if (status != CUKERN_OK) return done(state_of_type(self), "done", status);
    return PyBool_FromLong(is_done ? 1 : 0);
}

PyObject *event_subtract(PyObject *end, PyObject *begin) {
    if (Py_TYPE(end) != Py_TYPE(begin)) Py_RETURN_NOTIMPLEMENTED;
    const ModuleState &state = state_of_type(end);
    for (PyObject *object : {begin, end}) {
        const EventObject *event = as_event(object);
        if (event->timing && event->recorded) continue;
        PyErr_SetString(PyExc_ValueError, event->timing
                                              ? "the time between events needs both to be recorded"
                                              : "the time between events needs both to be made with timing=True");
        return nullptr;
    }
    float milliseconds = 0;
    Status status = CUKERN_OK;
    const EventRef first = as_event(begin)->event;
    const EventRef last = as_event(end)->event;
    {
        const GilRelease released;
        status = event_synchronize(last);
        if (status == CUKERN_OK) status = event_synchronize(first);
        if (status == CUKERN_OK) status = event_elapsed(first, last, &milliseconds);
    }
    if (status != CUKERN_OK) return done(state, "elapsed", status);
    return PyFloat_FromDouble(static_cast<double>(milliseconds));
}

PyMethodDef kEventMethods[] = {
    {"record", event_record_method, METH_VARARGS,
     "record(stream=None)\n--\n\nMark the point that a stream, by default the current one, has been given work "
     "to."},
    {"synchronize", event_synchronize_method, METH_NOARGS,
     "synchronize()\n--\n\nWait on the host until the event has passed."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef kEventAttributes[] = {
    {"done", event_done_attribute, nullptr, "Whether the event has passed; True where it was never recorded.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

constexpr const char *kEventDoc =
    "Event(timing=True, device=None)\n--\n\n"
    "A point in a stream's work.\n\n"
    "``end - begin`` waits for both and is the time between them in milliseconds.\n\n"
    "Parameters\n----------\n"
    "timing : bool\n    Whether it takes times; one that does not is cheaper.\n"
    "device : int or Device, optional\n    The current one by default.\n\n"
    "Examples\n--------\n>>> import cukern\n>>> begin, end = cukern.Event(), cukern.Event()\n"
    ">>> begin.record()\n>>> end.record()\n>>> end - begin >= 0\nTrue\n";

PyType_Slot kEventSlots[] = {
    {Py_tp_doc, const_cast<char *>(kEventDoc)},
    {Py_tp_new, reinterpret_cast<void *>(event_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(event_dealloc)},
    {Py_tp_methods, kEventMethods},
    {Py_tp_getset, kEventAttributes},
    {Py_nb_subtract, reinterpret_cast<void *>(event_subtract)},
    {0, nullptr},
};
PyType_Spec kEventSpec = {"cukern.Event", sizeof(EventObject), 0, Py_TPFLAGS_DEFAULT, kEventSlots};

// --- Device ---

PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"id", nullptr};
    PyObject *id = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "|O:Device", const_cast<char **>(names), &id) == 0)
        return nullptr;
    PyObject *module = PyType_GetModule(type);
    Backend backend;
    int device = 0;
    if (!ensure_backend(module, "Device", &backend) || !parse_device(state_of(module), "Device", id, &device))
        return nullptr;
    return make_device(state_of(module), device).release();
}

PyObject *device_enter(PyObject *self, PyObject *) {
    ThreadStack &own = stack();
    const ModuleState &state = state_of_type(self);
    if (own.num_devices == kDeepest) {
        PyErr_Format(PyExc_RuntimeError, "more than %d nested 'with' blocks of devices", kDeepest);
        return nullptr;
    }
    Status status = current_device(&own.devices[own.num_devices]);
    if (status == CUKERN_OK) status = set_current_device(device_of(self));
    if (status != CUKERN_OK) return done(state, "Device", status);
    ++own.num_devices;
    return PyRef::borrow(self).release();
}

PyObject *device_exit(PyObject *self, PyObject *) {
    ThreadStack &own = stack();
    if (own.num_devices == 0) {
        PyErr_SetString(PyExc_RuntimeError, "no device is active on this thread");
        return nullptr;
    }
    return done(state_of_type(self), "Device", set_current_device(own.devices[--own.num_devices]));
}

PyObject *device_synchronize_method(PyObject *self, PyObject *) {
    Status status = CUKERN_OK;
    const int device = device_of(self);
    {
        const GilRelease released;
        status = device_synchronize(device);
    }
    if (status == CUKERN_OK) release_finished();
    return done(state_of_type(self), "synchronize", status);
}

PyObject *device_id(PyObject *self, void *) { return PyLong_FromLong(device_of(self)); }
PyObject *device_index(PyObject *self) { return PyLong_FromLong(device_of(self)); }
PyObject *device_name(PyObject *self, void *) {
    DeviceInfo info;
    const Status status = device_info(device_of(self), &info);
    if (status != CUKERN_OK) return done(state_of_type(self), "name", status);
    return PyUnicode_FromString(info.name);
}
PyObject *device_repr(PyObject *self) { return PyUnicode_FromFormat("Device(%d)", device_of(self)); }
Py_hash_t device_hash(PyObject *self) { return device_of(self); }

PyObject *device_compare(PyObject *self, PyObject *other, int operation) {
    if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(self) != Py_TYPE(other)) Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((device_of(self) == device_of(other)) == (operation == Py_EQ) ? 1 : 0);
}

PyMethodDef kDeviceMethods[] = {
    {"synchronize", device_synchronize_method, METH_NOARGS,
     "synchronize()\n--\n\nWait on the host until everything on the device is done."},
    {"__enter__", device_enter, METH_NOARGS, "Make the device the current one of this thread."},
    {"__exit__", device_exit, METH_VARARGS, "Go back to the device before."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef kDeviceAttributes[] = {
    {"id", device_id, nullptr, "The device's number.", nullptr},
    {"name", device_name, nullptr, "The device's name.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

constexpr const char *kDeviceDoc =
    "Device(id=None)\n--\n\n"
    "A device, by default the current one. As a context manager it is the one that arrays are made on.\n\n"
    "Parameters\n----------\nid : int or Device, optional\n\n"
    "Examples\n--------\n>>> import cukern\n>>> with cukern.Device(0):\n...     a = cukern.zeros(3)\n"
    ">>> a.device\nDevice(0)\n";

void device_dealloc(PyObject *self) { free_object(self); }

PyType_Slot kDeviceSlots[] = {
    {Py_tp_doc, const_cast<char *>(kDeviceDoc)},
    {Py_tp_new, reinterpret_cast<void *>(device_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(device_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(device_repr)},
    {Py_tp_richcompare, reinterpret_cast<void *>(device_compare)},
    {Py_tp_hash, reinterpret_cast<void *>(device_hash)},
    {Py_nb_index, reinterpret_cast<void *>(device_index)},
    {Py_nb_int, reinterpret_cast<void *>(device_index)},
    {Py_tp_methods, kDeviceMethods},
    {Py_tp_getset, kDeviceAttributes},
    {0, nullptr},
};
PyType_Spec kDeviceSpec = {"cukern.Device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT, kDeviceSlots};

// --- functions of the module ---

PyObject *current_stream_method(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"device", nullptr};
    PyObject *where = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "|O:current_stream", const_cast<char **>(names), &where) == 0)
        return nullptr;
    const ThreadStack &own = stack();
    const bool given = where != nullptr && Py_IsNone(where) == 0;
    if (!given && own.num_streams > 0) return PyRef::borrow(own.streams[own.num_streams - 1]).release();
    const ModuleState &state = state_of(module);
    Backend backend;
    int device = 0;
    if (!ensure_backend(module, "current_stream", &backend) ||
        !parse_device(state, "current_stream", where, &device))
        return nullptr;
    StreamRef active;
    if (active_stream(&active) && active.device == device)
        return PyRef::borrow(own.streams[own.num_streams - 1]).release();
    auto *self = make<StreamObject>(state.stream_type);
    if (self == nullptr) return nullptr;
    self->ref = {};
    self->ref.device = device;
    return reinterpret_cast<PyObject *>(self);
}

PyObject *device_count_method(PyObject *module, PyObject *) {
    Backend backend;
    if (!ensure_backend(module, "device_count", &backend)) return nullptr;
    int count = 0;
    const Status status = device_count(&count);
    if (status != CUKERN_OK) return done(state_of(module), "device_count", status);
    return PyLong_FromLong(count);
}

PyObject *synchronize_method(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"device", nullptr};
    PyObject *where = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "|O:synchronize", const_cast<char **>(names), &where) == 0)
        return nullptr;
    const ModuleState &state = state_of(module);
    Backend backend;
    int device = 0;
    if (!ensure_backend(module, "synchronize", &backend) || !parse_device(state, "synchronize", where, &device))
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
                  StreamRef *stream) noexcept {
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
    void *pointer = reinterpret_cast<void *>(address);
    const Status status = stream_ref(pointer, device, stream);
    if (status != CUKERN_OK) raise_status(state, function, status);
    return status == CUKERN_OK;
}

bool active_stream(StreamRef *stream) noexcept {
    if (g_active_streams == 0) return false;
    const ThreadStack &own = stack();
    if (own.num_streams == 0) return false;
    *stream = as_stream(own.streams[own.num_streams - 1])->ref;
    return true;
}

bool parse_device(const ModuleState &state, const char *function, PyObject *object, int *device) noexcept {
    Status status = CUKERN_OK;
    if (object == nullptr || Py_IsNone(object) != 0) {
        status = current_device(device);
    } else if (reinterpret_cast<PyObject *>(Py_TYPE(object)) == state.device_type) {
        *device = device_of(object);
        return true;
    } else {
        const PyRef number = PyBool_Check(object) != 0 ? PyRef() : PyRef::steal(PyNumber_Index(object));
        if (!number) {
            PyErr_Clear();
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
                    StreamRef *out) noexcept {
    const bool has_device = device != nullptr && Py_IsNone(device) == 0;
    const bool has_stream = stream != nullptr && Py_IsNone(stream) == 0;
    int number = 0;
    if (!parse_device(state, function, device, &number)) return false;
    if (has_stream) {
        if (!parse_stream(state, function, stream, number, out)) return false;
        return !has_device || check_stream_device(function, *out, number);
    }
    if (active_stream(out) && (!has_device || out->device == number)) return true;
    *out = {};
    out->device = number;
    return true;
}

bool stream_on(const ModuleState &state, const char *function, PyObject *stream, int device,
               StreamRef *out) noexcept {
    if (stream != nullptr && Py_IsNone(stream) == 0)
        return parse_stream(state, function, stream, device, out) && check_stream_device(function, *out, device);
    if (active_stream(out) && out->device == device) return true;
    *out = {};
    out->device = device;
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
    {"current_stream", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(current_stream_method)),
     METH_VARARGS | METH_KEYWORDS,
     "current_stream(device=None)\n--\n\nReturn the stream that calls on arrays of cukern run on.\n\n"
     "It is the innermost active ``with Stream()`` of the thread, else the legacy default stream of the "
     "device.\n\n"
     "Returns\n-------\nStream\n\n"
     "Examples\n--------\n>>> import cukern\n>>> with cukern.Stream() as stream:\n"
     "...     cukern.current_stream() is stream\nTrue\n"},
    {"device_count", device_count_method, METH_NOARGS,
     "device_count()\n--\n\nReturn the number of devices.\n\nReturns\n-------\nint\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.device_count() >= 1\nTrue\n"},
    {"synchronize", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(synchronize_method)),
     METH_VARARGS | METH_KEYWORDS,
     "synchronize(device=None)\n--\n\nWait on the host until everything on a device is done.\n\n"
     "Parameters\n----------\ndevice : int or Device, optional\n    The current one by default.\n\n"
     "Raises\n------\nCudaError\n    Work that was waited for has failed.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.synchronize()\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
