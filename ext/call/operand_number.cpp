// Python's numbers as operands: their value in the element type that a call computes in.
#include "base/python.h"

#include "call/operand.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include "types/element_types.h"

namespace cukern::py {
namespace {

template <typename T>
void store(T value, TensorView &view) noexcept {
    view.type = ElementTypeOf<T>::value;
    std::memcpy(view.value.bytes, &value, sizeof value);
}

// As 64 bits, which the launch narrows. False, without an exception, for what `type` cannot hold.
bool store_integer(PyObject *object, ElementType type, TensorView &view) noexcept {
    const int bits = 8 * size_of(type);
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (kind_of(type) == 'i') {
        const long long top = std::numeric_limits<long long>::max() >> (64 - bits);
        store(static_cast<std::int64_t>(number), view);
        return overflow == 0 && number <= top && number >= -top - 1;
    }
    if (overflow > 0 && bits == 64) {
        const unsigned long long large = PyLong_AsUnsignedLongLong(object);
        const bool fits = PyErr_Occurred() == nullptr;
        PyErr_Clear();
        store(static_cast<std::uint64_t>(large), view);
        return fits;
    }
    store(static_cast<std::uint64_t>(number), view);
    return overflow == 0 && number >= 0 && (bits == 64 || number >> bits == 0);
}

bool store_real(PyObject *object, TensorView &view) noexcept {
    const double number = PyFloat_AsDouble(object);
    if (number == -1.0 && PyErr_Occurred() != nullptr) return false;
    store(number, view);
    return true;
}

double infinity_like(PyObject *object) noexcept {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    const bool negative = overflow < 0 || (overflow == 0 && number < 0);
    return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

bool store_complex(PyObject *object, TensorView &view) noexcept {
    if (!PyComplex_Check(object)) return store_real(object, view);
    store(Complex128{PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)}, view);
    return true;
}

}  // namespace

bool Operand::fits(ElementType type) const noexcept {
    TensorView unused;
    return weak_ != Weak::integer || !is_integer(type) || store_integer(object_, type, unused);
}

void Operand::resolve_to_infinity() noexcept { store(infinity_like(object_), access_.view); }

bool Operand::resolve_compared(Operand &other) noexcept {
    const int less = PyObject_RichCompareBool(object_, other.object_, Py_LT);
    const int equal = less < 0 ? -1 : PyObject_RichCompareBool(object_, other.object_, Py_EQ);
    store(equal > 0 ? 0.0 : less > 0 ? -1.0 : 1.0, access_.view);
    store(0.0, other.access_.view);
    return equal >= 0;
}

// In the widest type of the kind, which the launch converts.
bool Operand::resolve(ElementType type) noexcept {
    TensorView &view = access_.view;
    if (weak_ == Weak::none) return true;
    switch (kind_of(type)) {
        case 'b': {
            const int truth = PyObject_IsTrue(object_);  // a subclass may raise
            store(Bool{static_cast<std::uint8_t>(truth > 0)}, view);
            return truth >= 0;
        }
        case 'f': return store_real(object_, view);
        case 'c': return store_complex(object_, view);
        default: return store_integer(object_, type, view) || refuse_out_of_bounds(object_, type);
    }
}

}  // namespace cukern::py
