// Reductions: parse, view, check, launch, return.
#include "base/python.h"

#include "array/array.h"

#include <algorithm>

#include "base/methods.h"
#include "base/signature.h"
#include "call/arguments.h"
#include "call/result.h"
#include "call/traced.h"
#include "ops/operations.h"
#include "types/element_types.h"
#include "view/shapes.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

// The axes to reduce, and the result's shape: with keepdims reduced axes have length 1.
struct Plan {
    bool reduced[kMaxDims] = {};
    std::int64_t count = 1;  // of the elements of one result
    Shape shape;
};

bool make_plan(const ModuleState &state, const char *function, Op op, const TensorView &view,
               const ReductionOptions &given, Plan *plan) noexcept {
    if (is_given(given.axis)) {
        int axes[kMaxDims];
        int count = 0;
        if (!parse_axes(state, function, given.axis, view.ndim, axes, &count)) return false;
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
            if (given.keepdims) plan->shape.lengths[plan->shape.ndim++] = 1;
        } else {
            plan->shape.lengths[plan->shape.ndim++] = view.shape[d];
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
    if (op != Op::mean || kind == 'f' || kind == 'c') return true;
    PyErr_Format(PyExc_TypeError, "mean: dtype is %s; a mean is of a floating or complex type", name_of(*compute));
    return false;
}

// As in NumPy: a sum of bool is whether any element holds, a product whether all do.
bool find_logical(const ModuleState &state, Op *op, ReductionOptions *given) noexcept {
    if ((*op != Op::sum && *op != Op::prod) || !is_given(given->dtype)) return true;
    ElementType type;
    if (!parse_dtype(state, info(*op).name, given->dtype, &type)) return false;
    if (type != ElementType::bool_) return true;
    *op = *op == Op::sum ? Op::any : Op::all;
    given->dtype = nullptr;
    return true;
}

// An operand's dimensions as those of the result, whose memory order is the same.
void order_of(const TensorView &view, const Plan &plan, bool keepdims, TensorView *order) noexcept {
    order->ndim = 0;
    for (int d = 0; d < view.ndim; ++d) {
        if (plan.reduced[d] && !keepdims) continue;
        order->shape[order->ndim] = plan.reduced[d] ? 1 : view.shape[d];
        order->strides[order->ndim++] = view.strides[d];
    }
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

}  // namespace

PyObject *run_reduction(ModuleState &state, Op op, PyObject *object, const ReductionOptions &asked) noexcept {
    const char *const function = info(op).name;
    ReductionOptions given = asked;
    if (!find_logical(state, &op, &given)) return nullptr;
    const Request request{state, function, is_given(given.out) ? given.out : nullptr,
                          is_given(given.stream) ? given.stream : nullptr};
    Backend backend;
    ReadContext reading;
    if (!begin_call(state, request, &backend, reading)) return nullptr;
    Operand a;
    if (!a.read({state, function, "a"}, object, reading)) return nullptr;
    reading.ran_code = reading.ran_code || may_run_code(given.axis) || may_run_code(given.dtype);
    const ElementType type = a.weak() == Weak::none ? a.type() : weak_type(a.weak());
    ElementType compute;
    Plan plan;
    if (!a.resolve(type) || !make_plan(state, function, op, a.view(), given, &plan) ||
        !find_type(state, op, type, given.dtype, &compute))
        return nullptr;
    Operand *const operands[] = {&a};
    Result result;
    const bool may_order = plan.shape.ndim > 1 && request.out == nullptr;
    TensorView order;
    if (may_order) order_of(a.view(), plan, given.keepdims, &order);
    if (!result.prepare(request, plan.shape, result_type(op, compute), operands, 1, Overlap::none_allowed, reading,
                        may_order ? &order : nullptr))
        return nullptr;

    const TensorView out = kept_view(result.view(), plan, given.keepdims);
    ReduceCall call;
    call.op = op;
    call.compute = compute;
    call.correction = given.correction;
    call.inputs[0] = &a.view();
    std::copy_n(plan.reduced, kMaxDims, call.reduced);
    call.out = &out;
    return result.perform(request, backend, operands, 1, call,
                          [&](const Execution &where) { return reduce(call, where); });
}

namespace {

// --- parsing ---

constexpr bool takes_dtype(Op op) noexcept {
    return info(op).rule == ResultRule::summed || info(op).rule == ResultRule::floating;
}

// Of a function, or of a method: `self` is the array then.
PyObject *parse_and_run(ModuleState &state, Op op, PyObject *self, PyObject *const *values, Py_ssize_t count,
                        PyObject *names) noexcept {
    static constexpr Signature kWithType(CUKERN_REDUCTION_PARAMETERS("a", summed));
    static constexpr Signature kWithCorrection(CUKERN_REDUCTION_PARAMETERS("a", variance));
    static constexpr Signature kWithout(CUKERN_REDUCTION_PARAMETERS("a", promoted));
    const bool has_dtype = takes_dtype(op);
    const bool has_correction = info(op).rule == ResultRule::variance;
    const Signature &signature = has_dtype ? kWithType : has_correction ? kWithCorrection : kWithout;
    PyObject *arguments[Signature::kMost];
    if (!signature.parse(info(op).name, self, values, count, names, arguments)) return nullptr;
    PyObject *const *rest = arguments + (has_dtype || has_correction ? 3 : 2);
    ReductionOptions given;
    given.axis = arguments[1];
    given.dtype = has_dtype ? arguments[2] : nullptr;
    if (has_correction && arguments[2] != nullptr) {
        given.correction = PyFloat_AsDouble(arguments[2]);
        if (given.correction == -1 && PyErr_Occurred() != nullptr) return nullptr;
    }
    given.out = rest[1];
    given.stream = rest[2];
    return parse_flag(rest[0], &given.keepdims) ? run_reduction(state, op, arguments[0], given) : nullptr;
}

template <Op op>
PyObject *function(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    const ModuleState &state = state_of(module);
    PyObject *const result = parse_and_run(state_of(module), op, nullptr, values, count, names);
    return result != nullptr ? result : record_if_traced(state, info(op).name, values, count, names);
}

}  // namespace

PyObject *reduce_array(Op op, PyObject *self, PyObject *const *values, Py_ssize_t count,
                       PyObject *names) noexcept {
    return parse_and_run(state_of_type(self), op, self, values, count, names);
}

#define CUKERN_OPTION_DOC_summed "dtype : optional\n    What is computed in and returned.\n"
#define CUKERN_OPTION_DOC_floating "dtype : optional\n    What is computed in and returned.\n"
#define CUKERN_OPTION_DOC_variance \
    "correction : float\n"         \
    "    The sum of squares is divided by the number of elements less this.\n"
#define CUKERN_OPTION_DOC_promoted ""
#define CUKERN_OPTION_DOC_logical ""
#define CUKERN_OPTION_DOC_index ""
#define CUKERN_TYPE_TEXT_summed "that of `a`; bool and signed integers give int64, unsigned ones uint64"
#define CUKERN_TYPE_TEXT_floating "that of `a`; integers and bool give float64"
#define CUKERN_TYPE_TEXT_promoted "that of `a`"
#define CUKERN_TYPE_TEXT_logical "bool"
#define CUKERN_TYPE_TEXT_variance \
    "that of `a`, of complex numbers that of the parts; integers and bool give float64"
#define CUKERN_TYPE_TEXT_index "int64"

#define CUKERN_REDUCTION_DOC(id, rule, doc)                                                                       \
    #id CUKERN_REDUCTION_PARAMETERS("a", rule) "\n--\n\n" doc                                                     \
                                               "\n\nParameters\n----------\n"                                     \
                                               "a : Array, ndarray, another library's array, buffer, or "         \
                                               "number\n    Of any shape and any strides.\n"                      \
                                               "axis : int or tuple of int, optional\n"                           \
                                               "    The axes to reduce, by default all. An index is "             \
                                               "of one dimension, or of all elements in C\n"                      \
                                               "    order.\n" CUKERN_OPTION_DOC_##rule                            \
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

#define CUKERN_METHOD_binary(id, rule, doc)
#define CUKERN_METHOD_scalar(id, rule, doc)
#define CUKERN_METHOD_unary(id, rule, doc)
#define CUKERN_METHOD_choice(id, rule, doc)
#define CUKERN_METHOD_axpy(id, rule, doc)
#define CUKERN_METHOD_reduction(id, rule, doc) \
    {#id, as_method(function<Op::id>), METH_FASTCALL | METH_KEYWORDS, CUKERN_REDUCTION_DOC(id, rule, doc)},

PyMethodDef kReductionMethods[] = {
#define CUKERN_OP(id, kind, types, rule, doc) CUKERN_METHOD_##kind(id, rule, doc)
#include "cukern/ops.def"
#undef CUKERN_OP
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
