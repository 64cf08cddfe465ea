#include "base/python.h"

#include "types/element_types.h"

#include <cstdio>
#include <cstring>

namespace cukern::py {
namespace {

// sys.modules["ml_dtypes"].bfloat16, the scalar type; never imported for it. Null without an exception.
PyRef ml_dtypes_bfloat16(const ModuleState &state) noexcept {
    const PyRef module = PyRef::borrow(PyDict_GetItemString(state.modules, "ml_dtypes"));
    if (!module) return {};
    PyRef type = PyRef::steal(PyObject_GetAttrString(module.get(), "bfloat16"));
    if (!type) PyErr_Clear();  // a module that is still being imported
    return type;
}

// --- cukern.bfloat16: a str that says what NumPy has no dtype for ---

PyObject *bfloat16_itemsize(PyObject *, void *) { return PyLong_FromLong(size_of(ElementType::bfloat16)); }
PyObject *bfloat16_name(PyObject *, void *) { return PyUnicode_FromString(name_of(ElementType::bfloat16)); }
PyObject *bfloat16_repr(PyObject *) { return PyUnicode_FromString("cukern.bfloat16"); }
PyObject *bfloat16_reduce(PyObject *, PyObject *) { return PyUnicode_FromString("bfloat16"); }

// As a str, and equal to the scalar type of ml_dtypes too. (ml_dtypes' dtype compares itself with the str.)
PyObject *bfloat16_compare(PyObject *self, PyObject *other, int operation) {
    const auto compare = reinterpret_cast<richcmpfunc>(PyType_GetSlot(&PyUnicode_Type, Py_tp_richcompare));
    if (PyType_Check(other) == 0 || (operation != Py_EQ && operation != Py_NE))
        return compare(self, other, operation);
    const PyRef scalar = ml_dtypes_bfloat16(state_of_type(self));
    if (!scalar || scalar.get() != other) Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong(operation == Py_EQ ? 1 : 0);
}

Py_hash_t bfloat16_hash(PyObject *self) {
    return reinterpret_cast<hashfunc>(PyType_GetSlot(&PyUnicode_Type, Py_tp_hash))(self);
}

PyGetSetDef kBfloat16Attributes[] = {
    {"itemsize", bfloat16_itemsize, nullptr, "Bytes of an element: 2.", nullptr},
    {"name", bfloat16_name, nullptr, "``'bfloat16'``.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef kBfloat16Methods[] = {
    {"__reduce__", bfloat16_reduce, METH_NOARGS, "Pickled by its name in cukern."},
    {nullptr, nullptr, 0, nullptr},
};

constexpr const char *kBfloat16Doc =
    "The element type bfloat16, for which NumPy has no dtype of its own; equal to ``'bfloat16'``.";

PyType_Slot kBfloat16Slots[] = {
    {Py_tp_doc, const_cast<char *>(kBfloat16Doc)},
    {Py_tp_repr, reinterpret_cast<void *>(bfloat16_repr)},
    {Py_tp_richcompare, reinterpret_cast<void *>(bfloat16_compare)},
    {Py_tp_hash, reinterpret_cast<void *>(bfloat16_hash)},
    {Py_tp_getset, kBfloat16Attributes},
    {Py_tp_methods, kBfloat16Methods},
    {0, nullptr},
};

// A basicsize of 0: str's own.
PyType_Spec kBfloat16Spec = {"cukern._BFloat16DType", 0, 0, Py_TPFLAGS_DEFAULT, kBfloat16Slots};

}  // namespace

bool element_type_of(int numpy_type, ElementType *type) noexcept {
    static_assert(sizeof(long) == sizeof(long long), "64-bit integers have two NumPy type numbers each");
    if (numpy_type == NPY_LONGLONG) numpy_type = NPY_INT64;
    if (numpy_type == NPY_ULONGLONG) numpy_type = NPY_UINT64;
    switch (numpy_type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case npy: *type = ElementType::id; return npy >= 0;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
        default: return false;
    }
}

bool refuse_out_of_bounds(PyObject *number, ElementType type) noexcept {
    PyErr_Format(PyExc_OverflowError, "Python integer %S out of bounds for %s", number, name_of(type));
    return false;
}

int numpy_type_of(ElementType type) noexcept {
    static constexpr int kNumbers[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) npy,
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    };
    return kNumbers[static_cast<int>(type)];
}

bool element_type_of(const ModuleState &state, PyArray_Descr *descr, ElementType *type) noexcept {
    if (descr->type_num < NPY_USERDEF) return element_type_of(descr->type_num, type);
    const PyRef scalar = ml_dtypes_bfloat16(state);
    if (!scalar || reinterpret_cast<PyObject *>(descr->typeobj) != scalar.get()) return false;
    *type = ElementType::bfloat16;
    return true;
}

bool element_type_of(const dlpack::DataType &dtype, ElementType *type) noexcept {
    if (dtype.lanes != 1) return false;
    for (int i = 0; i < kNumElementTypes; ++i) {
        if (kElementTypes[i].dlpack_code != dtype.code || kElementTypes[i].size * 8 != dtype.bits) continue;
        *type = static_cast<ElementType>(i);
        return true;
    }
    return false;
}

dlpack::DataType dlpack_type_of(ElementType type) noexcept {
    return {info(type).dlpack_code, static_cast<std::uint8_t>(size_of(type) * 8), 1};
}

Format element_type_of(const char *format, Py_ssize_t item_size, ElementType *type) noexcept {
    if (format == nullptr) format = "B";
    bool swapped = false;
    if (*format != '\0' && std::strchr("@=<>!", *format) != nullptr) {
        swapped = *format == '>' || *format == '!';
        ++format;
    }
    char kind = '\0';
    if (*format == 'Z' && format[1] != '\0') {
        kind = 'c';
        ++format;
    }
    if (format[0] == '\0' || format[1] != '\0') return Format::unknown;
    if (kind == 'c') kind = std::strchr("fd", *format) != nullptr ? 'c' : '\0';
    // The size comes from the buffer: ctypes writes '<l' for eight bytes, where the struct module means four.
    else if (std::strchr("efd", *format) != nullptr)
        kind = 'f';
    else if (std::strchr("hilqn", *format) != nullptr)
        kind = 'i';
    else if (std::strchr("HILQN", *format) != nullptr)
        kind = 'u';
    else if (*format == '?')
        kind = 'b';
    else if (std::strchr("Bbc", *format) != nullptr)
        return Format::untyped;
    for (int i = 0; i < kNumElementTypes; ++i) {
        if (kElementTypes[i].kind != kind || kElementTypes[i].size != item_size) continue;
        *type = static_cast<ElementType>(i);
        return swapped ? Format::byte_swapped : Format::known;
    }
    return Format::unknown;
}

PyRef numpy_dtype(const ModuleState &state, ElementType type) noexcept {
    if (type != ElementType::bfloat16)
        return PyRef::borrow(PyTuple_GetItem(state.dtypes, static_cast<Py_ssize_t>(type)));
    const PyRef scalar = ml_dtypes_bfloat16(state);
    if (!scalar) return {};
    PyArray_Descr *descr = nullptr;
    if (PyArray_DescrConverter(scalar.get(), &descr) == 0) {
        PyErr_Clear();
        return {};
    }
    return PyRef::steal(reinterpret_cast<PyObject *>(descr));
}

PyRef dtype_of(const ModuleState &state, ElementType type) noexcept {
    return type == ElementType::bfloat16 ? PyRef::borrow(state.bfloat16) : numpy_dtype(state, type);
}

bool parse_dtype(const ModuleState &state, const char *function, PyObject *object, ElementType *type) noexcept {
    if (PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, "bfloat16") == 0) {
        *type = ElementType::bfloat16;
        return true;
    }
    PyArray_Descr *descr = nullptr;
    if (PyArray_DescrConverter(object, &descr) == 0) return false;
    const PyRef held = PyRef::steal(reinterpret_cast<PyObject *>(descr));
    if (element_type_of(state, descr, type) && PyArray_ISNBO(descr->byteorder)) return true;
    PyErr_Format(PyExc_TypeError, "%s: dtype %S is not supported; supported are %s, in native byte order",
                 function, held.get(), all_element_types());
    return false;
}

void raise_no_bfloat16(const char *function) noexcept {
    PyErr_Format(
        PyExc_TypeError,
        "%s: NumPy has no bfloat16 of its own; install and import the package ml_dtypes, or convert first, "
        "as by a.astype('float32')",
        function);
}

const char *all_element_types() noexcept {
    struct Text {
        char characters[256] = "";
        Text() noexcept {
            std::size_t length = 0;
            for (const ElementTypeInfo &type : kElementTypes) {
                const char *const separator = length > 0 ? ", " : "";
                const int more =
                    std::snprintf(characters + length, sizeof characters - length, "%s%s", separator, type.name);
                length += static_cast<std::size_t>(more);
            }
        }
    };
    static_assert(kNumElementTypes * 12 <= 256, "a name and its comma take at most 12 characters");
    static const Text text;
    return text.characters;
}

bool add_element_types(PyObject *module, ModuleState &state) noexcept {
    const PyRef bases = PyRef::steal(PyTuple_Pack(1, reinterpret_cast<PyObject *>(&PyUnicode_Type)));
    if (!bases) return false;
    state.bfloat16_type = PyType_FromModuleAndSpec(module, &kBfloat16Spec, bases.get());
    if (state.bfloat16_type == nullptr) return false;
    state.bfloat16 = PyObject_CallFunction(state.bfloat16_type, "s", name_of(ElementType::bfloat16));
    if (state.bfloat16 == nullptr || PyModule_AddObjectRef(module, "bfloat16", state.bfloat16) != 0) return false;
    state.dtypes = PyTuple_New(kNumElementTypes);
    const auto size_class_index = [](int i) { return numpy_type_of(static_cast<ElementType>(i)); };
    for (int i = 0; state.dtypes != nullptr && i < kNumElementTypes; ++i) {
        PyObject *dtype = size_class_index(i) >= 0
                              ? reinterpret_cast<PyObject *>(PyArray_DescrFromType(size_class_index(i)))
                              : PyRef::borrow(Py_None).release();
        if (dtype == nullptr || PyTuple_SetItem(state.dtypes, i, dtype) != 0) return false;
        if (size_class_index(i) >= 0 &&
            PyModule_AddObjectRef(module, name_of(static_cast<ElementType>(i)), dtype) != 0)
            return false;
    }
    return state.dtypes != nullptr;
}

}  // namespace cukern::py
