// Handles for the test suite; nothing here is called in normal use.
#include "base/python.h"

#include "base/errors.h"
#include "base/methods.h"
#include "base/numpy_loops.h"

#include "cukern/testing.h"

#include <cstdlib>
#include <cstring>
#ifdef CUKERN_PLANTED_DEFECTS
#include <thread>
#endif

namespace cukern::py {
namespace {

bool parse_fault(const char *name, testing::Fault *fault) noexcept {
    for (int i = 0; i < testing::kNumFaults; ++i) {
        if (std::strcmp(testing::kFaultNames[i], name) != 0) continue;
        *fault = static_cast<testing::Fault>(i);
        return true;
    }
    PyErr_Format(PyExc_ValueError, "unknown fault '%s'", name);
    return false;
}

PyObject *inject_fault(PyObject *, PyObject *args) {
    const char *name = nullptr;
    int n = 0;
    testing::Fault fault{};
    if (PyArg_ParseTuple(args, "si", &name, &n) == 0 || !parse_fault(name, &fault)) return nullptr;
    testing::inject_fault(fault, n);
    Py_RETURN_NONE;
}

PyObject *fault_calls(PyObject *, PyObject *args) {
    const char *name = nullptr;
    testing::Fault fault{};
    if (PyArg_ParseTuple(args, "s", &name) == 0 || !parse_fault(name, &fault)) return nullptr;
    return PyLong_FromLongLong(testing::calls(fault));
}

PyObject *held(PyObject *, PyObject *) {
    static_assert(testing::kNumResources == 3, "the tuple below has one number a resource");
    return Py_BuildValue("LLL", static_cast<long long>(testing::held(testing::Resource::memory)),
                         static_cast<long long>(testing::held(testing::Resource::stream)),
                         static_cast<long long>(testing::held(testing::Resource::event)));
}

PyObject *set_staging(PyObject *, PyObject *args) {
    int copies = 0;
    long long slot_bytes = 0;
    long long small_bytes = -1;
    testing::StagingOptions options;
    if (PyArg_ParseTuple(args, "p|LLi", &copies, &slot_bytes, &small_bytes, &options.workers) == 0) return nullptr;
    options.mode = copies != 0 ? testing::StagingMode::copy : testing::StagingMode::automatic;
    options.slot_bytes = slot_bytes;
    options.small_bytes = small_bytes;
    testing::set_staging(options);
    Py_RETURN_NONE;
}

PyObject *use_backend(PyObject *module, PyObject *args) {
    const char *name = nullptr;
    if (PyArg_ParseTuple(args, "s", &name) == 0) return nullptr;
    const Backend backend = std::strcmp(name, "cuda") == 0 ? Backend::cuda : Backend::host;
    const Status status = testing::use_backend(backend);
    if (status != CUKERN_OK) {
        raise_status(state_of(module), "_use_backend", status);
        return nullptr;
    }
    ModuleState &state = state_of(module);
    if (!state.backend_ready && !hand_over_loops(state)) return nullptr;
    state.backend_ready = true;
    Py_RETURN_NONE;
}

PyObject *block_usage(PyObject *, PyObject *) {
    std::int64_t in_use = 0;
    std::int64_t cached = 0;
    testing::block_usage(&in_use, &cached);
    return Py_BuildValue("LL", static_cast<long long>(in_use), static_cast<long long>(cached));
}

PyObject *release_caches(PyObject *, PyObject *) {
    testing::release_caches();
    Py_RETURN_NONE;
}

#ifdef CUKERN_PLANTED_DEFECTS
// Only in sanitizer builds: what the sanitizers must find, so that their silence means something.
PyObject *plant_defect(PyObject *, PyObject *args) {
    const char *name = nullptr;
    if (PyArg_ParseTuple(args, "s", &name) == 0) return nullptr;
    if (std::strcmp(name, "race") == 0) {
        static volatile int shared = 0;
        std::thread other([] { shared = shared + 1; });
        shared = shared + 1;
        other.join();
        Py_RETURN_NONE;
    }
    char *volatile block = static_cast<char *>(std::malloc(16));  // volatile: its size is not known later
    if (std::strcmp(name, "leak") == 0) Py_RETURN_NONE;
    if (std::strcmp(name, "overflow") == 0) {
        volatile int most = 2147483647;
        most = most + 1;
    }
    if (std::strcmp(name, "overrun") == 0) static_cast<volatile char *>(block)[16] = 1;
    std::free(block);
    Py_RETURN_NONE;
}
#endif

}  // namespace

PyMethodDef kTestingMethods[] = {
    {"_inject_fault", inject_fault, METH_VARARGS,
     "_inject_fault(kind, n, /)\n--\n\nMake the n-th runtime call of a kind from now fail; 0 disarms."},
    {"_fault_calls", fault_calls, METH_VARARGS,
     "_fault_calls(kind, /)\n--\n\nReturn the number of runtime calls of a kind since the start."},
    {"_held", held, METH_NOARGS,
     "_held()\n--\n\nReturn the numbers of blocks of memory, streams and events held of the back-ends."},
    {"_set_staging", set_staging, METH_VARARGS,
     "_set_staging(copies, slot_bytes=0, small_bytes=-1, workers=0, /)\n--\n\nForce staging through its copies."},
    {"_use_backend", use_backend, METH_VARARGS, "_use_backend(name, /)\n--\n\nChange the back-end."},
    {"_block_usage", block_usage, METH_NOARGS,
     "_block_usage()\n--\n\nReturn the bytes of blocks of all kinds of memory, in use and cached."},
    {"_release_caches", release_caches, METH_NOARGS,
     "_release_caches()\n--\n\nGive cached blocks and lanes back to the back-end."},
#ifdef CUKERN_PLANTED_DEFECTS
    {"_plant_defect", plant_defect, METH_VARARGS, "_plant_defect(name, /)\n--\n\nFor sanitizer builds."},
#endif
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
