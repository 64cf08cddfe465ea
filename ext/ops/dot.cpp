// dot and vecdot, made of other operations: products, and their sum in the type that sums are computed in.
#include "base/python.h"

#include <optional>

#include "array/array.h"
#include "base/methods.h"
#include "base/signature.h"
#include "call/operand.h"
#include "ops/operations.h"

namespace cukern::py {
namespace {

struct Pair {
    PyObject *a;
    PyObject *b;
    PyObject *out;     // null: none
    PyObject *stream;  // null: none
};

// The sum over the last dimension of products, `axis` counted from the end; of bool whether any holds. 16-bit
// floats in float32, rounded once; integers wrap in their own type.
PyObject *sum_products(ModuleState &state, const char *function, const Pair &pair, ElementType type,
                       long axis) noexcept {
    const bool narrow = size_of(type) == 2 && is_floating(type);
    const bool is_bool = type == ElementType::bool_;
    std::optional<TemporaryArrays> scope;  // all but the result
    if (pair.out != nullptr) scope.emplace();
    const PyRef wide =
        narrow ? PyRef::steal(run_cast(state, function, pair.a, ElementType::float32, nullptr, pair.stream))
               : PyRef::borrow(pair.a);
    if (!wide) return nullptr;
    const PyRef products = PyRef::steal(run_elementwise(state, is_bool ? Op::logical_and : Op::multiply,
                                                        wide.get(), pair.b, nullptr, pair.stream));
    const PyRef along = PyRef::steal(PyLong_FromLong(axis));
    if (!products || !along) return nullptr;
    ReductionOptions options;
    options.axis = along.get();
    options.stream = pair.stream;
    const bool direct = !narrow && compute_type(Op::sum, type, type) == type;
    options.out = direct || is_bool ? pair.out : nullptr;
    PyRef sum = PyRef::steal(run_reduction(state, is_bool ? Op::any : Op::sum, products.get(), options));
    if (!sum || direct || is_bool) return sum.release();
    return run_cast(state, function, sum.get(), type, pair.out, pair.stream);
}

bool find_axis(const ModuleState &state, const char *function, const Shape &a, const Shape &b,
               long *axis) noexcept {
    const int least = a.ndim < b.ndim ? a.ndim : b.ndim;
    if (least == 0) {
        PyErr_Format(PyExc_ValueError, "%s: an operand has no dimensions; both need at least one", function);
        return false;
    }
    const long most = a.ndim == b.ndim ? least - 1 : -1;
    if (*axis < -least || *axis > most) {
        PyErr_Format(state.axis_error, "%s: axis is %ld; expected -%d to %ld%s", function, *axis, least, most,
                     most < 0 ? ", counted from the end" : "");
        return false;
    }
    if (*axis >= 0) *axis -= least;
    const std::int64_t x = a.lengths[a.ndim + *axis];
    const std::int64_t y = b.lengths[b.ndim + *axis];
    if (x == y) return true;
    PyErr_Format(PyExc_ValueError, "%s: along the dimension that is summed over a has %lld elements and b %lld",
                 function, static_cast<long long>(x), static_cast<long long>(y));
    return false;
}

#define CUKERN_VECDOT "(a, b, /, *, axis=-1, out=None, stream=None)"
#define CUKERN_DOT "(a, b, /, *, out=None, stream=None)"

PyObject *vecdot_function(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_VECDOT);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("vecdot", nullptr, values, count, names, arguments)) return nullptr;
    ModuleState &state = state_of(module);
    Pair pair{arguments[0], arguments[1], given_or_null(arguments[3]), given_or_null(arguments[4])};
    long axis = arguments[2] == nullptr ? -1 : PyLong_AsLong(arguments[2]);
    if (axis == -1 && PyErr_Occurred() != nullptr) return nullptr;
    Description a;
    Description b;
    if (!describe(state, "vecdot", "a", pair.a, &a) || !describe(state, "vecdot", "b", pair.b, &b) ||
        !find_axis(state, "vecdot", a.shape, b.shape, &axis))
        return nullptr;
    std::optional<TemporaryArrays> scope;
    if (pair.out != nullptr) scope.emplace();
    PyRef conjugate;
    if (kind_of(a.type) == 'c') {
        conjugate = PyRef::steal(run_elementwise(state, Op::conj, pair.a, nullptr, nullptr, pair.stream));
        if (!conjugate) return nullptr;
        pair.a = conjugate.get();
    }
    return sum_products(state, "vecdot", pair, promote(a.type, b.type), axis);
}

PyObject *dot_function(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_DOT);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("dot", nullptr, values, count, names, arguments)) return nullptr;
    ModuleState &state = state_of(module);
    const Pair pair{arguments[0], arguments[1], given_or_null(arguments[2]), given_or_null(arguments[3])};
    Description a;
    Description b;
    if (!describe(state, "dot", "a", pair.a, &a) || !describe(state, "dot", "b", pair.b, &b)) return nullptr;
    if (a.shape.ndim == 0 || b.shape.ndim == 0)
        return run_elementwise(state, Op::multiply, pair.a, pair.b, pair.out, pair.stream);
    ProductOptions options;
    options.form = b.shape.ndim == 1 ? ProductForm::matmul : ProductForm::dot;  // which are the same of a vector
    return run_matmul(module, "dot", options, pair.a, pair.b, pair.out, pair.stream);
}

}  // namespace

#define CUKERN_DOT_TEXT                                                                                          \
    "out : array of any kind, or writable buffer, optional\n    Takes the result, and is returned.\n"            \
    "stream : Stream, object with __cuda_stream__, or int, optional\n    Where the work runs.\n"                 \
    "\nReturns\n-------\narray of the kind of `a`, or `out`\n    Of the promoted type of the operands.\n"        \
    "\nRaises\n------\nTypeError\n    An operand is no array; or `out` cannot take the result's element type.\n" \
    "ValueError\n    Lengths differ; an operand has no dimensions or too many; or `out` has another shape.\n"    \
    "\nExamples\n--------\n>>> import numpy, cukern\n>>> a = numpy.arange(4.0)\n"

PyMethodDef kDotMethods[] = {
    {"vecdot", as_method(vecdot_function), METH_FASTCALL | METH_KEYWORDS,
     "vecdot" CUKERN_VECDOT "\n--\n\n"
     "Products of vectors: the sum of conj(a) * b along one dimension.\n\n"
     "Of bool whether any product holds. Products are made first, in memory of their own.\n\n"
     "Parameters\n----------\na, b : Array, ndarray, another library's array, or buffer\n"
     "    Of shapes that broadcast, and of one length along `axis`.\n"
     "axis : int\n    From -min(a.ndim, b.ndim) to -1; from 0 up only where a.ndim equals "
     "b.ndim.\n" CUKERN_DOT_TEXT ">>> float(cukern.vecdot(a, a))\n14.0\n"},
    {"dot", as_method(dot_function), METH_FASTCALL | METH_KEYWORDS,
     "dot" CUKERN_DOT "\n--\n\n"
     "Product of two arrays: of vectors, of matrices, or with numbers, as numpy.dot.\n\n"
     "Parameters\n----------\na, b : Array, ndarray, another library's array, or buffer\n"
     "    Without dimensions: `multiply`. b of one: the sum of products along a's last. b of more: every\n"
     "    row of a with every column of b, of shape a.shape[:-1] + b.shape[:-2] + b.shape[-1:].\n" CUKERN_DOT_TEXT
     ">>> float(cukern.dot(a, a))\n14.0\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
