// Pickles of an Array: its bytes in C order, out of band with protocol 5.
#include "base/python.h"

#include "array/array.h"

#include "base/backend.h"
#include "base/methods.h"
#include "call/operand.h"
#include "streams/streams.h"
#include "types/element_types.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

// The bytes of an array in C order, as ndarray: what pickles hold.
PyRef packed_bytes(const ModuleState &state, Array *array) noexcept {
    HeldStream stream;
    stream.set_default(array->device());
    npy_intp shape[kMaxDims];
    for (int i = 0; i < array->ndim; ++i) shape[i] = array->shape()[i];
    // As unsigned numbers of the same size, so that bfloat16 needs no package; complex types keep their own.
    const ElementType bits = bits_of(array->type);
    PyRef dtype = numpy_dtype(state, bits);
    PyRef result =
        PyRef::steal(PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr *>(dtype.release()),
                                          array->ndim, shape, nullptr, nullptr, 0, nullptr));
    if (!result) return {};
    TrackedView source;
    tracked_view_of(array, &source);
    source.view.type = bits;
    Operand destination;
    if (!destination.read_memory({state, "pickle", "the result"}, result.get(), true)) return {};
    return copy_into(state, "pickle", source, destination.access(), stream) ? std::move(result) : PyRef();
}

// _restore(buffer, dtype's name, shape, memory): what a pickle calls.
PyObject *restore_method(PyObject *module, PyObject *args) {
    PyObject *buffer = nullptr;
    const char *name = nullptr;
    PyObject *lengths = nullptr;
    PyObject *memory = nullptr;
    if (PyArg_ParseTuple(args, "OsOO:_restore", &buffer, &name, &lengths, &memory) == 0) return nullptr;
    const ModuleState &state = state_of(module);
    const PyRef text = PyRef::steal(PyUnicode_FromString(name));
    ElementType type;
    Shape shape;
    MemoryKind kind;
    HeldStream stream;
    Backend backend;
    if (!ensure_backend(state_of(module), "_restore", &backend) || !text ||
        !parse_dtype(state, "_restore", text.get(), &type) || !parse_shape("_restore", lengths, &shape) ||
        !parse_memory("_restore", memory, &kind) || !stream_for_new(state, "_restore", nullptr, nullptr, &stream))
        return nullptr;
    PyRef result = new_array(state, "_restore", kind, type, shape.ndim, shape.lengths, nullptr, stream);
    BufferHolder bytes;
    if (!result || !bytes.acquire(buffer, PyBUF_SIMPLE)) return nullptr;
    Array *array = array_of(result.get());
    TrackedView destination;
    tracked_view_of(array, &destination);
    destination.view.type = bits_of(type);
    TrackedView source;
    source.view = destination.view;
    source.view.data = bytes.get().buf;
    set_contiguous(source.view);
    if (bytes.get().len != bytes_of(destination.view)) {
        PyErr_SetString(PyExc_ValueError,
                        "_restore: the pickle holds another number of bytes than its shape needs");
        return nullptr;
    }
    return copy_into(state, "_restore", source, destination, stream) ? result.release() : nullptr;
}

}  // namespace

PyObject *array_reduce_ex(PyObject *self, PyObject *protocol) {
    const long number = PyLong_AsLong(protocol);
    if (number == -1 && PyErr_Occurred() != nullptr) return nullptr;
    const ModuleState &state = state_of_type(self);
    Array *array = array_of(self);
    PyRef payload = packed_bytes(state, array);
    if (!payload) return nullptr;
    if (number >= 5) {
        const PyRef pickle = PyRef::steal(PyImport_ImportModule("pickle"));
        payload =
            pickle ? PyRef::steal(PyObject_CallMethod(pickle.get(), "PickleBuffer", "O", payload.get())) : PyRef();
    } else {
        payload = PyRef::steal(PyObject_CallMethod(payload.get(), "tobytes", nullptr));
    }
    const PyRef shape = PyRef::steal(PyObject_GetAttr(self, state.name_shape));
    if (!payload || !shape) return nullptr;
    return Py_BuildValue("O(OsOs)", state.restore, payload.get(), name_of(array->type), shape.get(),
                         name_of(array->kind()));
}

PyMethodDef kPickleMethods[] = {
    {"_restore", restore_method, METH_VARARGS,
     "_restore(buffer, dtype, shape, memory, /)\n--\n\nMake the Array of a pickle."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
