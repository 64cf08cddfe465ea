#include "base/python.h"

#include "call/placement.h"

#include <cstring>

#include "base/backend.h"
#include "base/methods.h"

namespace cukern::py {
namespace {

struct PlacementObject {
    PyObject_HEAD Placement placement;
};

PlacementObject *as_placement(PyObject *object) noexcept { return reinterpret_cast<PlacementObject *>(object); }

PyObject *placement_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"where", nullptr};
    const char *where = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "s:placement", const_cast<char **>(names), &where) == 0)
        return nullptr;
    int found = 0;
    while (found < kNumPlacements && std::strcmp(kPlacementNames[found], where) != 0) ++found;
    if (found == kNumPlacements)
        return PyErr_Format(PyExc_ValueError, "placement: got '%s'; expected 'auto', 'host' or 'device'", where);
    Backend backend;
    if (!ensure_backend(state_of(PyType_GetModule(type)), "placement", &backend)) return nullptr;
    PyRef self = PyRef::steal(PyType_GenericAlloc(type, 0));
    if (self) as_placement(self.get())->placement = static_cast<Placement>(found);
    return self.release();
}

void placement_dealloc(PyObject *self) {
    PyTypeObject *const type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyObject *placement_enter(PyObject *self, PyObject *) {
    return begin_placement(self, as_placement(self)->placement) ? PyRef::borrow(self).release() : PyErr_NoMemory();
}

PyObject *placement_exit(PyObject *self, PyObject *) {
    if (end_placement(self)) Py_RETURN_NONE;
    PyErr_SetString(PyExc_RuntimeError,
                    "placement: this thread is not in this block; another one may have entered it");
    return nullptr;
}

PyObject *placement_repr(PyObject *self) {
    return PyUnicode_FromFormat("placement('%s')", name_of(as_placement(self)->placement));
}

PyMethodDef kPlacementMethods[] = {
    {"__enter__", placement_enter, METH_NOARGS, "Have the thread's calls on arrays of the host run there."},
    {"__exit__", placement_exit, METH_VARARGS, "Leave the block: the next one out counts again."},
    {nullptr, nullptr, 0, nullptr},
};

constexpr const char *kPlacementDoc =
    "placement(where)\n--\n\n"
    "Say where calls run whose arrays are all in the host's memory, in a block of a thread.\n\n"
    "Without one it is what the environment variable ``CUKERN_PLACEMENT`` says, by default ``auto``. Arrays in\n"
    "device memory are computed with where they are, always; so are Arrays in pinned or managed memory.\n"
    "A block is the thread's: while a generator or a task is suspended in one, it stays in force.\n\n"
    "Parameters\n----------\nwhere : {'auto', 'host', 'device'}\n"
    "    ``host``: on the processor's threads. ``device``: copied to the device, and the result back. ``auto``:\n"
    "    where it is estimated to take less time, from the call, the number of threads and the device alone, so\n"
    "    that a call on one machine always runs in one place. Without a GPU all are the host.\n\n"
    "Examples\n--------\n>>> import cukern, numpy\n>>> a = numpy.ones(3)\n"
    ">>> with cukern.placement('host'):\n...     b = cukern.add(a, a)\n>>> b\narray([2., 2., 2.])\n";

PyType_Slot kPlacementSlots[] = {
    {Py_tp_doc, const_cast<char *>(kPlacementDoc)},
    {Py_tp_new, reinterpret_cast<void *>(placement_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(placement_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(placement_repr)},
    {Py_tp_methods, kPlacementMethods},
    {0, nullptr},
};

PyType_Spec kPlacementSpec = {"cukern.placement", sizeof(PlacementObject), 0, Py_TPFLAGS_DEFAULT, kPlacementSlots};

// Of the calls that a function makes: the sums, and the last one's details.
struct Explanation {
    PlacementChoice choice;
    int calls = 0;
    bool is_mixed = false;
};
thread_local Explanation *t_explanation = nullptr;

class ExplanationScope {
public:
    ExplanationScope() noexcept : outer_(t_explanation) {
        t_explanation = &explanation;
        g_explaining.fetch_add(1, std::memory_order_relaxed);
    }
    ~ExplanationScope() {
        t_explanation = outer_;
        g_explaining.fetch_sub(1, std::memory_order_relaxed);
    }
    ExplanationScope(const ExplanationScope &) = delete;
    ExplanationScope &operator=(const ExplanationScope &) = delete;

    Explanation explanation;

private:
    Explanation *const outer_;
};

PyObject *explain_placement(PyObject *module, PyObject *args, PyObject *keywords) {
    if (PyTuple_Size(args) == 0) {
        PyErr_SetString(PyExc_TypeError, "explain_placement() takes a function and its arguments");
        return nullptr;
    }
    Backend backend;
    if (!ensure_backend(state_of(module), "explain_placement", &backend)) return nullptr;
    PyObject *const function = PyTuple_GetItem(args, 0);
    const PyRef rest = PyRef::steal(PyTuple_GetSlice(args, 1, PyTuple_Size(args)));
    if (!rest) return nullptr;
    ExplanationScope scope;
    const PyRef result = PyRef::steal(PyObject_Call(function, rest.get(), keywords));
    if (!result) return nullptr;
    const auto &[choice, calls, is_mixed] = scope.explanation;
    if (calls == 0)
        return PyErr_Format(PyExc_ValueError,
                            "explain_placement: %R made no call on arrays of the host; those on a device are "
                            "computed with there",
                            function);
    return Py_BuildValue("{s:s,s:s,s:d,s:d,s:i,s:s,s:i}", "placement",
                         is_mixed ? "host and device" : name_of(choice.placement), "reason", choice.reason, "host",
                         choice.host, "device", choice.device, "threads", choice.threads, "machine",
                         choice.machine, "calls", calls);
}

}  // namespace

bool thread_is_explaining() noexcept { return t_explanation != nullptr; }

void note_choice(const PlacementChoice &choice) noexcept {
    Explanation &explanation = *t_explanation;
    PlacementChoice sum = choice;
    if (explanation.calls++ > 0) {
        sum.host += explanation.choice.host;
        sum.device += explanation.choice.device;
        explanation.is_mixed = explanation.is_mixed || choice.placement != explanation.choice.placement;
    }
    explanation.choice = sum;
}

bool add_placement_type(PyObject *module) noexcept {
    const PyRef type = PyRef::steal(PyType_FromModuleAndSpec(module, &kPlacementSpec, nullptr));
    return type && PyModule_AddType(module, reinterpret_cast<PyTypeObject *>(type.get())) == 0;
}

PyMethodDef kPlacementFunctions[] = {
    {"explain_placement", as_method(explain_placement), METH_VARARGS | METH_KEYWORDS,
     "explain_placement(function, /, *args, **kwargs)\n--\n\n"
     "Return where a call on arrays of the host would run, and why, without computing it.\n\n"
     "The function is called. Operations on arrays of the host return results whose elements are not set; all\n"
     "else that it does is done.\n\n"
     "Parameters\n----------\nfunction : callable\n    A function of cukern, or one that calls some.\n"
     "*args, **kwargs\n    What it is called with.\n\n"
     "Returns\n-------\ndict\n"
     "    ``placement``: ``'host'`` or ``'device'`` (``'host and device'`` of calls that differ); ``reason``;\n"
     "    ``host`` and ``device``: the estimates in seconds, of all calls together, 0 without a device;\n"
     "    ``threads`` of the host, ``machine``, whose constants were taken, and ``calls``.\n\n"
     "Raises\n------\nValueError\n    No call was made on arrays of the host.\n\n"
     "Examples\n--------\n>>> import cukern, numpy\n>>> a = numpy.ones(3)\n"
     ">>> cukern.explain_placement(cukern.add, a, a)['placement']\n'host'\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
