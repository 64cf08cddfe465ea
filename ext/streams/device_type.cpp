// cukern.Device.
#include "base/python.h"

#include "streams/stream_types.h"

#include "base/backend.h"
#include "streams/streams.h"
#include "streams/with_blocks.h"

#include "cukern/storage.h"

namespace cukern::py {
namespace {

PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"id", nullptr};
    PyObject *id = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "|O:Device", const_cast<char **>(names), &id) == 0)
        return nullptr;
    PyObject *module = PyType_GetModule(type);
    Backend backend;
    int device = 0;
    if (!ensure_backend(state_of(module), "Device", &backend) ||
        !parse_device(state_of(module), "Device", id, &device))
        return nullptr;
    return make_device(state_of(module), device).release();
}

PyObject *device_enter(PyObject *self, PyObject *) {
    if (!enter_block(state_of_type(self), self, &as_device(self)->blocks)) return nullptr;
    return PyRef::borrow(self).release();
}

PyObject *device_exit(PyObject *self, PyObject *) {
    if (!leave_block(state_of_type(self), self, "device", &as_device(self)->blocks)) return nullptr;
    Py_RETURN_NONE;
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

PyObject *device_reduce(PyObject *self, PyObject *) {
    return Py_BuildValue("O(i)", reinterpret_cast<PyObject *>(Py_TYPE(self)), device_of(self));
}

PyMethodDef kDeviceMethods[] = {
    {"synchronize", device_synchronize_method, METH_NOARGS,
     "synchronize()\n--\n\nWait on the host until everything on the device is done."},
    {"__reduce__", device_reduce, METH_NOARGS, "Pickled by its number."},
    {"__enter__", device_enter, METH_NOARGS,
     "Make the device the one that new arrays in this context are made on."},
    {"__exit__", device_exit, METH_VARARGS, "Leave the block: the next one out counts again."},
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

void device_dealloc(PyObject *self) {
    forget_blocks(as_device(self)->blocks);
    free_object(self);
}

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

}  // namespace

PyType_Spec kDeviceSpec = {"cukern.Device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT, kDeviceSlots};

}  // namespace cukern::py
