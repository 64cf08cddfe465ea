// Counters, and what users may ask of the memory pools.
#include "base/python.h"

#include "base/backend.h"
#include "base/errors.h"
#include "base/methods.h"
#include "base/signature.h"
#include "streams/streams.h"

#include "cukern/storage.h"

namespace cukern::py {
namespace {

PyObject *counters_method(PyObject *, PyObject *) {
    const Counters c = counters();
    return Py_BuildValue(
        "{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "launches", static_cast<long long>(c.launches), "synchronizations",
        static_cast<long long>(c.synchronizations), "host_to_device_bytes",
        static_cast<long long>(c.host_to_device), "device_to_host_bytes", static_cast<long long>(c.device_to_host),
        "driver_allocations", static_cast<long long>(c.driver_allocations), "free_list_hits",
        static_cast<long long>(c.free_list_hits), "calls_on_host", static_cast<long long>(c.calls_on_host),
        "calls_on_device", static_cast<long long>(c.calls_on_device));
}

#define CUKERN_MEMORY_INFO "(memory='device', device=None)"
#define CUKERN_SET_MEMORY_LIMIT "(bytes, memory='device', device=None)"

PyObject *memory_info_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_MEMORY_INFO);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("memory_info", nullptr, values, count, names, arguments)) return nullptr;
    const ModuleState &state = state_of(module);
    Backend backend;
    MemoryKind kind;
    int device = 0;
    if (!ensure_backend(state_of(module), "memory_info", &backend) ||
        !parse_memory("memory_info", arguments[0], &kind) ||
        !parse_device(state, "memory_info", arguments[1], &device))
        return nullptr;
    MemoryInfo info;
    if (const Status status = memory_info(kind, device, &info); status != CUKERN_OK) {
        raise_status(state, "memory_info", status);
        return nullptr;
    }
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L}", "total", static_cast<long long>(info.total), "free",
                         static_cast<long long>(info.free), "in_use", static_cast<long long>(info.in_use),
                         "cached", static_cast<long long>(info.cached), "limit",
                         static_cast<long long>(info.limit));
}

PyObject *set_memory_limit_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_SET_MEMORY_LIMIT);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("set_memory_limit", nullptr, values, count, names, arguments)) return nullptr;
    PyObject *const number = arguments[0];
    long long bytes = 0;
    if (Py_IsNone(number) == 0) {
        bytes = PyLong_AsLongLong(number);
        if (bytes == -1 && PyErr_Occurred() != nullptr) return nullptr;
        if (bytes <= 0) {
            PyErr_Format(PyExc_ValueError, "set_memory_limit: bytes is %R; expected a positive number or None",
                         number);
            return nullptr;
        }
    }
    const ModuleState &state = state_of(module);
    Backend backend;
    MemoryKind kind;
    int device = 0;
    if (!ensure_backend(state_of(module), "set_memory_limit", &backend) ||
        !parse_memory("set_memory_limit", arguments[1], &kind) ||
        !parse_device(state, "set_memory_limit", arguments[2], &device))
        return nullptr;
    if (const Status status = set_memory_limit(kind, device, bytes); status != CUKERN_OK) {
        raise_status(state, "set_memory_limit", status);
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject *empty_cache_method(PyObject *module, PyObject *) {
    Backend backend;
    if (!ensure_backend(state_of(module), "empty_cache", &backend)) return nullptr;
    release_finished();
    Status status = CUKERN_OK;
    {
        const GilRelease released;  // the driver waits for the device
        status = empty_cache();
    }
    if (status != CUKERN_OK) {
        raise_status(state_of(module), "empty_cache", status);
        return nullptr;
    }
    Py_RETURN_NONE;
}

}  // namespace

PyMethodDef kMemoryMethods[] = {
    {"counters", counters_method, METH_NOARGS,
     "counters()\n--\n\nReturn counts of what cukern has done since the process started, as a dict.\n\n"
     "Returns\n-------\ndict\n"
     "    ``launches``; ``synchronizations`` of the host with a stream, an event or a device;\n"
     "    ``host_to_device_bytes`` and ``device_to_host_bytes``; ``driver_allocations`` of memory of any kind;\n"
     "    ``free_list_hits``, allocations that were served from what was kept for reuse; ``calls_on_host`` and\n"
     "    ``calls_on_device``: of calls whose arrays were all in the host's memory, those that the processor\n"
     "    computed and those that were brought to the device.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> before = cukern.counters()['launches']\n"
     ">>> a = cukern.ones(3) + cukern.ones(3)\n>>> cukern.counters()['launches'] - before\n3\n"},
    {"memory_info", as_method(memory_info_method), METH_FASTCALL | METH_KEYWORDS,
     "memory_info" CUKERN_MEMORY_INFO "\n--\n\nReturn what is known of one kind of memory, in bytes.\n\n"
     "Parameters\n----------\nmemory : {'device', 'managed', 'pinned'}\n"
     "device : int or Device, optional\n    The current one by default.\n\n"
     "Returns\n-------\ndict\n"
     "    ``total`` and ``free`` of the device; for pinned memory and on the host back-end of the machine, or of\n"
     "    the container if that allows less. ``in_use`` by cukern's arrays and calls; ``cached``, kept by cukern\n"
     "    for reuse; ``limit`` of these two together, 0 where none is set.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> a = cukern.zeros(1000)\n"
     ">>> cukern.memory_info()['in_use'] >= a.nbytes\nTrue\n"},
    {"set_memory_limit", as_method(set_memory_limit_method), METH_FASTCALL | METH_KEYWORDS,
     "set_memory_limit" CUKERN_SET_MEMORY_LIMIT "\n--\n\nSet the most that cukern takes of one kind of "
     "memory on a device.\n\n"
     "Parameters\n----------\nbytes : int or None\n    None lifts the limit.\n"
     "memory : {'device', 'managed', 'pinned'}\n"
     "device : int or Device, optional\n    The current one by default.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.set_memory_limit(1 << 40)\n"
     ">>> cukern.memory_info()['limit'] == 1 << 40\nTrue\n>>> cukern.set_memory_limit(None)\n"},
    {"empty_cache", empty_cache_method, METH_NOARGS,
     "empty_cache()\n--\n\nGive the memory that is kept for reuse back to the driver.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.empty_cache()\n"
     ">>> cukern.memory_info()['cached']\n0\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
