// The module `cukern._cukern`: definition, initialisation, state.
#define CUKERN_IMPORTS_NUMPY
#include "python.h"

#include "errors.h"
#include "methods.h"

namespace cukern::py {
namespace {

bool add_methods(PyObject *module) noexcept {
    for (PyMethodDef *table : {kElementwiseMethods, kMatmulMethods, kBackendMethods, kTestingMethods})
        if (PyModule_AddFunctions(module, table) != 0) return false;
    return true;
}

// What the host back-end's products need of NumPy, which is imported already.
bool add_numpy_objects(ModuleState &state) noexcept {
    const PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy"));
    const PyRef functools = PyRef::steal(PyImport_ImportModule("functools"));
    if (!numpy || !functools) return false;
    state.numpy_matmul = PyObject_GetAttrString(numpy.get(), "matmul");
    const PyRef partial = PyRef::steal(PyObject_GetAttrString(functools.get(), "partial"));
    const PyRef errstate = PyRef::steal(PyObject_GetAttrString(numpy.get(), "errstate"));
    const PyRef args = errstate ? PyRef::steal(PyTuple_Pack(1, errstate.get())) : PyRef();
    const PyRef options = PyRef::steal(Py_BuildValue("{s:s}", "all", "ignore"));
    if (state.numpy_matmul == nullptr || !partial || !args || !options) return false;
    state.quiet = PyObject_Call(partial.get(), args.get(), options.get());
    return state.quiet != nullptr;
}

int execute(PyObject *module) {
    // The state comes first: free() runs even when this function fails. Python has zeroed its memory.
    ModuleState &state = state_of(module);
    // NumPy's C API is one table for the process, so a second interpreter cannot have its own.
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "cukern cannot be imported in a sub-interpreter: NumPy's C API does not "
                        "support it");
        return -1;
    }
    if (PyArray_ImportNumPyAPI() < 0) return -1;
    state.name_out = PyUnicode_InternFromString("out");
    if (state.name_out == nullptr || !add_exceptions(module, state)) return -1;
    if (!add_numpy_objects(state) || !add_methods(module)) return -1;
    if (PyModule_AddStringConstant(module, "__version__", CUKERN_VERSION) != 0) return -1;
    const PyRef table = PyRef::steal(make_table());
    if (!table || PyModule_AddObjectRef(module, "_table", table.get()) != 0) return -1;
    return 0;
}

int traverse(PyObject *module, visitproc visit, void *arg) {
    auto *state = static_cast<ModuleState *>(PyModule_GetState(module));
    if (state == nullptr) return 0;
#define CUKERN_VISIT(name) Py_VISIT(state->name);
    CUKERN_STATE_OBJECTS(CUKERN_VISIT)
#undef CUKERN_VISIT
    return 0;
}

int clear(PyObject *module) {
    auto *state = static_cast<ModuleState *>(PyModule_GetState(module));
    if (state == nullptr) return 0;
#define CUKERN_CLEAR(name) Py_CLEAR(state->name);
    CUKERN_STATE_OBJECTS(CUKERN_CLEAR)
#undef CUKERN_CLEAR
    return 0;
}

void free_module(void *module) { clear(static_cast<PyObject *>(module)); }

// A slot that Python 3.11's headers do not name, and whose number 3.11 refuses: it is added from 3.12 on.
constexpr int kMultipleInterpreters = 3;
constexpr unsigned long kPython312 = 0x030C0000;

PyModuleDef_Slot g_slots[] = {
    {Py_mod_exec, reinterpret_cast<void *>(execute)},
    {0, nullptr},
    {0, nullptr},
};

PyModuleDef g_definition = {
    PyModuleDef_HEAD_INIT,
    "_cukern",
    "The extension of cukern: arguments in, exceptions out.",
    sizeof(ModuleState),
    nullptr,
    g_slots,
    traverse,
    clear,
    free_module,
};

}  // namespace
}  // namespace cukern::py

PyMODINIT_FUNC PyInit__cukern(void) {  // NOLINT(bugprone-reserved-identifier): the name is Python's
    using namespace cukern::py;
    if (Py_Version >= kPython312) g_slots[1] = {kMultipleInterpreters, nullptr};  // none but the main one
    return PyModuleDef_Init(&g_definition);
}
