// Which back-end is in use, what is known of it, and where cuBLAS is.
#include "base/python.h"

#include "base/backend.h"
#include "base/errors.h"
#include "base/methods.h"
#include "base/numpy_loops.h"
#include "base/recursion.h"

#include "cukern/operations.h"

#include <cstring>

namespace cukern::py {
namespace {

// Paths and messages of other libraries, in whatever encoding.
PyRef text_of(const char *text) noexcept {
    return PyRef::steal(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace"));
}

// Asks cuda-pathfinder for cuBLAS's path, in the file system's encoding.
PyRef cublas_path() noexcept {
    const PyRef pathfinder = PyRef::steal(PyImport_ImportModule("cuda.pathfinder"));
    if (!pathfinder) return {};
    const PyRef found =
        PyRef::steal(PyObject_CallMethod(pathfinder.get(), "load_nvidia_dynamic_lib", "s", "cublas"));
    if (!found) return {};
    const PyRef path = PyRef::steal(PyObject_GetAttrString(found.get(), "abs_path"));
    PyObject *bytes = nullptr;
    if (!path || PyUnicode_FSConverter(path.get(), reinterpret_cast<void *>(&bytes)) == 0) return {};
    return PyRef::steal(bytes);
}

// Notes why the search was in vain; what is no Exception, such as KeyboardInterrupt, stays raised.
bool note_failed_search() noexcept {
    CaughtError error;
    if (!error.is_ordinary()) {
        error.restore();
        return false;
    }
    const char *reason = error.text();
    note_cublas_search("cuda-pathfinder", reason != nullptr ? reason : "it found nothing");
    return true;
}

PyObject *backend_method(PyObject *module, PyObject *) {
    Backend backend;
    if (!ensure_backend(state_of(module), "backend", &backend)) return nullptr;
    return PyUnicode_FromString(name_of(backend));
}

// Null, with an exception set, where the devices don't answer.
PyRef devices(const ModuleState &state) noexcept {
    int count = 0;
    Status status = device_count(&count);
    PyRef list = PyRef::steal(PyList_New(0));
    for (int i = 0; list && status == CUKERN_OK && i < count; ++i) {
        DeviceInfo device;
        status = device_info(i, &device);
        if (status != CUKERN_OK) break;
        const PyRef row = PyRef::steal(Py_BuildValue("{s:s,s:n,s:(ii),s:i}", "name", device.name, "memory",
                                                     static_cast<Py_ssize_t>(device.memory), "compute_capability",
                                                     device.capability_major, device.capability_minor,
                                                     "multiprocessors", device.multiprocessors));
        if (!row || PyList_Append(list.get(), row.get()) != 0) return {};
    }
    if (status == CUKERN_OK) return list;
    raise_status(state, "devices", status);
    return {};
}

// What `python -m cukern` prints.
PyObject *information_method(PyObject *module, PyObject *) {
    Backend backend;
    if (!ensure_backend(state_of(module), "information", &backend)) return nullptr;
    BackendInfo chosen;
    if (const Status status = backend_info(&chosen); status != CUKERN_OK) {
        raise_status(state_of(module), "information", status);
        return nullptr;
    }
    if (backend == Backend::cuda) {
        if (!seek_cublas(module)) return nullptr;
        const GilRelease released;
        open_cublas(nullptr);  // a failure is told by cublas_info
    }
    const CublasInfo cublas = cublas_info();
    const PyRef list = devices(state_of(module));
    const PyRef path = text_of(cublas.path);
    const PyRef tried = text_of(cublas.tried);
    if (!list || !path || !tried) return nullptr;
    return Py_BuildValue("{s:s,s:s,s:s,s:i,s:i,s:O,s:{s:O,s:i,s:O,s:O}}", "backend", name_of(backend), "reason",
                         chosen.reason, "warning", chosen.warning, "driver", driver_version(), "runtime",
                         runtime_version(), "devices", list.get(), "cublas", "open",
                         cublas.open ? Py_True : Py_False, "version", cublas.version, "path", path.get(), "tried",
                         tried.get());
}

}  // namespace

bool ensure_backend(ModuleState &state, const char *function, Backend *backend) noexcept {
    if (!enough_stack(function)) return false;
    if (state.backend_ready) {
        const Status status = active_backend(backend);
        if (status != CUKERN_OK) raise_status(state, function, status);
        return status == CUKERN_OK;
    }
    BackendInfo chosen;
    Status status = CUKERN_OK;
    {
        const GilRelease released;  // the driver may take its time
        status = backend_info(&chosen);
    }
    if (status != CUKERN_OK) {
        raise_status(state, function, status);
        return false;
    }
    *backend = chosen.backend;
    if (!state.backend_ready && !hand_over_loops(state)) return false;
    state.backend_ready = true;
    return chosen.warning[0] == '\0' || PyErr_WarnEx(PyExc_RuntimeWarning, chosen.warning, 1) == 0;
}

bool seek_cublas(PyObject *module) noexcept {
    ModuleState &state = state_of(module);
    if (state.cublas_sought) return true;
    const PyRef path = cublas_path();
    if (path) {
        const char *name = PyBytes_AsString(path.get());
        const GilRelease released;
        open_cublas(name);
    } else if (!note_failed_search()) {
        return false;
    }
    // Only now: a thread that comes meanwhile searches too, and does not go on as if all had been tried.
    state.cublas_sought = true;
    return true;
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
