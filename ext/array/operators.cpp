// Operators of Array, and NumPy's functions on it.
#include "base/python.h"

#include "array/array.h"

#include <cstring>

#include "call/operand.h"
#include "call/traced.h"
#include "interop/frameworks.h"
#include "ops/operations.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

// The `__array_ufunc__` of an object's type, if it has one. False with an exception set.
bool find_ufunc_handler(const ModuleState &state, PyObject *object, PyRef *handler) noexcept {
    *handler =
        PyRef::steal(PyObject_GetAttr(reinterpret_cast<PyObject *>(Py_TYPE(object)), state.name_array_ufunc));
    return *handler || clear_lookup_error();
}

// Who computes an operator between an Array and another object.
enum class OperatorRoute {
    operand,  // we compute
    own,      // the object's own operator is asked
    ufunc,    // the object handles NumPy's functions (NEP 13)
    failed    // an exception is set
};
OperatorRoute route_of(ModuleState &state, PyObject *object) noexcept {
    if (is_own_array(object) || is_number(object) || PyArray_CheckExact(object) ||
        PyArray_IsScalar(object, Generic))
        return OperatorRoute::operand;
    if (const TypeRecord *known = known_foreign(state, object); known != nullptr)
        return known->has_own_operators ? OperatorRoute::own : OperatorRoute::operand;
    PyRef handler;
    if (!find_ufunc_handler(state, object, &handler)) return OperatorRoute::failed;
    if (handler && Py_IsNone(handler.get()) != 0) return OperatorRoute::own;
    if (PyArray_Check(object)) return OperatorRoute::operand;
    HeldRecord record;
    if (!record_of(state, object, &record)) return OperatorRoute::failed;
    if (record->protocol != Protocol::other || PyObject_CheckBuffer(object) != 0) return OperatorRoute::operand;
    return handler ? OperatorRoute::ufunc : OperatorRoute::own;
}

// A list, tuple, string, or other sequence that `*` with an integer would repeat: never meant with an Array.
bool is_sequence(PyObject *object) noexcept {
    if (is_own_array(object) || PyArray_Check(object) || PyArray_IsScalar(object, Generic)) return false;
    if (PyList_Check(object) || PyTuple_Check(object) || PyUnicode_Check(object)) return true;
    return PyType_GetSlot(Py_TYPE(object), Py_sq_repeat) != nullptr &&
           PyType_GetSlot(Py_TYPE(object), Py_nb_multiply) == nullptr && PyObject_CheckBuffer(object) == 0;
}

struct Operator {
    Op op;
    bool is_product;
};

PyObject *refuse_sequence(const Operator &how, PyObject *object) noexcept {
    const char *const function = how.is_product ? "matmul" : info(how.op).name;
    if (PyList_Check(object) || PyTuple_Check(object))
        PyErr_Format(PyExc_TypeError,
                     "%s: an operand is a list or tuple; pass an array, as made by cukern.asarray()", function);
    else
        PyErr_Format(PyExc_TypeError, "%s: an operand is of type %R, which is no array or number", function,
                     reinterpret_cast<PyObject *>(Py_TYPE(object)));
    return nullptr;
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

// NumPy's own function asks the object's __array_ufunc__.
PyObject *call_ufunc(const Operator &how, PyObject *a, PyObject *b, PyObject *out) noexcept {
    const char *name = how.is_product ? "matmul" : info(how.op).name;
    for (const auto &[numpys, ours] : kAliases)
        if (std::strcmp(name, ours) == 0) name = numpys;
    const PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy"));
    const PyRef ufunc = numpy ? PyRef::steal(PyObject_GetAttrString(numpy.get(), name)) : PyRef();
    const PyRef args = PyRef::steal(PyTuple_Pack(2, a, b));
    const PyRef options = out == nullptr ? PyRef() : PyRef::steal(Py_BuildValue("{s:(O)}", "out", out));
    if (!ufunc || !args || (out != nullptr && !options)) return nullptr;
    return PyObject_Call(ufunc.get(), args.get(), options.get());
}

PyObject *apply(const Operator &how, PyObject *a, PyObject *b, PyObject *out) noexcept {
    PyObject *own = b == nullptr || is_own_array(a) ? a : b;
    PyObject *module = PyType_GetModule(Py_TYPE(own));
    if (module == nullptr) return nullptr;
    PyObject *other = own == a ? b : a;
    if (other != nullptr) {
        if (is_sequence(other)) return refuse_sequence(how, other);
        switch (route_of(state_of(module), other)) {
            case OperatorRoute::operand: break;
            case OperatorRoute::own: Py_RETURN_NOTIMPLEMENTED;
            case OperatorRoute::ufunc: return call_ufunc(how, a, b, out);
            case OperatorRoute::failed: return nullptr;
        }
    }
    if (how.is_product) return run_matmul(module, "matmul", {}, a, b, out, nullptr);
    PyObject *const result = run_elementwise(state_of(module), how.op, a, b, out, nullptr);
    if (result != nullptr || b == nullptr) return result;
    PyObject *const operands[] = {a, b};
    if (out != nullptr) return refuse_if_traced(state_of(module), operands, 2);
    return record_if_traced(state_of(module), info(how.op).name, operands, 2, nullptr);
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
    PyObject *module = PyType_GetModule(Py_TYPE(a));
    if (module == nullptr) return nullptr;
    if (!is_sequence(b)) {
        const OperatorRoute route = route_of(state_of(module), b);
        if (route == OperatorRoute::ufunc) return call_ufunc(kMatmul, a, b, a);
        if (route == OperatorRoute::failed) return nullptr;
    }
    const PyRef product = PyRef::steal(apply(kMatmul, a, b, nullptr));
    if (!product || product.get() == Py_NotImplemented) return PyRef::borrow(product.get()).release();
    // Whatever the product came out as, it is stored as `out` would take it: in shape and by same_kind casting.
    if (!is_own_array(product.get()) || !fits_in_place(array_of(a), array_of(product.get())) ||
        PyObject_SetItem(a, Py_Ellipsis, product.get()) != 0)
        return nullptr;
    return PyRef::borrow(a).release();
}

// The functions of NumPy that there is a kernel for, by the name of the ufunc. False with an exception set.
bool find_ufunc(PyObject *ufunc, Operator *how, bool *found) noexcept {
    *found = false;
    const PyRef name = PyRef::steal(PyObject_GetAttrString(ufunc, "__name__"));
    const char *text = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
    if (text == nullptr) return clear_lookup_error();
    if (std::strcmp(text, "matmul") == 0) {
        *how = kMatmul;
        *found = true;
        return true;
    }
    for (const auto &[numpys, ours] : kAliases)
        if (std::strcmp(text, numpys) == 0) text = ours;
    for (int i = 0; i < kNumTableOps; ++i) {
        if (kOps[i].kind == OpKind::scalar || std::strcmp(kOps[i].name, text) != 0) continue;
        *how = {static_cast<Op>(i), false};
        *found = true;
    }
    return true;
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

PyObject *array_compare(PyObject *a, PyObject *b, int how) {
    constexpr Op kComparisons[] = {Op::less,      Op::less_equal, Op::equal,
                                   Op::not_equal, Op::greater,    Op::greater_equal};
    static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5);
    // A comparison with a string is left to Python: x == "a" is False.
    if (PyUnicode_Check(b)) Py_RETURN_NOTIMPLEMENTED;
    return apply({kComparisons[how], false}, a, b, nullptr);
}

// `value in x`: whether any element is equal to it, as in NumPy.
int array_contains(PyObject *self, PyObject *value) {
    const PyRef same = PyRef::steal(array_compare(self, value, Py_EQ));
    if (!same) return -1;
    if (!is_own_array(same.get())) return 0;  // it cannot be compared with
    const PyRef any = PyRef::steal(run_reduction(state_of_type(self), Op::any, same.get(), {}));
    return any ? PyObject_IsTrue(any.get()) : -1;
}

namespace {

// NumPy makes an array without dimensions of its scalars before it asks us: np.float32(0.3) < x.
PyRef as_scalar(PyObject *object) noexcept {
    if (!PyArray_CheckExact(object) || PyArray_NDIM(as_array(object)) != 0 ||
        PyArray_TYPE(as_array(object)) == NPY_OBJECT)
        return PyRef::borrow(object);
    return PyRef::steal(PyArray_ToScalar(PyArray_DATA(as_array(object)), as_array(object)));
}

// Whether no operand or output has an `__array_ufunc__` of its own, which is to be asked then. -1: an exception is
// set.
int handles_all(PyObject *self, PyObject *args, PyObject *out) noexcept {
    const ModuleState &state = state_of_type(self);
    const auto handles = [&](PyObject *object) {
        if (is_own_array(object) || PyArray_CheckExact(object)) return 1;
        PyRef handler;
        if (!find_ufunc_handler(state, object, &handler)) return -1;
        return !handler || handler.get() == state.ndarray_ufunc ? 1 : 0;
    };
    int all = 1;
    for (Py_ssize_t i = 2; all == 1 && i < PyTuple_Size(args); ++i) all = handles(PyTuple_GetItem(args, i));
    if (out == nullptr || PyTuple_Check(out) == 0) return all == 1 && out != nullptr ? handles(out) : all;
    for (Py_ssize_t i = 0; all == 1 && i < PyTuple_Size(out); ++i) all = handles(PyTuple_GetItem(out, i));
    return all;
}

}  // namespace

// __array_ufunc__(ufunc, method, *inputs, out=(...)): NEP 13.
PyObject *array_ufunc(PyObject *self, PyObject *args, PyObject *keywords) {
    if (PyTuple_Size(args) < 2) {
        PyErr_SetString(PyExc_TypeError, "__array_ufunc__ takes a ufunc and a method");
        return nullptr;
    }
    PyObject *method = PyTuple_GetItem(args, 1);
    Operator how{};
    PyObject *given = keywords != nullptr ? PyDict_GetItemString(keywords, "out") : nullptr;
    const int handled = handles_all(self, args, given);
    if (handled < 0) return nullptr;
    if (handled == 0) Py_RETURN_NOTIMPLEMENTED;
    const bool is_call = PyUnicode_Check(method) && PyUnicode_CompareWithASCIIString(method, "__call__") == 0;
    if (!is_call) {  // raised here, since NumPy (2.5) leaks operands of a reduction that nobody implements
        PyErr_Format(
            PyExc_TypeError,
            "cukern has no '%S' of NumPy's functions; there are cukern.sum, prod, max, cumulative_sum and so "
            "on",
            method);
        return nullptr;
    }
    bool found = false;
    if (!find_ufunc(PyTuple_GetItem(args, 0), &how, &found)) return nullptr;
    if (!found) Py_RETURN_NOTIMPLEMENTED;
    const int count = how.is_product ? 2 : arity(how.op);
    if (PyTuple_Size(args) != 2 + count) Py_RETURN_NOTIMPLEMENTED;
    PyObject *out = nullptr;
    if (keywords != nullptr) {
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
    const PyRef a = as_scalar(PyTuple_GetItem(args, 2));
    const PyRef b = count > 1 ? as_scalar(PyTuple_GetItem(args, 3)) : PyRef();
    if (!a || (count > 1 && !b)) return nullptr;
    return how.is_product ? run_matmul(module, "matmul", {}, a.get(), b.get(), out, nullptr)
                          : run_elementwise(state_of(module), how.op, a.get(), b.get(), out, nullptr);
}

// __array_function__(function, types, args, kwargs): NEP 18, in Python.
PyObject *array_function(PyObject *, PyObject *args) {
    const PyRef module = PyRef::steal(PyImport_ImportModule("cukern._numpy_functions"));
    const PyRef dispatch = module ? PyRef::steal(PyObject_GetAttrString(module.get(), "dispatch")) : PyRef();
    return dispatch ? PyObject_CallObject(dispatch.get(), args) : nullptr;
}

}  // namespace cukern::py
