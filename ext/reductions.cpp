// Reductions: parse, view, check, launch, return. var and std are made of the others.
#include "python.h"

#include "array.h"

#include <algorithm>
#include <cstdio>

#include "errors.h"
#include "methods.h"
#include "result.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

// What a reduction is asked for besides its operand; null or None where it is not given.
struct Given {
    PyObject *axis = nullptr;
    PyObject *dtype = nullptr;
    int keepdims = 0;
    PyObject *out = nullptr;
    PyObject *stream = nullptr;
};

bool is_given(PyObject *object) noexcept { return object != nullptr && Py_IsNone(object) == 0; }

// Which dimensions leave, and the shape of what is left: with them of length 1, and without.
struct Plan {
    bool reduced[kMaxDims] = {};
    std::int64_t count = 1;  // of the elements of one result
    Shape shape;
    Shape kept;
};

bool make_plan(Op op, const TensorView &view, const Given &given, Plan *plan) noexcept {
    const char *const function = info(op).name;
    if (is_given(given.axis)) {
        int axes[kMaxDims];
        int count = 0;
        if (!parse_axes(function, given.axis, view.ndim, axes, &count)) return false;
        if (info(op).rule == ResultRule::index && (count != 1 || PyTuple_Check(given.axis) != 0)) {
            PyErr_Format(PyExc_TypeError, "%s: axis is %R; expected one int or None", function, given.axis);
            return false;
        }
        for (int i = 0; i < count; ++i) plan->reduced[axes[i]] = true;
    } else {
        for (int d = 0; d < view.ndim; ++d) plan->reduced[d] = true;
    }
    for (int d = 0; d < view.ndim; ++d) {
        if (plan->reduced[d]) {
            plan->count *= view.shape[d];
            if (given.keepdims != 0) plan->shape.lengths[plan->shape.ndim++] = 1;
        } else {
            plan->shape.lengths[plan->shape.ndim++] = view.shape[d];
            plan->kept.lengths[plan->kept.ndim++] = view.shape[d];
        }
    }
    if (plan->count != 0 || has_identity(op)) return true;
    PyErr_Format(PyExc_ValueError, "%s: there are no elements, of which there is no %s", function,
                 info(op).rule == ResultRule::index ? "index" : function);
    return false;
}

// The type that is computed in: that of the table, or the one asked for.
bool find_type(const ModuleState &state, Op op, ElementType type, PyObject *dtype, ElementType *compute) noexcept {
    *compute = compute_type(op, type, type);
    if (!is_given(dtype)) return true;
    if (!parse_dtype(state, info(op).name, dtype, compute)) return false;
    const char kind = kind_of(*compute);
    if (kind == 'b') *compute = ElementType::int64;
    if (op != Op::mean || kind == 'f' || kind == 'c') return true;
    PyErr_Format(PyExc_TypeError, "mean: dtype is %s; a mean is of a floating or complex type", name_of(*compute));
    return false;
}

// The result without the dimensions of length 1 that `keepdims` has left.
TensorView kept_view(const TensorView &view, const Plan &plan, bool keepdims) noexcept {
    TensorView kept = view;
    if (!keepdims) return kept;
    kept.ndim = 0;
    for (int d = 0; d < view.ndim; ++d) {
        if (plan.reduced[d]) continue;
        kept.shape[kept.ndim] = view.shape[d];
        kept.strides[kept.ndim++] = view.strides[d];
    }
    return kept;
}

PyObject *run_reduction(ModuleState &state, Op op, PyObject *object, const Given &given) noexcept {
    const char *const function = info(op).name;
    const Request request{state, function, is_given(given.out) ? given.out : nullptr,
                          is_given(given.stream) ? given.stream : nullptr};
    Backend backend;
    Reading reading;
    if (!ensure_backend(state, function, &backend) || !consumer_of(request, &reading.consumer)) return nullptr;
    Operand a;
    if (!a.read({state, function, "a"}, object, reading)) return nullptr;
    const ElementType type = a.weak() == Weak::none ? a.type() : weak_type(a.weak());
    ElementType compute;
    Plan plan;
    if (!a.resolve(type) || !make_plan(op, a.view(), given, &plan) ||
        !find_type(state, op, type, given.dtype, &compute))
        return nullptr;
    Operand *const operands[] = {&a};
    Result result;
    if (!result.prepare(request, plan.shape, result_type(op, compute), operands, 1, Overlap::none_allowed,
                        reading) ||
        !result.begin(request, operands, 1))
        return nullptr;

    const TensorView out = kept_view(result.view(), plan, given.keepdims != 0);
    ReduceCall call;
    call.op = op;
    call.compute = compute;
    call.input = &a.view();
    std::copy_n(plan.reduced, kMaxDims, call.reduced);
    call.out = &out;
    const auto run = [&] {
        return result.site().on_device ? reduce(call, result.site().stream) : reduce_on_host(call);
    };
    Status status = CUKERN_OK;
    if (result.site().on_device && backend == Backend::cuda) {
        status = run();
    } else {
        const GilRelease released;
        status = run();
    }
    if (status == CUKERN_OUT_OF_MEMORY) status = retry_after_collection(run);
    if (status != CUKERN_OK) {
        raise_status(state, function, status);
        return nullptr;
    }
    return result.end(request, operands, 1) ? result.finish(state) : nullptr;
}

// --- parsing ---

// Of a function, whose first argument is the array, or of a method.
bool parse(PyObject *args, PyObject *keywords, const char *format, bool has_dtype, PyObject **object,
           Given *given) noexcept {
    static const char *const with_dtype[] = {"", "axis", "dtype", "keepdims", "out", "stream", nullptr};
    static const char *const without[] = {"", "axis", "keepdims", "out", "stream", nullptr};
    // A method's array is not among its arguments.
    const int skipped = object == nullptr ? 1 : 0;
    auto **names = const_cast<char **>((has_dtype ? with_dtype : without) + skipped);
    if (object == nullptr)
        return (has_dtype ? PyArg_ParseTupleAndKeywords(args, keywords, format, names, &given->axis, &given->dtype,
                                                        &given->keepdims, &given->out, &given->stream)
                          : PyArg_ParseTupleAndKeywords(args, keywords, format, names, &given->axis,
                                                        &given->keepdims, &given->out, &given->stream)) != 0;
    return (has_dtype ? PyArg_ParseTupleAndKeywords(args, keywords, format, names, object, &given->axis,
                                                    &given->dtype, &given->keepdims, &given->out, &given->stream)
                      : PyArg_ParseTupleAndKeywords(args, keywords, format, names, object, &given->axis,
                                                    &given->keepdims, &given->out, &given->stream)) != 0;
}

constexpr bool takes_dtype(Op op) noexcept { return op == Op::sum || op == Op::prod || op == Op::mean; }

// "O|O$OpOO:sum" and the like.
struct ParseFormat {
    char text[32];
    ParseFormat(Op op, bool is_method) noexcept {
        std::snprintf(text, sizeof text, "%s|O$%spOO:%s", is_method ? "" : "O", takes_dtype(op) ? "O" : "",
                      info(op).name);
    }
};

template <Op op>
PyObject *function(PyObject *module, PyObject *args, PyObject *keywords) {
    static const ParseFormat format(op, false);
    PyObject *object = nullptr;
    Given given;
    if (!parse(args, keywords, format.text, takes_dtype(op), &object, &given)) return nullptr;
    return run_reduction(state_of(module), op, object, given);
}

// --- var and std ---

// The element type and the shape of any operand.
bool describe(ModuleState &state, const char *function, PyObject *object, ElementType *type, int *ndim,
              std::int64_t *shape) noexcept {
    Backend backend;
    Reading reading;
    Operand a;
    if (!ensure_backend(state, function, &backend) || !a.read({state, function, "a"}, object, reading))
        return false;
    *type = a.weak() == Weak::none ? a.type() : weak_type(a.weak());
    *ndim = a.view().ndim;
    std::copy_n(a.view().shape, *ndim, shape);
    return true;
}

constexpr const char *kSpreadNames[] = {"", "axis", "correction", "keepdims", "out", "stream", nullptr};

PyObject *as_float32(ModuleState &state, PyObject *object, PyObject *stream) noexcept {
    return run_cast(state, "var", object, ElementType::float32, nullptr, stream);
}

// The mean of the squared distances from the mean, in the type of the mean; 16-bit floats in float32, rounded
// once.
PyObject *run_spread(ModuleState &state, bool is_root, PyObject *object, const Given &given,
                     double correction) noexcept {
    const char *const function = is_root ? "std" : "var";
    ElementType type = ElementType::float64;
    std::int64_t shape[kMaxDims];
    int ndim = 0;
    if (!describe(state, function, object, &type, &ndim, shape)) return nullptr;
    const bool narrow = size_of(type) == 2 && kind_of(type) == 'f';
    PyObject *const stream = is_given(given.stream) ? given.stream : nullptr;
    PyObject *const target = is_given(given.out) ? given.out : nullptr;
    PyRef x = narrow ? PyRef::steal(as_float32(state, object, stream)) : PyRef::borrow(object);
    if (!x) return nullptr;
    Given wide;
    wide.axis = given.axis;
    wide.keepdims = 1;
    wide.stream = given.stream;
    const PyRef mean = PyRef::steal(run_reduction(state, Op::mean, x.get(), wide));
    if (!mean) return nullptr;
    PyRef distance = PyRef::steal(run_elementwise(state, Op::subtract, x.get(), mean.get(), nullptr, stream));
    if (!distance) return nullptr;
    x = PyRef();
    PyRef squares;
    if (kind_of(type) == 'c') {
        const PyRef real =
            PyRef::steal(run_elementwise(state, Op::real, distance.get(), nullptr, nullptr, stream));
        const PyRef imag =
            real ? PyRef::steal(run_elementwise(state, Op::imag, distance.get(), nullptr, nullptr, stream))
                 : PyRef();
        const PyRef a =
            imag ? PyRef::steal(run_elementwise(state, Op::square, real.get(), nullptr, nullptr, stream))
                 : PyRef();
        const PyRef b =
            a ? PyRef::steal(run_elementwise(state, Op::square, imag.get(), nullptr, nullptr, stream)) : PyRef();
        squares = b ? PyRef::steal(run_elementwise(state, Op::add, a.get(), b.get(), nullptr, stream)) : PyRef();
    } else {
        squares = PyRef::steal(run_elementwise(state, Op::square, distance.get(), nullptr, nullptr, stream));
    }
    distance = PyRef();
    if (!squares) return nullptr;
    Given last;
    last.axis = given.axis;
    last.keepdims = given.keepdims;
    last.stream = given.stream;
    const PyRef sum = PyRef::steal(run_reduction(state, Op::sum, squares.get(), last));
    if (!sum) return nullptr;
    squares = PyRef();
    std::int64_t count = 1;
    int axes[kMaxDims];
    int num_axes = ndim;
    if (is_given(given.axis) && !parse_axes(function, given.axis, ndim, axes, &num_axes)) return nullptr;
    for (int i = 0; i < num_axes; ++i) count *= shape[is_given(given.axis) ? axes[i] : i];
    const double freedom = static_cast<double>(count) - correction;
    const PyRef divisor = PyRef::steal(PyFloat_FromDouble(freedom > 0 ? freedom : 0));
    if (!divisor) return nullptr;
    PyRef result = PyRef::steal(run_elementwise(state, Op::divide, sum.get(), divisor.get(),
                                                is_root || narrow ? nullptr : target, stream));
    if (result && is_root)
        result = PyRef::steal(
            run_elementwise(state, Op::sqrt, result.get(), nullptr, narrow ? nullptr : target, stream));
    if (result && narrow) result = PyRef::steal(run_cast(state, function, result.get(), type, target, stream));
    return result.release();
}

PyObject *spread(ModuleState &state, bool is_root, PyObject *self, PyObject *args, PyObject *keywords) noexcept {
    PyObject *object = self;
    Given given;
    double correction = 0;
    auto **names = const_cast<char **>(kSpreadNames + (self != nullptr ? 1 : 0));
    const int parsed =
        self != nullptr
            ? PyArg_ParseTupleAndKeywords(args, keywords, is_root ? "|O$dpOO:std" : "|O$dpOO:var", names,
                                          &given.axis, &correction, &given.keepdims, &given.out, &given.stream)
            : PyArg_ParseTupleAndKeywords(args, keywords, is_root ? "O|O$dpOO:std" : "O|O$dpOO:var", names,
                                          &object, &given.axis, &correction, &given.keepdims, &given.out,
                                          &given.stream);
    return parsed != 0 ? run_spread(state, is_root, object, given, correction) : nullptr;
}

template <bool is_root>
PyObject *spread_function(PyObject *module, PyObject *args, PyObject *keywords) {
    return spread(state_of(module), is_root, nullptr, args, keywords);
}

}  // namespace

PyObject *reduce_array(Op op, PyObject *self, PyObject *args, PyObject *keywords) noexcept {
    const ParseFormat format(op, true);
    Given given;
    if (!parse(args, keywords, format.text, takes_dtype(op), nullptr, &given)) return nullptr;
    return run_reduction(state_of_type(self), op, self, given);
}

PyObject *array_var(PyObject *self, PyObject *args, PyObject *keywords) {
    return spread(state_of_type(self), false, self, args, keywords);
}
PyObject *array_std(PyObject *self, PyObject *args, PyObject *keywords) {
    return spread(state_of_type(self), true, self, args, keywords);
}

#define CUKERN_DTYPE_TEXT_summed ", dtype=None"
#define CUKERN_DTYPE_TEXT_floating ", dtype=None"
#define CUKERN_DTYPE_TEXT_promoted ""
#define CUKERN_DTYPE_TEXT_logical ""
#define CUKERN_DTYPE_TEXT_index ""
#define CUKERN_DTYPE_DOC_summed "dtype : optional\n    What is computed in and returned.\n"
#define CUKERN_DTYPE_DOC_floating "dtype : optional\n    What is computed in and returned.\n"
#define CUKERN_DTYPE_DOC_promoted ""
#define CUKERN_DTYPE_DOC_logical ""
#define CUKERN_DTYPE_DOC_index ""
#define CUKERN_TYPE_TEXT_summed "that of `a`; bool and signed integers give int64, unsigned ones uint64"
#define CUKERN_TYPE_TEXT_floating "that of `a`; integers and bool give float64"
#define CUKERN_TYPE_TEXT_promoted "that of `a`"
#define CUKERN_TYPE_TEXT_logical "bool"
#define CUKERN_TYPE_TEXT_index "int64"

#define CUKERN_REDUCTION_DOC(id, rule, doc)                                                                       \
    #id "(a, /, axis=None, *" CUKERN_DTYPE_TEXT_##rule                                                            \
        ", keepdims=False, out=None, stream=None)\n--\n\n" doc                                                    \
        "\n\nParameters\n----------\n"                                                                            \
        "a : Array, ndarray, another library's array, buffer, or number\n    Of any shape and any strides.\n"     \
        "axis : int or tuple of int, optional\n"                                                                  \
        "    The dimensions that leave, by default all. An index is of one dimension, or of all elements in C\n"  \
        "    order.\n" CUKERN_DTYPE_DOC_##rule                                                                    \
        "keepdims : bool\n"                                                                                       \
        "    Whether dimensions stay, with length 1.\n"                                                           \
        "out : array of any kind, or writable buffer, optional\n"                                                 \
        "    Takes the result, and is returned. It shares no memory with `a`.\n"                                  \
        "stream : Stream, object with __cuda_stream__, or int, optional\n    Where the work runs.\n"              \
        "\nReturns\n-------\narray of the kind of `a`, or `out`\n"                                                \
        "    Of element type " CUKERN_TYPE_TEXT_##rule                                                            \
        ".\n"                                                                                                     \
        "\nRaises\n------\n"                                                                                      \
        "TypeError\n    The operand is no array or number; or `out` cannot take the result's element type.\n"     \
        "ValueError\n    There is no such dimension; `out` has another shape, or overlaps `a`; or there are no\n" \
        "    elements, and the reduction has no identity.\n"                                                      \
        "\nExamples\n--------\n>>> import numpy, cukern\n>>> cukern." #id                                         \
        "(numpy.ones((2, 3)), axis=0).shape\n(3,)\n"

#define CUKERN_SPREAD_DOC(name, summary)                                                                        \
    name "(a, /, axis=None, *, correction=0.0, keepdims=False, out=None, stream=None)\n--\n\n" summary          \
         "\n\nIn two passes: the mean, then the squared distances from it.\n\nParameters\n----------\n"         \
         "a : Array, ndarray, another library's array, buffer, or number\n"                                     \
         "axis : int or tuple of int, optional\n    The dimensions that leave, by default all.\n"               \
         "correction : float\n    The sum of squares is divided by the number of elements less this.\n"         \
         "keepdims : bool\n    Whether dimensions stay, with length 1.\n"                                       \
         "out : array of any kind, or writable buffer, optional\n    Takes the result, and is returned.\n"      \
         "stream : Stream, object with __cuda_stream__, or int, optional\n    Where the work runs.\n"           \
         "\nReturns\n-------\narray of the kind of `a`, or `out`\n"                                             \
         "    Of the element type of `a`, of complex ones that of the parts; integers and bool give float64.\n" \
         "\nExamples\n--------\n>>> import numpy, cukern\n>>> float(cukern." name                               \
         "(numpy.array([1.0, 3.0])))\n1.0\n"

#define CUKERN_METHOD_binary(id, rule, doc)
#define CUKERN_METHOD_scalar(id, rule, doc)
#define CUKERN_METHOD_unary(id, rule, doc)
#define CUKERN_METHOD_choice(id, rule, doc)
#define CUKERN_METHOD_axpy(id, rule, doc)
#define CUKERN_METHOD_reduction(id, rule, doc) \
    {#id, as_method(function<Op::id>), METH_VARARGS | METH_KEYWORDS, CUKERN_REDUCTION_DOC(id, rule, doc)},

PyMethodDef kReductionMethods[] = {
#define CUKERN_OP(id, kind, types, rule, doc) CUKERN_METHOD_##kind(id, rule, doc)
#include "cukern/ops.def"
#undef CUKERN_OP
    {"var", as_method(spread_function<false>), METH_VARARGS | METH_KEYWORDS,
     CUKERN_SPREAD_DOC("var", "Variance.")},
    {"std", as_method(spread_function<true>), METH_VARARGS | METH_KEYWORDS,
     CUKERN_SPREAD_DOC("std", "Standard deviation: the root of the variance.")},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
