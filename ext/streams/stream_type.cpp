// cukern.Stream.
#include "base/python.h"

#include "streams/stream_types.h"

#include <cstddef>

#include "base/backend.h"
#include "base/methods.h"
#include "base/signature.h"
#include "streams/streams.h"
#include "streams/with_blocks.h"

#include "cukern/storage.h"

namespace cukern::py {
namespace {

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
    if (!ensure_backend(state_of(module), "Stream", &backend) || !parse_device(state, "Stream", where, &device))
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
    forget_blocks(stream->blocks);
    if (stream->ref.owner != nullptr) stream->ref.owner->release();
    Py_CLEAR(stream->source);
    free_object(self);
}

#define CUKERN_FROM_HANDLE "($type, /, handle, device=None)"

PyObject *stream_from_handle(PyObject *type, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_FROM_HANDLE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("from_handle", type, values, count, names, arguments)) return nullptr;
    PyObject *const handle = arguments[1];
    PyObject *module = PyType_GetModule(reinterpret_cast<PyTypeObject *>(type));
    const ModuleState &state = state_of(module);
    Backend backend;
    int device = 0;
    HeldStream ref;
    if (!ensure_backend(state_of(module), "from_handle", &backend) ||
        !parse_device(state, "from_handle", arguments[2], &device) ||
        !parse_stream(state, "from_handle", handle, device, &ref))
        return nullptr;
    auto *self = make<StreamObject>(type);
    if (self == nullptr) return nullptr;
    self->ref = ref;
    if (ref->owner != nullptr) ref->owner->retain();
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
    if (!enter_block(state_of_type(self), self, &as_stream(self)->blocks)) return nullptr;
    return PyRef::borrow(self).release();
}

PyObject *stream_exit(PyObject *self, PyObject *) {
    if (!leave_block(state_of_type(self), self, "stream", &as_stream(self)->blocks)) return nullptr;
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
    {"from_handle", as_method(stream_from_handle), METH_FASTCALL | METH_KEYWORDS | METH_CLASS,
     "from_handle" CUKERN_FROM_HANDLE "\n--\n\nReturn the stream of a raw handle, or of an object with "
     "``__cuda_stream__``.\n\nThe handle is borrowed: its owner keeps the stream alive while it is used. 0 and 1 "
     "are "
     "the legacy\ndefault stream, 2 is the calling thread's default stream."},
    {"synchronize", stream_synchronize_method, METH_NOARGS,
     "synchronize()\n--\n\nWait on the host until everything on the stream is done."},
    {"record", stream_record, METH_VARARGS,
     "record(event=None)\n--\n\nRecord an event, by default a new one, and return it."},
    {"wait_event", stream_wait_event, METH_O,
     "wait_event(event, /)\n--\n\nHave what follows on the stream wait for an event; the host does not wait."},
    {"__enter__", stream_enter, METH_NOARGS, "Make the stream the one that calls in this context run on."},
    {"__exit__", stream_exit, METH_VARARGS, "Leave the block: the next one out counts again."},
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
    "As a context manager it is the stream of the calls in this context (of contextvars) that are given no "
    "other.\n\n"
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

}  // namespace

PyType_Spec kStreamSpec = {"cukern.Stream", sizeof(StreamObject), 0, Py_TPFLAGS_DEFAULT, kStreamSlots};

}  // namespace cukern::py
