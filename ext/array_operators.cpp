// Operators of Array, and NumPy's functions on it.
#include "python.h"

#include "array.h"

#include <cstring>

#include "element_types.h"
#include "frameworks.h"
#include "methods.h"
#include "operand.h"

namespace cukern::py {
namespace {

// A slot is called with an Array on either side; it is known by this very slot, since the module's state is not.
bool is_own(PyObject *object) noexcept {
    return PyType_GetSlot(Py_TYPE(object), Py_nb_add) == reinterpret_cast<void *>(array_add);
}

// What an operator takes beside an Array; the rest is left to the other object's own operator.
bool takes_part(ModuleState &state, PyObject *object) noexcept {
    if (is_own(object) || is_number(object) || PyArray_Check(object) || PyArray_IsScalar(object, Generic))
        return true;
    if (PyList_Check(object) || PyTuple_Check(object) || PyUnicode_Check(object)) return false;
    return record_of(state, object).protocol != Protocol::other || PyObject_CheckBuffer(object) != 0;
}

struct Operator {
    Op op;
    bool is_product;
};

PyObject *apply(const Operator &how, PyObject *a, PyObject *b, PyObject *out) noexcept {
    PyObject *own = b == nullptr || is_own(a) ? a : b;
    PyObject *module = PyType_GetModule(Py_TYPE(own));
    if (module == nullptr) return nullptr;
    if (b != nullptr && !takes_part(state_of(module), own == a ? b : a)) Py_RETURN_NOTIMPLEMENTED;
    return how.is_product ? run_matmul(module, MatmulAlgorithm::automatic, a, b, out, nullptr)
                          : run_elementwise(state_of(module), how.op, a, b, out, nullptr);
}

constexpr Operator kMatmul{Op::copy, true};

bool fits_in_place(const Array *out, const Array *product) noexcept {
    if (!can_cast_same_kind(product->type, out->type)) {
        PyErr_Format(PyExc_TypeError,
                     "matmul: the result is of element type %s, which the array's %s cannot take (casting "
                     "'same_kind')",
                     name_of(product->type), name_of(out->type));
        return false;
    }
    if (out->read_only) {
        PyErr_SetString(PyExc_ValueError, "matmul: the array is read-only");
        return false;
    }
    bool same = out->ndim == product->ndim;
    for (int i = 0; same && i < out->ndim; ++i) same = out->shape()[i] == product->shape()[i];
    if (same) return true;
    const PyRef own = shape_text(out->ndim, out->shape());
    const PyRef other = shape_text(product->ndim, product->shape());
    if (own && other)
        PyErr_Format(PyExc_ValueError, "matmul: the array has shape %U; the result has %U", own.get(),
                     other.get());
    return false;
}

// An in-place product cannot be computed where its operand lies.
PyObject *multiply_in_place(PyObject *a, PyObject *b) noexcept {
    const PyRef product = PyRef::steal(apply(kMatmul, a, b, nullptr));
    if (!product || product.get() == Py_NotImplemented) return PyRef::borrow(product.get()).release();
    // Whatever the product came out as, it is stored as `out` would take it: in shape and by same_kind casting.
    if (!is_own(product.get()) || !fits_in_place(array_of(a), array_of(product.get())) ||
        PyObject_SetItem(a, Py_Ellipsis, product.get()) != 0)
        return nullptr;
    return PyRef::borrow(a).release();
}

// NumPy's ufuncs whose own names are not the standard's.
constexpr const char *kAliases[][2] = {{"true_divide", "divide"},
                                       {"power", "pow"},
                                       {"absolute", "abs"},
                                       {"conjugate", "conj"},
                                       {"invert", "bitwise_invert"},
                                       {"left_shift", "bitwise_left_shift"},
                                       {"right_shift", "bitwise_right_shift"},
                                       {"arctan2", "atan2"},
                                       {"arcsin", "asin"},
                                       {"arccos", "acos"},
                                       {"arctan", "atan"},
                                       {"arcsinh", "asinh"},
                                       {"arccosh", "acosh"},
                                       {"arctanh", "atanh"}};

// The functions of NumPy that there is a kernel for, by the name of the ufunc.
bool find_ufunc(PyObject *ufunc, Operator *how) noexcept {
    const PyRef name = PyRef::steal(PyObject_GetAttrString(ufunc, "__name__"));
    const char *text = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
    if (text == nullptr) {
        PyErr_Clear();
        return false;
    }
    if (std::strcmp(text, "matmul") == 0) {
        *how = kMatmul;
        return true;
    }
    for (const auto &[numpys, ours] : kAliases)
        if (std::strcmp(text, numpys) == 0) text = ours;
    for (int i = 0; i < kNumTableOps; ++i) {
        if (kOps[i].kind == OpKind::scalar || std::strcmp(kOps[i].name, text) != 0) continue;
        *how = {static_cast<Op>(i), false};
        return true;
    }
    return false;
}

}  // namespace

#define CUKERN_OPERATOR(name, op)                                                                      \
    PyObject *array_##name(PyObject *a, PyObject *b) { return apply({Op::op, false}, a, b, nullptr); } \
    PyObject *array_i##name(PyObject *a, PyObject *b) { return apply({Op::op, false}, a, b, a); }
CUKERN_BINARY_OPERATORS(CUKERN_OPERATOR)
#undef CUKERN_OPERATOR
#define CUKERN_OPERATOR(name, op) \
    PyObject *array_##name(PyObject *a) { return apply({Op::op, false}, a, nullptr, nullptr); }
CUKERN_UNARY_OPERATORS(CUKERN_OPERATOR)
#undef CUKERN_OPERATOR
PyObject *array_matmul(PyObject *a, PyObject *b) { return apply(kMatmul, a, b, nullptr); }
PyObject *array_imatmul(PyObject *a, PyObject *b) { return multiply_in_place(a, b); }

// There is no power modulo a number.
PyObject *array_power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (Py_IsNone(modulus) == 0) Py_RETURN_NOTIMPLEMENTED;
    return apply({Op::pow, false}, a, b, nullptr);
}
PyObject *array_ipower(PyObject *a, PyObject *b, PyObject *modulus) {
    if (Py_IsNone(modulus) == 0) Py_RETURN_NOTIMPLEMENTED;
    return apply({Op::pow, false}, a, b, a);
}

// Lists would compare by identity, which nobody means.
PyObject *array_compare(PyObject *a, PyObject *b, int how) {
    constexpr Op kComparisons[] = {Op::less,      Op::less_equal, Op::equal,
                                   Op::not_equal, Op::greater,    Op::greater_equal};
    static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5);
    const Op op = kComparisons[how];
    if (PyList_Check(b) || PyTuple_Check(b)) {
        PyErr_Format(PyExc_TypeError, "%s: b is a list or tuple; pass an array, as made by cukern.asarray()",
                     info(op).name);
        return nullptr;
    }
    return apply({op, false}, a, b, nullptr);
}

// __array_ufunc__(ufunc, method, *inputs, out=(...)): NEP 13.
PyObject *array_ufunc(PyObject *self, PyObject *args, PyObject *keywords) {
    if (PyTuple_Size(args) < 2) {
        PyErr_SetString(PyExc_TypeError, "__array_ufunc__ takes a ufunc and a method");
        return nullptr;
    }
    PyObject *method = PyTuple_GetItem(args, 1);
    Operator how{};
    const bool is_call = PyUnicode_Check(method) && PyUnicode_CompareWithASCIIString(method, "__call__") == 0;
    if (!is_call || !find_ufunc(PyTuple_GetItem(args, 0), &how)) Py_RETURN_NOTIMPLEMENTED;
    const int count = how.is_product ? 2 : arity(how.op);
    if (PyTuple_Size(args) != 2 + count) Py_RETURN_NOTIMPLEMENTED;
    PyObject *out = nullptr;
    if (keywords != nullptr) {
        PyObject *given = PyDict_GetItemString(keywords, "out");
        if (PyDict_Size(keywords) > (given != nullptr ? 1 : 0)) {
            PyErr_SetString(PyExc_TypeError, "cukern's form of NumPy's functions takes no keyword but 'out'");
            return nullptr;
        }
        if (given != nullptr && PyTuple_Check(given) && PyTuple_Size(given) != 1) {
            PyErr_SetString(PyExc_ValueError,
                            "cukern's form of NumPy's functions has one result: out takes one array");
            return nullptr;
        }
        if (given != nullptr) out = PyTuple_Check(given) ? PyTuple_GetItem(given, 0) : given;
        if (out != nullptr && Py_IsNone(out) != 0) out = nullptr;
    }
    PyObject *module = PyType_GetModule(Py_TYPE(self));
    PyObject *a = PyTuple_GetItem(args, 2);
    PyObject *b = count > 1 ? PyTuple_GetItem(args, 3) : nullptr;
    return how.is_product ? run_matmul(module, MatmulAlgorithm::automatic, a, b, out, nullptr)
                          : run_elementwise(state_of(module), how.op, a, b, out, nullptr);
}

}  // namespace cukern::py
