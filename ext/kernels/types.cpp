// cukern.Pointer, and the types of this folder as parts of the module.
#include "base/python.h"

#include <cstdio>
#include <memory>
#include <new>

#include "kernels/kernels.h"
#include "streams/stream_types.h"

namespace cukern::py {
namespace {

PyObject *pointer_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"", nullptr};
    PyObject *address = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O:Pointer", const_cast<char **>(names), &address) == 0)
        return nullptr;
    const PyRef number = PyRef::steal(PyNumber_Index(address));
    if (!number) return nullptr;
    const unsigned long long value = PyLong_AsUnsignedLongLong(number.get());
    if (value == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) return nullptr;
    auto *self = make<PointerObject>(reinterpret_cast<PyObject *>(type));
    if (self == nullptr) return nullptr;
    self->address = static_cast<std::uintptr_t>(value);
    return reinterpret_cast<PyObject *>(self);
}

std::uintptr_t address_of(PyObject *self) noexcept { return reinterpret_cast<PointerObject *>(self)->address; }

void pointer_dealloc(PyObject *self) { free_object(self); }
PyObject *pointer_index(PyObject *self) { return PyLong_FromSize_t(address_of(self)); }
PyObject *pointer_repr(PyObject *self) {
    char text[48];
    std::snprintf(text, sizeof text, "cukern.Pointer(0x%zx)", address_of(self));
    return PyUnicode_FromString(text);
}

PyObject *pointer_compare(PyObject *self, PyObject *other, int operation) {
    if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(self) != Py_TYPE(other)) Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((address_of(self) == address_of(other)) == (operation == Py_EQ) ? 1 : 0);
}

Py_hash_t pointer_hash(PyObject *self) { return static_cast<Py_hash_t>(address_of(self) >> 1); }

constexpr const char *kPointerDoc =
    "Pointer(address, /)\n--\n\n"
    "An address that a `RawKernel` is given as it is: nothing is known of it, and nothing is kept alive.\n\n"
    "Parameters\n----------\naddress : int\n\n"
    "Examples\n--------\n>>> import cukern\n>>> int(cukern.Pointer(4096))\n4096\n";

PyType_Slot kPointerSlots[] = {
    {Py_tp_doc, const_cast<char *>(kPointerDoc)},
    {Py_tp_new, reinterpret_cast<void *>(pointer_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(pointer_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(pointer_repr)},
    {Py_tp_richcompare, reinterpret_cast<void *>(pointer_compare)},
    {Py_tp_hash, reinterpret_cast<void *>(pointer_hash)},
    {Py_nb_index, reinterpret_cast<void *>(pointer_index)},
    {Py_nb_int, reinterpret_cast<void *>(pointer_index)},
    {0, nullptr},
};

}  // namespace

PyType_Spec kPointerSpec = {"cukern.Pointer", sizeof(PointerObject), 0, Py_TPFLAGS_DEFAULT, kPointerSlots};

PyObject *call_by_vectorcall(PyObject *callable, PyObject *args, PyObject *keywords,
                             Vectorcall function) noexcept {
    const Py_ssize_t count = PyTuple_Size(args);
    const Py_ssize_t named = keywords == nullptr ? 0 : PyDict_Size(keywords);
    const std::unique_ptr<PyObject *[]> values(new (std::nothrow)
                                                   PyObject *[static_cast<std::size_t>(count + named) + 1]);
    const PyRef names = PyRef::steal(PyTuple_New(named));
    if (values == nullptr) return PyErr_NoMemory();
    if (!names) return nullptr;
    for (Py_ssize_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = PyTuple_GetItem(args, i);
    PyObject *name = nullptr;
    PyObject *value = nullptr;
    Py_ssize_t place = 0;
    for (Py_ssize_t i = 0; i < named && PyDict_Next(keywords, &place, &name, &value) != 0; ++i) {
        if (PyTuple_SetItem(names.get(), i, PyRef::borrow(name).release()) != 0) return nullptr;
        values[static_cast<std::size_t>(count + i)] = value;
    }
    return function(callable, values.get(), static_cast<std::size_t>(count), names.get());
}

bool add_kernel_types(PyObject *module, ModuleState &state) noexcept {
    const struct {
        PyObject **slot;
        PyType_Spec *spec;
        const char *name;
    } types[] = {
        {&state.pointer_type, &kPointerSpec, "Pointer"},
        {&state.raw_kernel_type, &kRawKernelSpec, "RawKernel"},
        {&state.raw_module_type, &kRawModuleSpec, "RawModule"},
        {&state.launcher_type, &kLauncherSpec, "_Launcher"},
    };
    for (const auto &[slot, spec, name] : types) {
        *slot = PyType_FromModuleAndSpec(module, spec, nullptr);
        if (*slot == nullptr || PyModule_AddObjectRef(module, name, *slot) != 0) return false;
    }
    return true;
}

}  // namespace cukern::py
