// where, axpy and clip: parse, view, check, launch, return.
#include "base/python.h"

#include <algorithm>
#include <limits>

#include "base/methods.h"
#include "base/signature.h"
#include "call/arguments.h"
#include "call/result.h"
#include "call/traced.h"
#include "ops/operations.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

bool check_factor(const Operand &factor) noexcept {
    if (factor.view().immediate) return true;
    PyErr_SetString(PyExc_TypeError, "axpy: a is an array; the factor is one number");
    return false;
}

// The type of several operands at once; Python scalars adopt the arrays'.
ElementType common_type(std::initializer_list<const Operand *> operands) noexcept {
    ElementType types[kMaxInputs];
    int count = 0;
    Weak weak = Weak::none;
    for (const Operand *operand : operands) {
        if (operand->weak() == Weak::none)
            types[count++] = operand->type();
        else
            weak = std::max(weak, operand->weak());
    }
    return count > 0 ? promote_weak(promote_all(types, count), weak) : weak_type(weak);
}

// The names of the operands.
struct Names {
    const char *control;
    const char *a;
    const char *b;
};

constexpr Names names_of(Op op) {
    switch (op) {
        case Op::where: return {"condition", "a", "b"};
        case Op::clip: return {"a", "min", "max"};
        default: return {"a", "x", "y"};
    }
}

// The first operand is a condition, whose type counts for nothing, a factor, or what is clipped.
bool find_types(Op op, Operand &control, const Operand &a, const Operand &b, ElementType *compute) noexcept {
    if (op == Op::clip && control.weak() != Weak::none) {  // a number, whose type counts, as in NumPy
        *compute = promote(weak_type(control.weak()), common_type({&a, &b}));
        return control.resolve(*compute);
    }
    if (op != Op::where) {
        *compute = common_type({&control, &a, &b});
        return control.resolve(*compute);
    }
    *compute = common_type({&a, &b});
    return control.weak() == Weak::none || control.resolve(ElementType::bool_);
}

PyObject *run(ModuleState &state, Op op, PyObject *const *objects, PyObject *out, PyObject *stream) noexcept {
    const char *const function = info(op).name;
    const Request request{state, function, out, stream};
    Backend backend;
    ReadContext reading;
    if (!begin_call(state, request, &backend, reading)) return nullptr;
    const Names names = names_of(op);
    Operand control;
    Operand a;
    Operand b;
    if (!control.read({state, function, names.control}, objects[0], reading) ||
        !a.read({state, function, names.a}, objects[1], reading) ||
        !b.read({state, function, names.b}, objects[2], reading) || (op == Op::axpy && !check_factor(control)))
        return nullptr;
    ElementType compute;
    if (!find_types(op, control, a, b, &compute) || !a.resolve(compute) || !b.resolve(compute)) return nullptr;
    Shape shape(control.view().ndim, control.view().shape);
    if (!broadcast_onto(function, control, a, &shape) || !broadcast_onto(function, a, b, &shape)) return nullptr;
    // What decides the result's kind comes first: not a condition, nor a factor.
    Operand *clipped[] = {&control, &a, &b};
    Operand *values[] = {&a, &b, &control};
    Operand *const *const operands = op == Op::clip ? clipped : values;
    Result result;
    if (!result.prepare(request, shape, compute, operands, 3, Overlap::same_allowed, reading)) return nullptr;

    ElementwiseCall call;
    call.op = op;
    call.compute = compute;
    call.inputs[0] = &control.view();
    call.inputs[1] = &a.view();
    call.inputs[2] = &b.view();
    call.out = &result.view();
    return result.perform(request, backend, operands, 3, call,
                          [&](const Execution &where) { return elementwise(call, where); });
}

template <Op op>
PyObject *method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    ModuleState &state = state_of(module);
    Arguments arguments;
    if (!parse_arguments(state, info(op).name, 3, values, count, names, &arguments)) return nullptr;
    PyObject *const result = run(state, op, arguments.positional, arguments.out, arguments.stream);
    return result != nullptr ? result : record_if_traced(state, info(op).name, values, count, names);
}

// --- clip ---

struct Bounds {
    PyObject *least;  // null: none
    PyObject *most;
};

// As in NumPy: a Python integer that the integers of `a` cannot go beyond is no bound.
bool drop_loose_bounds(ElementType type, Bounds &bounds) noexcept {
    if (!is_integer(type)) return true;
    const auto beyond = [type](PyObject *bound, bool is_most, bool *loose) {
        *loose = false;
        if (bound == nullptr || !PyLong_CheckExact(bound)) return true;
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(bound, &overflow);
        const int bits = 8 * size_of(type);
        const bool is_signed = kind_of(type) == 'i';
        const long long top = std::numeric_limits<long long>::max() >> (is_signed || bits < 64 ? 64 - bits : 0);
        if (!is_most)
            *loose = overflow < 0 || (overflow == 0 && number <= (is_signed ? -top - 1 : 0));
        else if (is_signed || bits < 64)
            *loose = overflow > 0 || (overflow == 0 && number >= (is_signed ? top : 2 * top + 1));
        else if (overflow > 0)
            *loose = PyLong_AsUnsignedLongLong(bound) == ~0ULL;  // the largest itself, or too large
        PyErr_Clear();
        return true;
    };
    bool loose = false;
    if (beyond(bounds.least, false, &loose) && loose) bounds.least = nullptr;
    if (beyond(bounds.most, true, &loose) && loose) bounds.most = nullptr;
    return true;
}

// minimum(maximum(a, min), max) in the type of all three, as numpy.clip.
PyObject *clip(ModuleState &state, PyObject *object, Bounds bounds, PyObject *out, PyObject *stream) noexcept {
    Description a;
    if (!describe(state, "clip", "a", object, &a) || !drop_loose_bounds(a.type, bounds)) return nullptr;
    if (bounds.least == nullptr && bounds.most == nullptr)
        return run_cast(state, "clip", object, a.type, out, stream);  // a copy
    if (bounds.most == nullptr) return run_elementwise(state, Op::maximum, object, bounds.least, out, stream);
    if (bounds.least == nullptr) return run_elementwise(state, Op::minimum, object, bounds.most, out, stream);
    PyObject *const objects[] = {object, bounds.least, bounds.most};
    return run(state, Op::clip, objects, out, stream);
}

#define CUKERN_CLIP "(a, /, min=None, max=None, *, out=None, stream=None)"

PyObject *clip_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_CLIP);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("clip", nullptr, values, count, names, arguments)) return nullptr;
    const Bounds bounds{given_or_null(arguments[1]), given_or_null(arguments[2])};
    ModuleState &state = state_of(module);
    PyObject *const result =
        clip(state, arguments[0], bounds, given_or_null(arguments[3]), given_or_null(arguments[4]));
    return result != nullptr ? result : record_if_traced(state, "clip", values, count, names);
}

}  // namespace

#define CUKERN_SELECTION_TEXT                                                                                \
    "out : array of any kind, or writable buffer, optional\n    Takes the result, and is returned.\n"        \
    "stream : Stream, object with __cuda_stream__, or int, optional\n    Where the work runs.\n"             \
    "\nReturns\n-------\narray of the kind of the first array operand, or `out`\n"                           \
    "    Of the shape that the operands broadcast to, and the promoted type of the arrays, as in NumPy 2.\n" \
    "\nRaises\n------\nTypeError\n    An operand is no array or number; or `out` cannot take the result.\n"  \
    "ValueError\n    Shapes do not broadcast; or `out` has another shape, or overlaps an operand.\n"         \
    "\nExamples\n--------\n>>> import numpy, cukern\n"

PyMethodDef kWhereMethods[] = {
    {"where", as_method(method<Op::where>), METH_FASTCALL | METH_KEYWORDS,
     "where(condition, a, b, /, *, out=None, stream=None)\n--\n\n"
     "Elements of the first array where a condition holds, else of the second.\n\n"
     "Parameters\n----------\ncondition : array or number\n    Of any element type; what is not zero holds.\n"
     "a, b : Array, ndarray, another library's array, buffer, or number\n" CUKERN_SELECTION_TEXT
     ">>> cukern.where(numpy.array([True, False]), numpy.ones(2), 0)\narray([1., 0.])\n"},
    {"axpy", as_method(method<Op::axpy>), METH_FASTCALL | METH_KEYWORDS,
     "axpy(a, x, y, /, *, out=None, stream=None)\n--\n\n"
     "Multiply an array by one factor and add another array.\n\n"
     "Parameters\n----------\na : number or zero-dimensional array\n"
     "x, y : Array, ndarray, another library's array, buffer, or number\n" CUKERN_SELECTION_TEXT
     ">>> cukern.axpy(2, numpy.ones(2), numpy.ones(2))\narray([3., 3.])\n"},
    {"clip", as_method(clip_method), METH_FASTCALL | METH_KEYWORDS,
     "clip" CUKERN_CLIP "\n--\n\n"
     "Elements no less than `min` and no more than `max`; where both cannot be, `max`.\n\n"
     "Parameters\n----------\na : Array, ndarray, another library's array, buffer, or number\n"
     "min, max : the same, or None\n    Without either the elements are copied.\n" CUKERN_SELECTION_TEXT
     ">>> cukern.clip(numpy.arange(4), 1, 2)\narray([1, 1, 2, 2])\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
