// One argument of a kernel, checked against its parameter and stored as the kernel reads it.
#include "base/python.h"

#include <cstdio>
#include <cstring>

#include "kernels/arguments.h"
#include "kernels/parameter_text.h"
#include "types/element_types.h"

namespace cukern::py {
namespace {

using Kind = ParameterType::Kind;

constexpr std::size_t kPointerBytes = sizeof(void *);

// Of Python's own numbers, by their own values: a subclass may say something else of itself.
bool real_of(PyObject *number, double *real, double *imaginary) noexcept {
    const bool is_complex = PyComplex_Check(number) != 0;
    *real = is_complex                  ? PyComplex_RealAsDouble(number)
            : PyLong_Check(number) != 0 ? PyLong_AsDouble(number)
                                        : PyFloat_AsDouble(number);
    *imaginary = is_complex ? PyComplex_ImagAsDouble(number) : 0.0;
    return *real != -1.0 || PyErr_Occurred() == nullptr;
}

// Whether a number of NumPy or ctypes may stand for a parameter: char is either of the two.
bool is_same_number(const ParameterType &type, ElementType element) noexcept {
    return element == type.element || (element == ElementType::uint8 && is_char(type));
}

PyRef type_name_of(PyObject *object) noexcept {
    return PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(object)), "__name__"));
}

// An int as `bytes` bytes, signed or not. False, maybe without an exception, where it does not fit.
bool store_int(PyObject *object, std::size_t bytes, bool may_be_signed, bool may_be_unsigned,
               unsigned char *to) noexcept {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (number == -1 && overflow == 0 && PyErr_Occurred() != nullptr) return false;
    if (overflow == 0) return store_integer(number, bytes, may_be_signed, may_be_unsigned, to);
    if (overflow < 0 || !may_be_unsigned || bytes != 8) return false;
    const unsigned long long bits = PyLong_AsUnsignedLongLong(object);
    if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        return false;
    }
    std::memcpy(to, &bits, bytes);
    return true;
}

}  // namespace

// "argument 2 of 4 (x)": with the parameter's name where the source tells it.
PyRef KernelArguments::place_of(int i) const noexcept {
    PyRef names;
    if (code_ != nullptr && name_ != nullptr && PyUnicode_Check(code_) != 0) {
        const PyRef module = PyRef::steal(PyImport_ImportModule("cukern._parameter_names"));
        if (module)
            names =
                PyRef::steal(PyObject_CallMethod(module.get(), "parameter_names", "OOi", code_, name_, count_));
        if (!names) PyErr_Clear();  // the message is about something else
    }
    PyObject *const name = names && PyList_Check(names.get()) != 0 && PyList_Size(names.get()) > i
                               ? PyList_GetItem(names.get(), i)
                               : nullptr;
    if (name != nullptr && PyUnicode_Check(name) != 0 && PyUnicode_GetLength(name) > 0)
        return PyRef::steal(PyUnicode_FromFormat("argument %d of %d (%U)", i + 1, count_, name));
    return PyRef::steal(PyUnicode_FromFormat("argument %d of %d", i + 1, count_));
}

bool KernelArguments::refuse(const KernelParameter &parameter, int i, PyObject *type, const char *got,
                             const char *takes) const noexcept {
    const ParameterText text(parameter);
    const PyRef place = place_of(i);
    if (!place) return false;
    if (type != nullptr) {
        const PyRef name = type_name_of(type);
        if (name)
            PyErr_Format(PyExc_TypeError, "%s: %U is of type %U; the parameter is %s, which takes %s", function_,
                         place.get(), name.get(), text.text, takes);
        return false;
    }
    PyErr_Format(PyExc_TypeError, "%s: %U is %s; the parameter is %s, which takes %s", function_, place.get(), got,
                 text.text, takes);
    return false;
}

bool KernelArguments::refuse_width(const KernelParameter &parameter, int i, const char *got,
                                   int bytes) const noexcept {
    const ParameterText text(parameter);
    const char *before = parameter.type.text[0] != '\0' ? text.text : "a parameter";
    const PyRef place = place_of(i);
    if (place)
        PyErr_Format(PyExc_TypeError, "%s: %U is %s of %d bytes; the kernel expects %s of %zu bytes", function_,
                     place.get(), got, bytes, before, parameter.size);
    return false;
}

bool KernelArguments::refuse_number(const KernelParameter &parameter, int i) const noexcept {
    const ElementType type = parameter.type.element;
    char takes[112];
    const char *python = kind_of(type) == 'b'   ? "bool"
                         : is_integer(type)     ? "int"
                         : kind_of(type) == 'c' ? "number"
                                                : "float or int";
    std::snprintf(takes, sizeof takes, "a Python %s or a NumPy scalar of %s", python, name_of(type));
    return refuse(parameter, i, objects_[i], nullptr, takes);
}

bool KernelArguments::refuse_overflow(const KernelParameter &parameter, int i) const noexcept {
    if (PyErr_Occurred() != nullptr) return false;
    const ParameterText text(parameter);
    const PyRef place = place_of(i);
    if (place)
        PyErr_Format(PyExc_OverflowError, "%s: %U is out of the range of the parameter, %s: %R", function_,
                     place.get(), text.text, objects_[i]);
    return false;
}

bool KernelArguments::pack_array(const KernelParameter &parameter, int i, int device, bool unchecked,
                                 unsigned char *to) noexcept {
    ArrayArgument &own = arrays_[i];
    const ParameterType &type = parameter.type;
    own.writes = !type.is_const;
    if (own.device >= 0 && own.device != device) {
        const PyRef place = place_of(i);
        if (place)
            PyErr_Format(PyExc_ValueError,
                         "%s: %U is on device %d, and the launch on device %d; copy it there first, as by "
                         "cukern.asarray(x, device=%d)",
                         function_, place.get(), own.device, device, device);
        return false;
    }
    if (parameter.size != kPointerBytes) return refuse_width(parameter, i, "an array, whose address is", 8);
    const auto address = reinterpret_cast<std::uintptr_t>(own.data);
    std::memcpy(to, &address, kPointerBytes);
    if (unchecked || type.kind == Kind::unknown) return true;
    if (type.kind != Kind::pointer || (type.elements & bit_of(own.type)) == 0) return refuse_array(parameter, i);
    if (own.read_only && own.writes) {
        const PyRef place = place_of(i);
        if (place)
            PyErr_Format(PyExc_ValueError, "%s: %U is read-only; the parameter is %s, which is written to",
                         function_, place.get(), type.text);
        return false;
    }
    return true;
}

bool KernelArguments::refuse_array(const KernelParameter &parameter, int i) const noexcept {
    const ParameterType &type = parameter.type;
    char got[64];
    std::snprintf(got, sizeof got, "an array of %s", name_of(arrays_[i].type));
    if (type.kind == Kind::number) return refuse(parameter, i, nullptr, got, "a number");
    if (type.kind == Kind::structure) return refuse(parameter, i, nullptr, got, "a structure by value");
    char takes[160] = "an array of ";
    list_types(type.elements, takes + 12, sizeof takes - 12);
    return refuse(parameter, i, nullptr, got, takes);
}

// NumPy's scalars say what they are: their type has to be the parameter's.
bool KernelArguments::pack_numpy_scalar(const KernelParameter &parameter, int i, bool unchecked,
                                        unsigned char *to) noexcept {
    const ParameterType &type = parameter.type;
    const PyRef descr = PyRef::steal(reinterpret_cast<PyObject *>(PyArray_DescrFromScalar(objects_[i])));
    if (!descr) return false;
    auto *const dtype = reinterpret_cast<PyArray_Descr *>(descr.get());
    const auto bytes = static_cast<std::size_t>(PyDataType_ELSIZE(dtype));
    const bool is_structure = dtype->type_num == NPY_VOID;
    ElementType element{};
    const bool is_known = element_type_of(state_, dtype, &element);
    if (!is_known && PyErr_Occurred() != nullptr) return false;
    char got[96];
    std::snprintf(got, sizeof got, "a NumPy scalar of %s", is_known ? name_of(element) : "another type");
    if (PyDataType_REFCHK(dtype)) return refuse(parameter, i, objects_[i], nullptr, "no Python objects");
    if (!is_known && !is_structure) return refuse(parameter, i, objects_[i], nullptr, "a number");
    if (!unchecked && type.kind == Kind::pointer)
        return refuse(parameter, i, nullptr, got, "an array, None or a cukern.Pointer");
    if (!unchecked && type.kind == Kind::number && !(is_structure && type.is_class)) {
        if (is_structure || !is_same_number(type, element)) {
            char takes[96];
            std::snprintf(takes, sizeof takes, "a NumPy scalar of %s, or a Python number", name_of(type.element));
            return refuse(parameter, i, nullptr, got, takes);
        }
    }
    if (bytes != parameter.size) return refuse_width(parameter, i, got, static_cast<int>(bytes));
    if (is_known && numpy_type_of(element) >= 0) {
        PyArray_ScalarAsCtype(objects_[i], to);
        return true;
    }
    const PyRef array = PyRef::steal(PyArray_FromScalar(objects_[i], nullptr));
    if (array) std::memcpy(to, PyArray_DATA(as_array(array)), bytes);
    return static_cast<bool>(array);
}

// A structure or a number of ctypes, by its bytes. `is_one`: whether the argument is one.
bool KernelArguments::pack_structure(const KernelParameter &parameter, int i, bool unchecked, bool *is_one,
                                     unsigned char *to) noexcept {
    const ParameterType &type = parameter.type;
    *is_one = PyObject_CheckBuffer(objects_[i]) != 0;
    if (!*is_one) return true;
    BufferHolder buffer;
    if (!buffer.acquire(objects_[i], PyBUF_FORMAT)) return false;
    const auto bytes = static_cast<std::size_t>(buffer.get().len);
    ElementType element{};
    const char *text = buffer.get().format;
    const Format format = element_type_of(text, buffer.get().itemsize, &element);
    if (format == Format::untyped)  // a byte: of ctypes an integer of 8 bits
        element = text != nullptr && std::strchr(text, 'B') != nullptr ? ElementType::uint8 : ElementType::int8;
    const bool is_number = format == Format::known || (format == Format::untyped && bytes == 1);
    const bool fits = unchecked || type.kind == Kind::unknown || type.kind == Kind::structure ||
                      (type.kind == Kind::number && (is_number ? is_same_number(type, element) : type.is_class));
    if (!fits) return refuse(parameter, i, objects_[i], nullptr, "another type");
    if (bytes != parameter.size) return refuse_width(parameter, i, "a structure", static_cast<int>(bytes));
    std::memcpy(to, buffer.get().buf, bytes);
    return true;
}

bool KernelArguments::pack_number(const KernelParameter &parameter, int i, unsigned char *to) noexcept {
    PyObject *const object = objects_[i];
    const ElementType type = parameter.type.element;
    if (kind_of(type) == 'b' || is_integer(type)) {
        if (!PyLong_Check(object)) return refuse_number(parameter, i);
        const bool is_bool = kind_of(type) == 'b';
        const bool may_be_unsigned = kind_of(type) != 'i' || is_char(parameter.type);
        if (!store_int(object, parameter.size, kind_of(type) == 'i', may_be_unsigned, to) ||
            (is_bool && to[0] > 1))
            return refuse_overflow(parameter, i);
        return true;
    }
    if (PyComplex_Check(object) != 0 && kind_of(type) != 'c') return refuse_number(parameter, i);
    double real = 0;
    double imaginary = 0;
    if (!real_of(object, &real, &imaginary) && PyErr_ExceptionMatches(PyExc_OverflowError) == 0) return false;
    if (PyErr_Occurred() != nullptr) {  // an int beyond all floats
        PyErr_Clear();
        return refuse_overflow(parameter, i);
    }
    return store_number(type, real, imaginary, to) || refuse_overflow(parameter, i);
}

// Nothing tells the parameter's type: numbers of Python take its width.
bool KernelArguments::pack_by_width(const KernelParameter &parameter, int i, unsigned char *to) noexcept {
    PyObject *const object = objects_[i];
    const std::size_t bytes = parameter.size;
    if (PyLong_Check(object)) {
        if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) return refuse_width(parameter, i, "an int", 8);
        return store_int(object, bytes, true, true, to) || refuse_overflow(parameter, i);
    }
    const bool is_complex = PyComplex_Check(object) != 0;
    if (bytes != (is_complex ? 16 : 4) && bytes != 8)
        return refuse(parameter, i, objects_[i], nullptr,
                      "a NumPy scalar, since its width is not that of a float");
    double real = 0;
    double imaginary = 0;
    const ElementType type = type_of(is_complex ? 'c' : 'f', static_cast<int>(bytes));
    return real_of(object, &real, &imaginary) &&
           (store_number(type, real, imaginary, to) || refuse_overflow(parameter, i));
}

bool KernelArguments::pack_value(const KernelParameter &parameter, int i, bool unchecked,
                                 unsigned char *to) noexcept {
    PyObject *const object = objects_[i];
    const ParameterType &type = parameter.type;
    if (PyLong_CheckExact(object) && type.kind == Kind::number) return pack_number(parameter, i, to);
    if (is_plain_number(object) && type.kind == Kind::unknown) return pack_by_width(parameter, i, to);
    const bool is_pointer = reinterpret_cast<PyObject *>(Py_TYPE(object)) == state_.pointer_type;
    if (is_pointer || Py_IsNone(object) != 0) {
        const char *got = is_pointer ? "a Pointer" : "None, a null pointer";
        if (parameter.size != kPointerBytes) return refuse_width(parameter, i, got, 8);
        if (!unchecked && type.kind != Kind::pointer && type.kind != Kind::unknown)
            return refuse(parameter, i, nullptr, got, "a value");
        const std::uintptr_t address = is_pointer ? reinterpret_cast<PointerObject *>(object)->address : 0;
        std::memcpy(to, &address, kPointerBytes);
        return true;
    }
    if (!is_plain_number(object) && PyArray_IsScalar(object, Generic))
        return pack_numpy_scalar(parameter, i, unchecked, to);
    const bool is_number = PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object);
    if (!is_number) {
        bool is_one = false;
        if (!pack_structure(parameter, i, unchecked, &is_one, to)) return false;
        return is_one || refuse(parameter, i, object, nullptr, "an array or a number");
    }
    // A number that the parameter's type holds is one of that type, checked or not.
    const bool is_held = PyLong_Check(object) != 0 || (PyFloat_Check(object) != 0 && is_floating(type.element)) ||
                         kind_of(type.element) == 'c';
    if (type.kind == Kind::number && (!unchecked || is_held)) return pack_number(parameter, i, to);
    if (unchecked || type.kind == Kind::unknown) return pack_by_width(parameter, i, to);
    return refuse(parameter, i, object, nullptr,
                  type.kind == Kind::pointer
                      ? "an array, None for a null pointer, or an address as cukern.Pointer(address)"
                      : "a structured NumPy scalar, a structure of ctypes, or a NumPy scalar of its width");
}

bool KernelArguments::pack(const UserKernel &kernel, int device, bool unchecked, unsigned char *block) noexcept {
    if (count_ != kernel.num_parameters()) {
        PyErr_Format(PyExc_TypeError, "%s: the kernel has %d parameter%s, and %d argument%s given", function_,
                     kernel.num_parameters(), kernel.num_parameters() == 1 ? "" : "s", count_,
                     count_ == 1 ? " was" : "s were");
        return false;
    }
    for (int i = 0; i < count_; ++i) {
        const KernelParameter &parameter = kernel.parameter(i);
        unsigned char *const to = block + parameter.offset;
        if (!(arrays_[i].is_array ? pack_array(parameter, i, device, unchecked, to)
                                  : pack_value(parameter, i, unchecked, to)))
            return false;
    }
    return true;
}

}  // namespace cukern::py
