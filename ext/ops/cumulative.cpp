// cumulative_sum and cumulative_prod: parse, view, check, launch, return.
#include "base/python.h"

#include "array/array.h"
#include "base/methods.h"
#include "base/signature.h"
#include "call/arguments.h"
#include "call/result.h"
#include "ops/operations.h"
#include "types/element_types.h"
#include "view/shapes.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

struct Given {
    PyObject *object = nullptr;
    PyObject *axis = nullptr;
    PyObject *dtype = nullptr;
    bool include_initial = false;
    PyObject *out = nullptr;
    PyObject *stream = nullptr;
};

bool find_axis(const ModuleState &state, const char *function, const Operand &a, PyObject *given,
               int *axis) noexcept {
    const int ndim = a.view().immediate ? 0 : a.view().ndim;
    *axis = 0;
    int count = 0;
    if (ndim == 0) {
        PyErr_Format(PyExc_ValueError, "%s: a has no dimensions; it needs at least one", function);
        return false;
    }
    if (given != nullptr) {
        int axes[kMaxDims];
        if (!parse_axes(state, function, given, ndim, axes, &count)) return false;
        if (count == 1 && PyTuple_Check(given) == 0) {
            *axis = axes[0];
            return true;
        }
        PyErr_Format(PyExc_TypeError, "%s: axis is %R; expected one int", function, given);
        return false;
    }
    if (ndim == 1) return true;
    PyErr_Format(PyExc_ValueError, "%s: a has %d dimensions; say which one by axis=", function, ndim);
    return false;
}

// That of the table's sum and prod, or the one asked for. Integers and bools are computed in 64 bits.
bool find_type(const ModuleState &state, const char *function, Op op, ElementType type, PyObject *dtype,
               ElementType *result, ElementType *compute) noexcept {
    *result = compute_type(op, type, type);
    if (dtype != nullptr && !parse_dtype(state, function, dtype, result)) return false;
    *compute = compute_type(op, *result, *result);
    if (dtype == nullptr && *result == ElementType::bool_) *result = *compute;
    return true;
}

// The elements of a view from `begin` on along one dimension.
TensorView part_of(const TensorView &view, int axis, std::int64_t begin, std::int64_t length) noexcept {
    TensorView part = view;
    part.data = static_cast<char *>(view.data) + begin * view.strides[axis] * size_of(view.type);
    part.shape[axis] = length;
    return part;
}

Status fill(const Execution &where, const TensorView &out, bool value) noexcept {
    TensorView one;
    one.type = ElementType::uint8;
    one.immediate = true;
    one.value = {};
    one.value.bytes[0] = value ? 1 : 0;
    ElementwiseCall call;
    call.inputs[0] = &one;
    call.out = &out;
    return elementwise(call, where);
}

// As in NumPy: of bool, whether any element up to each holds (sum), or all do (prod). They are counted, and
// multiplied, as bools.
bool as_bools(ModuleState &state, const char *function, const Given &given, PyRef *bools) noexcept {
    if (!is_given(given.dtype)) return true;
    ElementType type;
    if (!parse_dtype(state, function, given.dtype, &type)) return false;
    if (type != ElementType::bool_) return true;
    const TemporaryArrays scope;
    *bools = PyRef::steal(run_cast(state, function, given.object, type, nullptr, given_or_null(given.stream)));
    return static_cast<bool>(*bools);
}

PyObject *run(ModuleState &state, Op op, const char *function, const Given &given) noexcept {
    const Request request{state, function, given_or_null(given.out), given_or_null(given.stream)};
    Backend backend;
    ReadContext reading;
    if (!begin_call(state, request, &backend, reading)) return nullptr;
    PyRef bools;
    Operand a;
    if (!as_bools(state, function, given, &bools) ||
        !a.read({state, function, "a"}, bools ? bools.get() : given.object, reading))
        return nullptr;
    reading.ran_code = reading.ran_code || may_run_code(given.axis) || may_run_code(given.dtype);
    ScanCall call;
    call.op = op;
    ElementType type;
    if (!find_axis(state, function, a, given_or_null(given.axis), &call.axis) ||
        !find_type(state, function, op, a.type(), given_or_null(given.dtype), &type, &call.compute))
        return nullptr;
    Shape shape(a.view().ndim, a.view().shape);
    if (given.include_initial) ++shape.lengths[call.axis];
    Operand *const operands[] = {&a};
    Result result;
    if (!result.prepare(request, shape, type, operands, 1, Overlap::none_allowed, reading, &a.view()))
        return nullptr;

    const std::int64_t first = given.include_initial ? 1 : 0;
    const TensorView initial = part_of(result.view(), call.axis, 0, first);
    const TensorView out = part_of(result.view(), call.axis, first, shape.lengths[call.axis] - first);
    call.result = type;
    call.inputs[0] = &a.view();
    call.out = &out;
    return result.perform(request, backend, operands, 1, call, [&](const Execution &where) {
        const Status status = fill(where, initial, op == Op::prod);
        return status == CUKERN_OK ? scan(call, where) : status;
    });
}

#define CUKERN_CUMULATIVE "(a, /, *, axis=None, dtype=None, include_initial=False, out=None, stream=None)"

PyObject *parse_and_run(Op op, const char *function, PyObject *module, PyObject *const *values, Py_ssize_t count,
                        PyObject *names) noexcept {
    static constexpr Signature kSignature(CUKERN_CUMULATIVE);
    PyObject *arguments[Signature::kMost];
    bool include_initial = false;
    if (!kSignature.parse(function, nullptr, values, count, names, arguments) ||
        !parse_flag(arguments[3], &include_initial))
        return nullptr;
    return run(state_of(module), op, function,
               {arguments[0], arguments[1], arguments[2], include_initial, arguments[4], arguments[5]});
}

PyObject *cumulative_sum(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return parse_and_run(Op::sum, "cumulative_sum", module, values, count, names);
}

PyObject *cumulative_prod(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return parse_and_run(Op::prod, "cumulative_prod", module, values, count, names);
}

}  // namespace

#define CUKERN_CUMULATIVE_DOC(name, summary, identity, example)                                               \
    name CUKERN_CUMULATIVE                                                                                    \
        "\n--\n\n" summary                                                                                    \
        "\n\nParameters\n----------\n"                                                                        \
        "a : Array, ndarray, another library's array, or buffer\n    Of at least one dimension.\n"            \
        "axis : int, optional\n    The dimension along which; it may be left out where there is only one.\n"  \
        "dtype : optional\n    What is returned; of bool, whether any (sum) or all (prod) so far hold.\n"     \
        "include_initial : bool\n    Whether " identity                                                       \
        " comes first, so that the result is longer by one.\n"                                                \
        "out : array of any kind, or writable buffer, optional\n"                                             \
        "    Takes the result, and is returned. It shares no memory with `a`.\n"                              \
        "stream : Stream, object with __cuda_stream__, or int, optional\n    Where the work runs.\n"          \
        "\nReturns\n-------\narray of the kind of `a`, or `out`\n"                                            \
        "    Of element type that of `a`; bool and signed integers give int64, unsigned ones uint64.\n"       \
        "\nRaises\n------\n"                                                                                  \
        "TypeError\n    The operand is no array; or `out` cannot take the result's element type.\n"           \
        "ValueError\n    There is no such dimension, or several and no `axis`; `out` has another shape, or\n" \
        "    overlaps `a`.\n"                                                                                 \
        "\nExamples\n--------\n>>> import numpy, cukern\n" example

PyMethodDef kCumulativeMethods[] = {
    {"cumulative_sum", as_method(cumulative_sum), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_CUMULATIVE_DOC("cumulative_sum", "Running sums along one dimension.", "a zero",
                           ">>> cukern.cumulative_sum(numpy.arange(4))\narray([0, 1, 3, 6])\n")},
    {"cumulative_prod", as_method(cumulative_prod), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_CUMULATIVE_DOC("cumulative_prod", "Running products along one dimension.", "a one",
                           ">>> cukern.cumulative_prod(numpy.arange(1, 4), include_initial=True)\n"
                           "array([1, 1, 2, 6])\n")},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
