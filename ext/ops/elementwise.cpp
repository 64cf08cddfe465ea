// The elementwise functions of the table: parse, view, check, launch, return.
#include "base/python.h"

#include <cstring>
#include <optional>

#include "array/array.h"
#include "base/methods.h"
#include "call/arguments.h"
#include "call/brief_calls.h"
#include "call/planned_calls.h"
#include "call/result.h"
#include "call/traced.h"
#include "ops/operations.h"

#include "cukern/operations.h"

namespace cukern::py {

namespace {

Types types_of(const Operand &a) noexcept {
    const ElementType type = a.weak() == Weak::none ? a.type() : weak_type(a.weak());
    return {type, type};
}

// Where comparing in the promoted type would round: a number that the integers beside it cannot hold lies beyond
// all of them, and int64 beside uint64 is compared in halves (see formulas/evaluate.cuh).
ElementType comparison_type(const Types &types, const Operand &a, const Operand &b) noexcept {
    const ElementType promoted = types.promoted();
    if (!a.fits(promoted) || !b.fits(promoted)) return ElementType::float64;
    const bool strong = a.weak() == Weak::none && b.weak() == Weak::none;
    const bool halves = strong && promoted == ElementType::float64 && is_integer(a.type()) && is_integer(b.type());
    return halves ? ElementType::complex128 : promoted;
}

bool check_type(Op op, const Types &types, ElementType compute) noexcept {
    if (takes(op, compute)) return true;
    PyErr_Format(PyExc_TypeError, "%s: not defined for element type %s; convert first, as by x.astype('%s')",
                 info(op).name, name_of(types.promoted()),
                 kind_of(compute) == 'b' || info(op).types == TypeSet::bits ? "int8" : "float32");
    return false;
}

// Gives a Python number its value in the type that the operation computes in; tests and logic, which compute in
// bool, look at it in its own.
bool resolve(Op op, const Types &types, ElementType compute, Operand &operand) noexcept {
    if (operand.weak() == Weak::none) return true;
    if (is_comparison(op) && !operand.fits(types.promoted())) {
        operand.resolve_to_infinity();
        return true;
    }
    return operand.resolve(compute);
}

bool check_factor(const char *function, const Operand &factor) noexcept {
    if (factor.view().immediate) return true;
    PyErr_Format(PyExc_TypeError, "%s: factor is an array; the factor is one number (multiply() takes two arrays)",
                 function);
    return false;
}

// `cast`: the element type to copy to, for Op::positive; null for all others.
PyObject *run(ModuleState &state, const char *function, Op op, PyObject *first, PyObject *other,
              const ElementType *cast, PyObject *out, PyObject *given_stream) noexcept {
    const Request request{state, function, out, given_stream};
    Backend backend;
    ReadContext reading;
    if (!begin_call(state, request, &backend, reading)) return nullptr;

    Operand a;
    Operand b;
    const int count = arity(op);
    const bool is_scalar = info(op).kind == OpKind::scalar;
    if (!a.read({state, function, "a"}, first, reading)) return nullptr;
    if (count > 1 && !b.read({state, function, is_scalar ? "factor" : "b"}, other, reading)) return nullptr;
    if (is_scalar && !check_factor(function, b)) return nullptr;
    const Types types = count > 1 ? py::types_of(a, b) : types_of(a);
    const ElementType compute =
        is_comparison(op) ? comparison_type(types, a, b) : compute_type(op, types.a, types.b);
    if (cast == nullptr && !check_type(op, types, compute)) return nullptr;
    if (is_comparison(op) && a.weak() == Weak::integer && b.weak() == Weak::integer) {
        if (!a.resolve_compared(b)) return nullptr;
    } else if (!resolve(op, types, compute, a) || (count > 1 && !resolve(op, types, compute, b))) {
        return nullptr;
    }
    Shape shape(a.view().ndim, a.view().shape);
    if (count > 1 && !broadcast_onto(function, a, b, &shape)) return nullptr;
    Operand *const operands[] = {&a, &b};
    Result result;
    if (!result.prepare(request, shape, cast != nullptr ? *cast : result_type(op, compute), operands, count,
                        Overlap::same_allowed, reading))
        return nullptr;

    ElementwiseCall call;
    call.op = op;
    call.compute = compute;
    call.inputs[0] = &a.view();
    call.inputs[1] = count > 1 ? &b.view() : nullptr;
    call.out = &result.view();
    PyObject *const done = result.perform(request, backend, operands, count, call,
                                          [&](const Execution &where) { return elementwise(call, where); });
    const bool may_repeat = a.family() == Family::array || a.family() == Family::exchange;
    if (may_repeat && done != nullptr && cast == nullptr && given_stream == nullptr)
        keep_plan(state, backend, PlannedFunction(op), call, result.view(), operands, count, done, out == nullptr);
    return done;
}

}  // namespace

[[gnu::hot]] PyObject *run_elementwise(ModuleState &state, Op op, PyObject *first, PyObject *other, PyObject *out,
                                       PyObject *given_stream) noexcept {
    PyObject *const operands[] = {first, other};
    PyObject *result = nullptr;
    if (given_stream == nullptr && state.plans != nullptr && !PyArray_CheckExact(first) &&
        run_planned(state, PlannedFunction(op), operands, arity(op), out, &result))
        return result;
    if (given_stream == nullptr && info(op).kind != OpKind::scalar &&
        run_brief(state, op, operands, arity(op), out, &result))
        return result;
    return run(state, info(op).name, op, first, other, nullptr, out, given_stream);
}

PyObject *run_cast(ModuleState &state, const char *function, PyObject *object, ElementType type, PyObject *out,
                   PyObject *given_stream) noexcept {
    std::optional<TemporaryArrays> scope;
    if (out != nullptr) scope.emplace();
    PyRef result = PyRef::steal(run(state, function, Op::positive, object, nullptr, &type, nullptr, given_stream));
    if (!result || out == nullptr) return result.release();
    // `out` may have another type: it takes the values that `type` has made of them.
    return run(state, function, Op::positive, result.get(), nullptr, &type, out, given_stream);
}

PyObject *run_copy(ModuleState &state, const char *function, PyObject *object, PyObject *out,
                   PyObject *given_stream) noexcept {
    return run(state, function, Op::positive, object, nullptr, nullptr, out, given_stream);
}

namespace {

[[gnu::hot]] PyObject *call_elementwise(Op op, PyObject *module, PyObject *const *values, Py_ssize_t count,
                                        PyObject *names) noexcept {
    ModuleState &state = state_of(module);
    Arguments arguments;
    if (!parse_arguments(state, info(op).name, arity(op), values, count, names, &arguments)) return nullptr;
    PyObject *const result = run_elementwise(state, op, arguments.positional[0], arguments.positional[1],
                                             arguments.out, arguments.stream);
    return result != nullptr ? result : record_if_traced(state, info(op).name, values, count, names);
}

template <Op op>
[[gnu::hot]] PyObject *method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return call_elementwise(op, module, values, count, names);
}

// _compute_type(function, a, b=None): the name of the element type that an operation of the table computes in.
PyObject *compute_type_method(PyObject *module, PyObject *args) {
    const char *function = nullptr;
    PyObject *first = nullptr;
    PyObject *other = nullptr;
    if (PyArg_ParseTuple(args, "sO|O:_compute_type", &function, &first, &other) == 0) return nullptr;
    ModuleState &state = state_of(module);
    int row = 0;
    while (row < kNumTableOps && std::strcmp(kOps[row].name, function) != 0) ++row;
    if (row == kNumTableOps) return PyErr_Format(PyExc_ValueError, "_compute_type: no row %s", function);
    const Op op = static_cast<Op>(row);
    Operand a;
    Operand b;
    ReadContext reading;
    if (!a.read({state, function, "a"}, first, reading)) return nullptr;
    if (other != nullptr && !b.read({state, function, "b"}, other, reading)) return nullptr;
    const Types types = other != nullptr ? py::types_of(a, b) : types_of(a);
    const ElementType compute =
        is_comparison(op) ? comparison_type(types, a, b) : compute_type(op, types.a, types.b);
    return PyUnicode_FromString(name_of(compute));
}

PyRef row_of(const OpInfo &op) noexcept {
    return PyRef::steal(Py_BuildValue("{s:s,s:s,s:s,s:s,s:s}", "name", op.name, "kind", name_of(op.kind), "types",
                                      name_of(op.types), "rule", name_of(op.rule), "doc", op.doc));
}

}  // namespace

#define CUKERN_SIGNATURE_TEXT_binary "(a, b, /, *, out=None, stream=None)\n--\n\n"
#define CUKERN_SIGNATURE_TEXT_scalar "(a, factor, /, *, out=None, stream=None)\n--\n\n"

#define CUKERN_SIGNATURE_TEXT_unary "(a, /, *, out=None, stream=None)\n--\n\n"

#define CUKERN_OPERANDS_TEXT_unary                                     \
    "a : Array, ndarray, another library's array, buffer, or number\n" \
    "    Operand of any shape and any strides.\n"
#define CUKERN_OPERANDS_TEXT_binary                                                           \
    "a, b : Array, ndarray, another library's array, buffer, or number\n"                     \
    "    Operands of any shapes that broadcast and any strides. A Python scalar adopts the\n" \
    "    element type of the other operand.\n"
#define CUKERN_OPERANDS_TEXT_scalar                            \
    "a : Array, ndarray, another library's array, or buffer\n" \
    "    Operand of any shape and any strides.\n"              \
    "factor : number or zero-dimensional array\n"              \
    "    A Python scalar adopts the element type of `a`.\n"

// By the result rule, for one operand and for two.
#define CUKERN_PROMOTED_TEXT_unary "that of the operand"
#define CUKERN_PROMOTED_TEXT_scalar CUKERN_PROMOTED_TEXT_binary
#define CUKERN_PROMOTED_TEXT_binary "the promoted type of the operands, as in NumPy 2"
#define CUKERN_RESULT_TEXT_boolean(promoted) "bool"
#define CUKERN_RESULT_TEXT_test(promoted) "bool"
#define CUKERN_RESULT_TEXT_sign(promoted) "bool"
#define CUKERN_RESULT_TEXT_logical(promoted) "bool"
#define CUKERN_RESULT_TEXT_promoted(promoted) promoted
#define CUKERN_RESULT_TEXT_arithmetic(promoted) promoted "; bool counts as int8"
#define CUKERN_RESULT_TEXT_rounded(promoted) promoted "; bool gives float16"
#define CUKERN_RESULT_TEXT_component(promoted) promoted "; complex numbers give that of their parts"
#define CUKERN_RESULT_TEXT_floating(promoted) promoted "; integers and bool give float64"
#define CUKERN_RESULT_TEXT_sized(promoted) \
    promoted ";\n    bool and integers of 8 bits give float16, of 16 bits float32, wider ones float64"

// The element types that are taken, where they are not all.
#define CUKERN_TYPES_TEXT_any ""
#define CUKERN_TYPES_TEXT_real "    Complex numbers are not taken.\n"
#define CUKERN_TYPES_TEXT_numeric "    bool is not taken.\n"
#define CUKERN_TYPES_TEXT_inexact ""
#define CUKERN_TYPES_TEXT_floating "    Complex numbers are not taken.\n"
#define CUKERN_TYPES_TEXT_bits "    Integers and bool are taken.\n"
#define CUKERN_TYPES_TEXT_integers "    Integers and bool are taken.\n"
#define CUKERN_TYPES_TEXT_boolean ""

#define CUKERN_EXAMPLE_TEXT_unary(name)        \
    ">>> a = numpy.ones((2, 3), numpy.int8)\n" \
    ">>> cukern." name                         \
    "(a).shape\n"                              \
    "(2, 3)\n"
#define CUKERN_EXAMPLE_TEXT_binary(name)       \
    ">>> a = numpy.ones((2, 3), numpy.int8)\n" \
    ">>> cukern." name                         \
    "(a, numpy.ones(3, numpy.int8)).shape\n"   \
    "(2, 3)\n"
#define CUKERN_EXAMPLE_TEXT_scalar(name)          \
    ">>> a = numpy.ones((2, 3), numpy.float32)\n" \
    ">>> cukern." name                            \
    "(a, 2.0, out=a) is a\n"                      \
    "True\n"

#define CUKERN_ELEMENTWISE_DOC(id, kind, types, rule, doc) \
    #id CUKERN_SIGNATURE_TEXT_##kind doc "\n\nParameters\n----------\n" CUKERN_OPERANDS_TEXT_##kind CUKERN_TYPES_TEXT_##types        \
        "out : array of any kind, or writable buffer, optional\n"                                          \
        "    Takes the result, and is returned. It has the result's shape and an element type that\n"      \
        "    'same_kind' casting reaches. It may be exactly an operand; else it must not overlap one.\n"   \
        "stream : Stream, object with __cuda_stream__, or int, optional\n"                                 \
        "    Where the work runs; by default the innermost active ``with Stream()``, else the current\n"   \
        "    stream of the operands' library, else the legacy default stream.\n"                           \
        "\nReturns\n-------\n"                                                                             \
        "array of the kind of the first array operand, or `out`\n"                                         \
        "    Its shape is that to which the operands broadcast; its element type is\n"                     \
        "    " CUKERN_RESULT_TEXT_##rule(CUKERN_PROMOTED_TEXT_##kind)                                                                   \
        ".\n"                                                                                              \
        "\nRaises\n------\n"                                                                               \
        "TypeError\n"                                                                                      \
        "    An operand is no array or number; or `out` cannot take the result's element type.\n"          \
        "ValueError\n"                                                                                     \
        "    Shapes do not broadcast; or `out` has another shape, is read-only, or overlaps an operand.\n" \
        "OverflowError\n"                                                                                  \
        "    A Python integer is out of the bounds of the element type.\n"                                 \
        "CudaError\n"                                                                                      \
        "    A call of CUDA failed.\n"                                                                     \
        "\nExamples\n--------\n"                                                                           \
        ">>> import numpy, cukern\n" CUKERN_EXAMPLE_TEXT_##kind(#id)

#define CUKERN_METHOD_binary(id, kind, types, rule, doc)            \
    {#id, as_method(method<Op::id>), METH_FASTCALL | METH_KEYWORDS, \
     CUKERN_ELEMENTWISE_DOC(id, kind, types, rule, doc)},
#define CUKERN_METHOD_scalar CUKERN_METHOD_binary
#define CUKERN_METHOD_unary CUKERN_METHOD_binary
#define CUKERN_METHOD_reduction(id, kind, types, rule, doc)  // in reductions.cpp
#define CUKERN_METHOD_choice(id, kind, types, rule, doc)     // in where.cpp, as is the next
#define CUKERN_METHOD_axpy(id, kind, types, rule, doc)

PyMethodDef kElementwiseMethods[] = {
#define CUKERN_OP(id, kind, types, rule, doc) CUKERN_METHOD_##kind(id, kind, types, rule, doc)
#include "cukern/ops.def"
#undef CUKERN_OP
    {"_compute_type", compute_type_method, METH_VARARGS,
     "_compute_type(function, a, b=None, /)\n--\n\nReturn the element type that an operation computes in."},
    {nullptr, nullptr, 0, nullptr},
};

PyObject *make_table() noexcept {
    PyRef table = PyRef::steal(PyTuple_New(kNumTableOps));
    for (int i = 0; table && i < kNumTableOps; ++i) {
        PyRef row = row_of(kOps[i]);
        if (!row || PyTuple_SetItem(table.get(), i, row.release()) != 0) return nullptr;
    }
    return table.release();
}

}  // namespace cukern::py
