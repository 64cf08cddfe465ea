// cukern.Event.
#include "base/python.h"

#include "streams/stream_types.h"

#include "base/backend.h"
#include "streams/streams.h"

namespace cukern::py {
namespace {

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
    if (!ensure_backend(state_of(module), "Event", &backend) || !parse_device(state, "Event", where, &device))
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
    HeldStream stream;
    if (object != nullptr && Py_IsNone(object) == 0) {
        if (!parse_stream(state, "record", object, event->event.device, &stream)) return nullptr;
    } else if (!stream_on(state, "record", nullptr, event->event.device, &stream)) {
        return nullptr;
    }
    if (stream->device != event->event.device) {
        PyErr_Format(PyExc_ValueError, "record: the stream is of device %d, the event of device %d",
                     stream->device, event->event.device);
        return nullptr;
    }
    const Status status = event_record(&event->event, stream);
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
     "synchronize()\n--\n\nWait on the host until the event has completed."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef kEventAttributes[] = {
    {"done", event_done_attribute, nullptr, "Whether the event has completed; True where it was never recorded.",
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

}  // namespace

PyType_Spec kEventSpec = {"cukern.Event", sizeof(EventObject), 0, Py_TPFLAGS_DEFAULT, kEventSlots};

bool check_event(const ModuleState &state, const char *function, PyObject *object) noexcept {
    if (reinterpret_cast<PyObject *>(Py_TYPE(object)) == state.event_type) return true;
    PyErr_Format(PyExc_TypeError, "%s: expected a cukern.Event, got %R", function, object);
    return false;
}

}  // namespace cukern::py
