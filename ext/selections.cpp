// where, axpy and clip: parse, view, check, launch, return.
#include "python.h"

#include "arguments.h"
#include "errors.h"
#include "methods.h"
#include "result.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

bool check_factor(const Operand &factor) noexcept {
    if (factor.view().immediate) return true;
    PyErr_SetString(PyExc_TypeError, "axpy: a is an array; the factor is one number");
    return false;
}

// The first operand is a condition, whose type counts for nothing, or a factor, which a Python number is as a
// rule.
bool find_types(Op op, Operand &control, const Operand &a, const Operand &b, ElementType *compute) noexcept {
    const ElementType promoted = types_of(a, b).promoted();
    if (op == Op::where) {
        *compute = promoted;
        return control.weak() == Weak::none || control.resolve(ElementType::bool_);
    }
    *compute = control.weak() == Weak::none ? promote(control.type(), promoted) : beside(promoted, control.weak());
    return control.resolve(*compute);
}

PyObject *run(ModuleState &state, Op op, const Arguments &arguments) noexcept {
    const char *const function = info(op).name;
    const Request request{state, function, arguments.out, arguments.stream};
    Backend backend;
    Reading reading;
    if (!ensure_backend(state, function, &backend) || !consumer_of(request, &reading.consumer)) return nullptr;
    const bool chooses = op == Op::where;
    Operand control;
    Operand a;
    Operand b;
    if (!control.read({state, function, chooses ? "condition" : "a"}, arguments.positional[0], reading) ||
        !a.read({state, function, chooses ? "a" : "x"}, arguments.positional[1], reading) ||
        !b.read({state, function, chooses ? "b" : "y"}, arguments.positional[2], reading) ||
        (!chooses && !check_factor(control)))
        return nullptr;
    ElementType compute;
    if (!find_types(op, control, a, b, &compute) || !a.resolve(compute) || !b.resolve(compute)) return nullptr;
    Shape shape(control.view().ndim, control.view().shape);
    if (!broadcast_onto(function, control, a, &shape) || !broadcast_onto(function, a, b, &shape)) return nullptr;
    Operand *const operands[] = {&control, &a, &b};
    Operand *const arrays[] = {&a, &b, &control};  // the first array decides on the kind of the result
    Result result;
    if (!result.prepare(request, shape, compute, arrays, 3, Overlap::same_allowed, reading) ||
        !result.begin(request, operands, 3))
        return nullptr;

    ElementwiseCall call;
    call.op = op;
    call.compute = compute;
    for (int i = 0; i < 3; ++i) call.inputs[i] = &operands[i]->view();
    call.out = &result.view();
    const auto launch = [&] {
        return result.site().on_device ? elementwise(call, result.site().stream) : elementwise_on_host(call);
    };
    if (!result.compute(request, backend, launch)) return nullptr;
    return result.end(request, operands, 3) ? result.finish(state) : nullptr;
}

template <Op op>
PyObject *method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    ModuleState &state = state_of(module);
    Arguments arguments;
    if (!parse_arguments(state, info(op).name, 3, values, count, names, &arguments)) return nullptr;
    return run(state, op, arguments);
}

// minimum(maximum(a, min), max), as in NumPy, where either may be None.
PyObject *clip_method(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"", "min", "max", "out", "stream", nullptr};
    PyObject *a = nullptr;
    PyObject *least = Py_None;
    PyObject *most = Py_None;
    PyObject *out = Py_None;
    PyObject *stream = Py_None;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O|OO$OO:clip", const_cast<char **>(names), &a, &least, &most,
                                    &out, &stream) == 0)
        return nullptr;
    ModuleState &state = state_of(module);
    PyObject *const target = Py_IsNone(out) != 0 ? nullptr : out;
    PyObject *const order = Py_IsNone(stream) != 0 ? nullptr : stream;
    const bool has_least = Py_IsNone(least) == 0;
    const bool has_most = Py_IsNone(most) == 0;
    if (!has_least && !has_most) return run_elementwise(state, Op::maximum, a, a, target, order);  // a copy
    if (!has_most) return run_elementwise(state, Op::maximum, a, least, target, order);
    if (!has_least) return run_elementwise(state, Op::minimum, a, most, target, order);
    const PyRef raised = PyRef::steal(run_elementwise(state, Op::maximum, a, least, nullptr, order));
    return raised ? run_elementwise(state, Op::minimum, raised.get(), most, target, order) : nullptr;
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

PyMethodDef kSelectionMethods[] = {
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
    {"clip", as_method(clip_method), METH_VARARGS | METH_KEYWORDS,
     "clip(a, /, min=None, max=None, *, out=None, stream=None)\n--\n\n"
     "Elements no less than `min` and no more than `max`; where both cannot be, `max`.\n\n"
     "Parameters\n----------\na : Array, ndarray, another library's array, buffer, or number\n"
     "min, max : the same, or None\n    Without either the elements are copied.\n" CUKERN_SELECTION_TEXT
     ">>> cukern.clip(numpy.arange(4), 1, 2)\narray([1, 1, 2, 2])\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
