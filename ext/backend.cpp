// Which back-end is in use, what is known of it, and where cuBLAS is.
#include "python.h"

#include "errors.h"
#include "methods.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

// Asks cuda-pathfinder for cuBLAS's path. Its failure is no error: cuda/ then tries the usual names.
PyRef cublas_path() noexcept {
    const PyRef pathfinder = PyRef::steal(PyImport_ImportModule("cuda.pathfinder"));
    if (!pathfinder) return {};
    const PyRef found =
        PyRef::steal(PyObject_CallMethod(pathfinder.get(), "load_nvidia_dynamic_lib", "s", "cublas"));
    if (!found) return {};
    return PyRef::steal(PyObject_GetAttrString(found.get(), "abs_path"));
}

PyObject *backend_method(PyObject *module, PyObject *) {
    Backend backend;
    if (!ensure_backend(module, "backend", &backend)) return nullptr;
    return PyUnicode_FromString(name_of(backend));
}

PyRef devices() noexcept {
    int count = 0;
    Status status = device_count(&count);
    PyRef list = PyRef::steal(PyList_New(0));
    for (int i = 0; list && status == CUKERN_OK && i < count; ++i) {
        DeviceInfo device;
        status = device_info(i, &device);
        if (status != CUKERN_OK) break;
        const PyRef row = PyRef::steal(Py_BuildValue("{s:s,s:n,s:(ii)}", "name", device.name, "memory",
                                                     static_cast<Py_ssize_t>(device.memory), "compute_capability",
                                                     device.capability_major, device.capability_minor));
        if (!row || PyList_Append(list.get(), row.get()) != 0) return {};
    }
    return list;
}

// What `python -m cukern` prints.
PyObject *information_method(PyObject *module, PyObject *) {
    Backend backend;
    if (!ensure_backend(module, "information", &backend)) return nullptr;
    BackendInfo chosen;
    if (const Status status = backend_info(&chosen); status != CUKERN_OK) {
        raise_status(state_of(module), "information", status);
        return nullptr;
    }
    if (backend == Backend::cuda) {
        seek_cublas(module);
        open_cublas(nullptr);  // a failure is told by cublas_info
    }
    const CublasInfo cublas = cublas_info();
    const PyRef list = devices();
    if (!list) return nullptr;
    return Py_BuildValue("{s:s,s:s,s:s,s:i,s:i,s:O,s:{s:O,s:i,s:s,s:s}}", "backend", name_of(backend), "reason",
                         chosen.reason, "warning", chosen.warning, "driver", driver_version(), "runtime",
                         runtime_version(), "devices", list.get(), "cublas", "open",
                         cublas.open ? Py_True : Py_False, "version", cublas.version, "path", cublas.path, "tried",
                         cublas.tried);
}

}  // namespace

bool ensure_backend(PyObject *module, const char *function, Backend *backend) noexcept {
    BackendInfo chosen;
    Status status = CUKERN_OK;
    ModuleState &state = state_of(module);
    if (state.backend_ready) {
        status = backend_info(&chosen);
    } else {
        const GilRelease released;  // the driver may take its time
        status = backend_info(&chosen);
    }
    if (status != CUKERN_OK) {
        raise_status(state, function, status);
        return false;
    }
    *backend = chosen.backend;
    if (state.backend_ready) return true;
    state.backend_ready = true;
    return chosen.warning[0] == '\0' || PyErr_WarnEx(PyExc_RuntimeWarning, chosen.warning, 1) == 0;
}

void seek_cublas(PyObject *module) noexcept {
    ModuleState &state = state_of(module);
    if (state.cublas_sought) return;
    state.cublas_sought = true;
    const PyRef path = cublas_path();
    const PyRef text = path ? PyRef::steal(PyObject_Str(path.get())) : PyRef();
    if (text) {
        open_cublas(PyUnicode_AsUTF8AndSize(text.get(), nullptr));
        return;
    }
    PyObject *type = nullptr;
    PyObject *value = nullptr;
    PyObject *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    const PyRef held[] = {PyRef::steal(type), PyRef::steal(value), PyRef::steal(traceback)};
    const PyRef why = value != nullptr ? PyRef::steal(PyObject_Str(value)) : PyRef();
    const char *reason = why ? PyUnicode_AsUTF8AndSize(why.get(), nullptr) : nullptr;
    note_cublas_search("cuda-pathfinder", reason != nullptr ? reason : "it found nothing");
    PyErr_Clear();
}

PyMethodDef kBackendMethods[] = {
    {"backend", backend_method, METH_NOARGS,
     "backend()\n--\n\nReturn the back-end in use: ``'cuda'`` or ``'host'``.\n\n"
     "It is chosen on first use, from the environment variable ``CUKERN_BACKEND`` (``cuda``, ``host`` or\n"
     "``auto``, the default: cuda where a usable device exists).\n\n"
     "Returns\n-------\nstr\n\n"
     "Raises\n------\nRuntimeError\n    ``CUKERN_BACKEND`` asks for what is not there.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.backend() in ('cuda', 'host')\nTrue\n"},
    {"_information", information_method, METH_NOARGS,
     "_information()\n--\n\nReturn what ``python -m cukern`` prints, as a dict."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
