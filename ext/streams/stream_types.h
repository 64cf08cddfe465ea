// What the types Stream, Event and Device share: their objects.
#pragma once

#include "base/python.h"

#include "base/errors.h"
#include "streams/with_blocks.h"

namespace cukern::py {

struct StreamObject {
    PyObject_HEAD StreamRef ref;  // its owner, if it has one, is owned by this object
    PyObject *source;             // owned: what a handle came from; or null
    PyObject *weak_references;
    WithBlock *blocks;  // `with` blocks that are not left yet
};

struct EventObject {
    PyObject_HEAD EventRef event;
    bool timing;
    bool recorded;
};

struct DeviceObject {
    PyObject_HEAD int device;
    WithBlock *blocks;  // `with` blocks that are not left yet
};

inline StreamObject *as_stream(PyObject *object) noexcept { return reinterpret_cast<StreamObject *>(object); }
inline EventObject *as_event(PyObject *object) noexcept { return reinterpret_cast<EventObject *>(object); }
inline DeviceObject *as_device(PyObject *object) noexcept { return reinterpret_cast<DeviceObject *>(object); }
inline int device_of(PyObject *object) noexcept { return as_device(object)->device; }

// Returns None, or raises what a status says.
inline PyObject *done(const ModuleState &state, const char *function, Status status) noexcept {
    if (status == CUKERN_OK) Py_RETURN_NONE;
    raise_status(state, function, status);
    return nullptr;
}

inline void free_object(PyObject *self) noexcept {
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

extern PyType_Spec kStreamSpec;
extern PyType_Spec kEventSpec;
extern PyType_Spec kDeviceSpec;

// TypeError for what is no cukern.Event.
bool check_event(const ModuleState &state, const char *function, PyObject *object) noexcept;

}  // namespace cukern::py
