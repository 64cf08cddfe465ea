// Calls into other libraries: __dlpack__, their allocators, from_dlpack.
#include "base/python.h"

#include "interop/frameworks.h"

#include <cstring>
#include <limits>

#include "types/element_types.h"

namespace cukern::py {
namespace {

// Whether the exception that is set is of a function that does not know a keyword.
bool refuses_keyword() noexcept {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return false;
    CaughtError error;
    const char *message = error.text();
    const bool refused = message != nullptr && std::strstr(message, "keyword") != nullptr;
    error.restore();
    return refused;
}

void set_exchange_error(void *, const char *kind, const char *message) {
    PyObject *type = std::strcmp(kind, "MemoryError") == 0 ? PyExc_MemoryError : PyExc_RuntimeError;
    if (PyErr_Occurred() == nullptr) PyErr_Format(type, "%s: %s", kind, message);
}

}  // namespace

PyRef dlpack_stream(const StreamRef &stream) noexcept {
    if (stream.id == 0) return PyRef::steal(PyLong_FromLong(static_cast<long>(kLegacyHandle)));
    return PyRef::steal(PyLong_FromVoidPtr(stream.handle));
}

bool ask_device(const ArgumentInfo &argument, PyObject *object, dlpack::Device *device) noexcept {
    const PyRef pair =
        PyRef::steal(PyObject_CallMethodObjArgs(object, argument.state.name_dlpack_device, nullptr));
    if (!pair) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return false;
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s: %s has no __dlpack__ and __dlpack_device__; its type is %R",
                     argument.function, argument.name, reinterpret_cast<PyObject *>(Py_TYPE(object)));
        return false;
    }
    const bool is_pair = PyTuple_Check(pair.get()) != 0 && PyTuple_Size(pair.get()) == 2;
    using Limits = std::numeric_limits<std::int32_t>;
    long numbers[2] = {Limits::max() + 1L, 0};
    for (int i = 0; is_pair && i < 2; ++i) {
        const PyRef number = PyRef::steal(PyNumber_Index(PyTuple_GetItem(pair.get(), i)));
        numbers[i] = number ? PyLong_AsLong(number.get()) : Limits::max() + 1L;
        if (PyErr_Occurred() == nullptr) continue;
        if (!clear_lookup_error()) return false;
        numbers[i] = Limits::max() + 1L;
    }
    for (const long number : numbers) {
        if (number >= Limits::min() && number <= Limits::max()) continue;
        PyErr_Format(PyExc_TypeError, "%s: %s says that its device is %R; expected (type, id)", argument.function,
                     argument.name, pair.get());
        return false;
    }
    *device = {static_cast<std::int32_t>(numbers[0]), static_cast<std::int32_t>(numbers[1])};
    return true;
}

bool parse_copy(const char *function, PyObject *object, bool *always, bool *never) noexcept {
    *always = *never = false;
    if (object == nullptr || Py_IsNone(object) != 0) return true;
    if (PyBool_Check(object) == 0 && !PyArray_IsScalar(object, Bool)) {
        PyErr_Format(PyExc_TypeError, "%s: copy is %R; expected True, False or None", function, object);
        return false;
    }
    const int truth = PyObject_IsTrue(object);
    *always = truth == 1;
    *never = truth == 0;
    return truth >= 0;
}

PyRef call_dlpack(const ModuleState &state, PyObject *object, const StreamRef *stream, PyObject *copy,
                  PyObject *device) noexcept {
    const PyRef method = PyRef::steal(PyObject_GetAttr(object, state.name_dlpack));
    const PyRef none = PyRef::steal(PyTuple_New(0));
    const PyRef options = PyRef::steal(PyDict_New());
    if (!method || !none || !options) return {};
    if (stream != nullptr) {
        const PyRef number = dlpack_stream(*stream);
        if (!number || PyDict_SetItem(options.get(), state.name_stream, number.get()) != 0) return {};
    }
    if (Py_IsNone(copy) == 0 && PyDict_SetItemString(options.get(), "copy", copy) != 0) return {};
    if (device != nullptr && PyDict_SetItemString(options.get(), "dl_device", device) != 0) return {};
    if (PyDict_SetItemString(options.get(), "max_version", state.dlpack_version) != 0) return {};
    PyRef capsule = PyRef::steal(PyObject_Call(method.get(), none.get(), options.get()));
    // Producers from before DLPack 1.0 know neither max_version nor copy, and some copy only to the host: a copy
    // is made of what they give.
    const bool refused = !capsule && Py_IsTrue(copy) != 0 && PyErr_ExceptionMatches(PyExc_BufferError) != 0;
    if (capsule || device != nullptr || (!refused && !refuses_keyword())) return capsule;
    PyErr_Clear();
    if (!refused && PyDict_DelItemString(options.get(), "max_version") != 0) return {};
    if (Py_IsNone(copy) == 0 && PyDict_DelItemString(options.get(), "copy") != 0) return {};
    return PyRef::steal(PyObject_Call(method.get(), none.get(), options.get()));
}

PyRef make_by_exchange(const ArgumentInfo &argument, const dlpack::ExchangeAPI *api, const dlpack::Device &device,
                       ElementType type, const Shape &shape, ForeignArray *array) noexcept {
    dlpack::Tensor prototype{};
    std::int64_t lengths[kMaxDims];
    for (int i = 0; i < shape.ndim; ++i) lengths[i] = shape.lengths[i];
    prototype.device = device;
    prototype.ndim = shape.ndim;
    prototype.dtype = dlpack_type_of(type);
    prototype.shape = lengths;
    dlpack::ManagedTensorVersioned *managed = nullptr;
    if (api->allocate(&prototype, &managed, nullptr, set_exchange_error) != 0 || managed == nullptr) {
        if (PyErr_Occurred() == nullptr)
            PyErr_SetString(PyExc_RuntimeError, "another library's allocator failed without saying why");
        return {};
    }
    if (!read_tensor(argument, managed->tensor, array)) {
        const HeldError held;
        if (managed->deleter != nullptr) managed->deleter(managed);
        return {};
    }
    void *object = nullptr;
    if (api->object_from_managed(managed, &object) != 0) {
        if (PyErr_Occurred() == nullptr)
            PyErr_SetString(PyExc_RuntimeError, "another library could not make an array of its own memory");
        return {};
    }
    return PyRef::steal(static_cast<PyObject *>(object));
}

PyRef convert_like(const ModuleState &state, PyObject *like, PyObject *array) noexcept {
    PyRef space;
    if (const PyRef method = PyRef::steal(PyObject_GetAttr(like, state.name_namespace)); method) {
        space = PyRef::steal(PyObject_CallFunctionObjArgs(method.get(), nullptr));
        if (!space) return {};
    } else {  // the package that the type comes from
        if (!clear_lookup_error()) return {};
        const PyRef module =
            PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(like)), "__module__"));
        const PyRef parts =
            module ? PyRef::steal(PyObject_CallMethod(module.get(), "partition", "s", ".")) : PyRef();
        PyObject *package =
            parts ? PyDict_GetItemWithError(state.modules, PyTuple_GetItem(parts.get(), 0)) : nullptr;
        if (package != nullptr) space = PyRef::borrow(package);
    }
    const PyRef from_dlpack =
        space ? PyRef::steal(PyObject_GetAttr(space.get(), state.name_from_dlpack)) : PyRef();
    if (!from_dlpack) {
        if (!clear_lookup_error()) return {};
        return PyRef::borrow(array);  // no such function: the array itself is the result
    }
    PyRef result = PyRef::steal(PyObject_CallFunctionObjArgs(from_dlpack.get(), array, nullptr));
    if (result || PyArray_Check(array) == 0 || PyErr_ExceptionMatches(PyExc_BufferError) == 0) return result;
    PyErr_Clear();  // an element type that NumPy does not export, such as ml_dtypes' bfloat16: by a copy
    return PyRef::steal(PyObject_CallMethod(space.get(), "asarray", "O", array));
}

}  // namespace cukern::py
