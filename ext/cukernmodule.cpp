// The module `cukern._cukern`: definition, initialisation, state.
#define CUKERN_IMPORTS_NUMPY
#include "base/python.h"

#include "array/array.h"
#include "base/errors.h"
#include "base/methods.h"
#include "call/placement.h"
#include "call/planned_calls.h"
#include "graphs/graphs.h"
#include "interop/array_exchange.h"
#include "kernels/kernels.h"
#include "streams/streams.h"
#include "streams/with_blocks.h"
#include "types/element_types.h"

namespace cukern::py {
namespace {

bool add_methods(PyObject *module) noexcept {
    for (PyMethodDef *table :
         {kElementwiseMethods,  kReductionMethods, kDotMethods,          kWhereMethods,       kCastMethods,
          kCumulativeMethods,   kMatmulMethods,    kCreationMethods,     kImportMethods,      kJoinMethods,
          kHostMethods,         kPickleMethods,    kViewMethods,         kStreamFunctions,    kMemoryMethods,
          kNumpyMemoryMethods,  kBackendMethods,   kNvrtcMethods,        kArgumentKeyMethods, kRepeatCallMethods,
          kHostArgumentMethods, kTracedMethods,    kGraphFunctions,      kLoopMethods,        kPlacementFunctions,
          kTestingMethods,      kTorchMethods,     kKernelTestingMethods})
        if (PyModule_AddFunctions(module, table) != 0) return false;
    return true;
}

// What is needed of NumPy, which is imported already.
bool add_numpy_objects(ModuleState &state) noexcept {
    state.numpy = PyImport_ImportModule("numpy");
    const PyRef sys = PyRef::steal(PyImport_ImportModule("sys"));
    if (state.numpy == nullptr || !sys) return false;
    state.modules = PyObject_GetAttrString(sys.get(), "modules");
    const PyRef exceptions = PyRef::steal(PyImport_ImportModule("numpy.exceptions"));
    state.axis_error = exceptions ? PyObject_GetAttrString(exceptions.get(), "AxisError") : nullptr;
    state.ndarray_ufunc = PyObject_GetAttr(reinterpret_cast<PyObject *>(&PyArray_Type), state.name_array_ufunc);
    if (state.axis_error == nullptr || state.ndarray_ufunc == nullptr) return false;
    return state.modules != nullptr;
}

bool add_names(ModuleState &state) noexcept {
    const struct {
        PyObject **slot;
        const char *name;
    } names[] = {
        {&state.name_out, "out"},
        {&state.name_stream, "stream"},
        {&state.name_exchange, "__dlpack_c_exchange_api__"},
        {&state.name_dlpack, "__dlpack__"},
        {&state.name_dlpack_device, "__dlpack_device__"},
        {&state.name_cai, "__cuda_array_interface__"},
        {&state.name_cuda_stream, "__cuda_stream__"},
        {&state.name_namespace, "__array_namespace__"},
        {&state.name_array_ufunc, "__array_ufunc__"},
        {&state.name_shape, "shape"},
        {&state.name_strides, "strides"},
        {&state.name_typestr, "typestr"},
        {&state.name_data, "data"},
        {&state.name_mask, "mask"},
        {&state.name_from_dlpack, "from_dlpack"},
    };
    for (const auto &[slot, name] : names) {
        *slot = PyUnicode_InternFromString(name);
        if (*slot == nullptr) return false;
    }
    state.dlpack_version =
        Py_BuildValue("II", static_cast<unsigned>(dlpack::kMajor), static_cast<unsigned>(dlpack::kMinor));
    return state.dlpack_version != nullptr;
}

bool add_types(PyObject *module, ModuleState &state) noexcept {
    return make_active_blocks(state) && make_type_records(state) && add_element_types(module, state) &&
           add_stream_types(module, state) && add_array_type(module, state) && offer_exchange(state) &&
           add_kernel_types(module, state) && add_graph_type(module, state) && add_placement_type(module);
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
    if (!add_names(state) || !add_numpy_objects(state) || !add_exceptions(module, state)) return -1;
    if (!add_types(module, state) || !add_methods(module)) return -1;
    state.restore = PyObject_GetAttrString(module, "_restore");
    if (state.restore == nullptr) return -1;
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
    return visit_type_records(*state, visit, arg);
}

int clear(PyObject *module) {
    auto *state = static_cast<ModuleState *>(PyModule_GetState(module));
    if (state == nullptr) return 0;
    withdraw_exchange(*state);
    clear_type_records(*state);
    clear_plans(*state);
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
