// One number, of Python or NumPy or in an array without dimensions, as an element of an Array.
#include "base/python.h"

#include "array/array.h"

#include <cstring>
#include <limits>

#include "call/operand.h"
#include "types/element_types.h"

namespace cukern::py {
namespace {

template <typename T>
void store(T number, ElementType *type, Immediate *value) noexcept {
    *type = ElementTypeOf<T>::value;
    std::memcpy(value->bytes, &number, sizeof number);
}

// As Python's own number: bool, int, float or complex. Null with TypeError for what is none.
PyRef python_number(const char *function, PyObject *object) noexcept {
    if (is_number(object)) return PyRef::borrow(object);
    PyRef scalar = PyRef::borrow(object);
    if (is_own_array(object) && array_of(object)->ndim == 0) return element_of(array_of(object));
    if (PyArray_Check(object) && PyArray_NDIM(as_array(object)) == 0)
        scalar = PyRef::steal(PyArray_ToScalar(PyArray_DATA(as_array(object)), as_array(object)));
    if (!scalar) return {};
    if (PyArray_IsScalar(scalar.get(), Bool)) return PyRef::steal(PyBool_FromLong(PyObject_IsTrue(scalar.get())));
    if (PyArray_IsScalar(scalar.get(), Integer)) return PyRef::steal(PyNumber_Index(scalar.get()));
    if (PyArray_IsScalar(scalar.get(), ComplexFloating))
        return PyRef::steal(
            PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject *>(&PyComplex_Type), scalar.get(), nullptr));
    // Other packages' scalars, such as ml_dtypes.bfloat16, are numbers where they convert to float.
    const bool is_text = PyArray_IsScalar(scalar.get(), Flexible) || PyArray_IsScalar(scalar.get(), Datetime) ||
                         PyArray_IsScalar(scalar.get(), Timedelta);
    if (PyArray_IsScalar(scalar.get(), Generic) && !is_text) return PyRef::steal(PyNumber_Float(scalar.get()));
    PyErr_Format(PyExc_TypeError, "%s: expected one number, got %R", function,
                 reinterpret_cast<PyObject *>(Py_TYPE(object)));
    return {};
}

bool store_integer(PyObject *number, ElementType target, ElementType *type, Immediate *value) noexcept {
    const PyRef whole =
        PyRef::steal(PyLong_Check(number) ? PyRef::borrow(number).release() : PyNumber_Long(number));
    if (!whole) return false;
    int overflow = 0;
    const long long small = PyLong_AsLongLongAndOverflow(whole.get(), &overflow);
    if (small == -1 && PyErr_Occurred() != nullptr) return false;
    const bool is_signed = kind_of(target) == 'i';
    const int bits = 8 * size_of(target);
    bool fits = false;
    if (is_signed) {
        const long long top = std::numeric_limits<long long>::max() >> (64 - bits);
        fits = overflow == 0 && small <= top && small >= -top - 1;
        store(static_cast<std::int64_t>(small), type, value);
    } else if (overflow > 0 && bits == 64) {
        const unsigned long long large = PyLong_AsUnsignedLongLong(whole.get());
        fits = PyErr_Occurred() == nullptr;
        PyErr_Clear();
        store(static_cast<std::uint64_t>(large), type, value);
    } else {
        fits = overflow == 0 && small >= 0 && (bits == 64 || small >> bits == 0);
        store(static_cast<std::uint64_t>(small), type, value);
    }
    return fits || refuse_out_of_bounds(whole.get(), target);
}

}  // namespace

bool element_from(const char *function, PyObject *object, ElementType target, bool casts, ElementType *type,
                  Immediate *value) noexcept {
    const PyRef number = python_number(function, object);
    if (!number) return false;
    if (casts && number.get() != object && PyLong_Check(number.get()) && PyBool_Check(number.get()) == 0)
        target = PyArray_IsScalar(object, UnsignedInteger) ? ElementType::uint64 : ElementType::int64;
    else if (casts && number.get() != object && kind_of(target) != 'b' && PyFloat_Check(number.get()))
        target = ElementType::float64;
    switch (kind_of(target)) {
        case 'b': {
            const int truth = PyObject_IsTrue(number.get());
            store(Bool{static_cast<std::uint8_t>(truth > 0)}, type, value);
            return truth >= 0;
        }
        case 'i':
        case 'u': return store_integer(number.get(), target, type, value);
        default: break;
    }
    if (kind_of(target) == 'c' && PyComplex_Check(number.get())) {
        store(Complex128{PyComplex_RealAsDouble(number.get()), PyComplex_ImagAsDouble(number.get())}, type, value);
        return true;
    }
    const double real = PyFloat_AsDouble(number.get());
    store(real, type, value);
    return real != -1.0 || PyErr_Occurred() == nullptr;
}

}  // namespace cukern::py
