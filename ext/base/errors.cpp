#include "base/python.h"

#include "base/errors.h"

namespace cukern::py {
namespace {

constexpr const char *kCudaErrorDoc =
    "A call of CUDA or cuBLAS failed.\n\n"
    "Attributes\n----------\n"
    "code : int\n    The library's own error code.\n"
    "name : str\n    Its name, such as ``cudaErrorInvalidValue``.\n"
    "api : str\n    The call that failed, such as ``cudaMemcpyAsync``.";
constexpr const char *kOutOfMemoryDoc = "The device, or pinned host memory, has not enough left for a call.";
constexpr const char *kDeviceLostDoc =
    "An earlier error has made the device's context useless for this process.\n\n"
    "Every later call raises this with the first cause; only a new process can use the device again.";
constexpr const char *kCompileErrorDoc =
    "The source of a kernel does not compile, or the driver does not load it.\n\n"
    "Attributes\n----------\n"
    "log : str\n    What the compiler said.\n"
    "source : str\n    What it was given.\n"
    "options : tuple of str\n    Its options.";

PyObject *add_exception(PyObject *module, const char *name, const char *doc, PyObject *bases) noexcept {
    PyObject *type = PyErr_NewExceptionWithDoc(name, doc, bases, nullptr);
    if (type == nullptr) return nullptr;
    constexpr std::size_t kPrefix = sizeof("cukern.") - 1;
    if (PyModule_AddObjectRef(module, name + kPrefix, type) == 0) return type;
    Py_DECREF(type);
    return nullptr;
}

bool set_attribute(PyObject *object, const char *name, PyRef value) noexcept {
    return value && PyObject_SetAttrString(object, name, value.get()) == 0;
}

void raise_cuda(PyObject *type, const char *function, const ErrorRecord &record) noexcept {
    const PyRef message = PyRef::steal(PyUnicode_FromFormat("%s: %s", function, record.message));
    if (!message) return;
    const PyRef error = PyRef::steal(PyObject_CallFunctionObjArgs(type, message.get(), nullptr));
    if (!error || !set_attribute(error.get(), "code", PyRef::steal(PyLong_FromLong(record.code))) ||
        !set_attribute(error.get(), "name", PyRef::steal(PyUnicode_FromString(record.name))) ||
        !set_attribute(error.get(), "api", PyRef::steal(PyUnicode_FromString(record.api))))
        return;
    PyErr_SetObject(type, error.get());
}

}  // namespace

bool add_exceptions(PyObject *module, ModuleState &state) noexcept {
    state.cuda_error = add_exception(module, "cukern.CudaError", kCudaErrorDoc, PyExc_RuntimeError);
    if (state.cuda_error == nullptr) return false;
    const PyRef bases = PyRef::steal(PyTuple_Pack(2, state.cuda_error, PyExc_MemoryError));
    if (!bases) return false;
    state.out_of_memory_error = add_exception(module, "cukern.OutOfMemoryError", kOutOfMemoryDoc, bases.get());
    if (state.out_of_memory_error == nullptr) return false;
    state.device_lost_error = add_exception(module, "cukern.DeviceLostError", kDeviceLostDoc, state.cuda_error);
    if (state.device_lost_error == nullptr) return false;
    state.compile_error = add_exception(module, "cukern.CompileError", kCompileErrorDoc, PyExc_RuntimeError);
    return state.compile_error != nullptr;
}

void raise_status(const ModuleState &state, const char *function, Status status) noexcept {
    const ErrorRecord record = last_error();  // a copy: making the exception may run other code
    switch (status) {
        case CUKERN_OUT_OF_MEMORY: return raise_cuda(state.out_of_memory_error, function, record);
        case CUKERN_CUDA_ERROR: return raise_cuda(state.cuda_error, function, record);
        case CUKERN_DEVICE_LOST: return raise_cuda(state.device_lost_error, function, record);
        case CUKERN_INVALID_ARGUMENT: PyErr_Format(PyExc_ValueError, "%s: %s", function, record.message); return;
        case CUKERN_NOT_SUPPORTED: PyErr_Format(PyExc_TypeError, "%s: %s", function, record.message); return;
        case CUKERN_INTERNAL: PyErr_Format(PyExc_SystemError, "%s: %s", function, record.message); return;
        case CUKERN_CAPTURING: PyErr_Format(PyExc_RuntimeError, "%s: %s", function, record.message); return;
        case CUKERN_INTERRUPTED:
            if (PyErr_Occurred() != nullptr) return;  // which asked for it
            break;
        case CUKERN_OK:
        case CUKERN_LIBRARY_NOT_FOUND:
        case CUKERN_FORKED:
        case CUKERN_NO_BACKEND: break;
    }
    PyErr_Format(PyExc_RuntimeError, "%s: %s", function, record.message);
}

}  // namespace cukern::py
