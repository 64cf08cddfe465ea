// The elementwise functions of the table: parse, view, check, launch, return.
#include "python.h"

#include "arguments.h"
#include "errors.h"
#include "methods.h"
#include "result.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

// What a Python number makes of the type of an array beside it (NEP 50).
ElementType beside(ElementType strong, Weak weak) noexcept {
    const char kind = kind_of(strong);
    switch (weak) {
        case Weak::integer: return kind == 'b' ? ElementType::int64 : strong;
        case Weak::real: return kind == 'f' || kind == 'c' ? strong : ElementType::float64;
        case Weak::complex:
            return kind == 'c'                                     ? strong
                   : kind == 'f' && strong != ElementType::float64 ? ElementType::complex64
                                                                   : ElementType::complex128;
        default: return strong;
    }
}

// The operands' promoted type: that of the arrays, then what Python's own numbers make of it.
ElementType promoted_type(const Operand &a, const Operand &b) noexcept {
    if (a.weak() == Weak::none && b.weak() == Weak::none) return promote(a.type(), b.type());
    if (a.weak() == Weak::none) return beside(a.type(), b.weak());
    if (b.weak() == Weak::none) return beside(b.type(), a.weak());
    return beside(beside(ElementType::bool_, a.weak()), b.weak());
}

// Where comparing in the promoted type would round: a number that the integers beside it cannot hold lies beyond
// all of them, and int64 beside uint64 is compared in halves (see functors.cuh).
ElementType comparison_type(Op op, ElementType promoted, const Operand &a, const Operand &b) noexcept {
    if (!is_comparison(op)) return compute_type(op, promoted);
    if (!a.fits(promoted) || !b.fits(promoted)) return ElementType::float64;
    const bool strong = a.weak() == Weak::none && b.weak() == Weak::none;
    const bool halves = strong && promoted == ElementType::float64 && is_integer(a.type()) && is_integer(b.type());
    return halves ? ElementType::complex128 : promoted;
}

bool check_type(Op op, ElementType promoted) noexcept {
    if (takes(op, promoted)) return true;
    PyErr_Format(PyExc_TypeError,
                 "%s: both operands are of element type %s; convert one of them, as by x.astype('int8')",
                 info(op).name, name_of(promoted));
    return false;
}

bool check_factor(const char *function, const Operand &factor) noexcept {
    if (factor.view().immediate) return true;
    PyErr_Format(PyExc_TypeError, "%s: factor is an array; the factor is one number (multiply() takes two arrays)",
                 function);
    return false;
}

}  // namespace

PyObject *run_elementwise(ModuleState &state, Op op, PyObject *first, PyObject *other, PyObject *out,
                          PyObject *given_stream) noexcept {
    const char *const function = info(op).name;
    const Request request{state, function, out, given_stream};
    Backend backend;
    Reading reading;
    if (!ensure_backend(state, function, &backend) || !consumer_of(request, &reading.consumer)) return nullptr;

    Operand a;
    Operand b;
    const char *const second = info(op).kind == OpKind::scalar ? "factor" : "b";
    if (!a.read({state, function, "a"}, first, reading) || !b.read({state, function, second}, other, reading))
        return nullptr;
    if (info(op).kind == OpKind::scalar && !check_factor(function, b)) return nullptr;
    const ElementType promoted = promoted_type(a, b);
    if (!check_type(op, promoted)) return nullptr;
    const ElementType compute = comparison_type(op, promoted, a, b);
    const ElementType type = result_type(op, compute);
    for (Operand *operand : {&a, &b}) {
        if (is_comparison(op) && !operand->fits(promoted))
            operand->resolve_beyond();
        else if (!operand->resolve(compute))
            return nullptr;
    }
    Shape shape;
    if (!broadcast(function, a, b, &shape)) return nullptr;
    Operand *const operands[] = {&a, &b};
    Result result;
    if (!result.prepare(request, shape, type, operands, 2, Overlap::same_allowed, reading)) return nullptr;
    if (!result.begin(request, operands, 2)) return nullptr;

    ElementwiseCall call;
    call.op = op;
    call.compute = compute;
    call.inputs[0] = &a.view();
    call.inputs[1] = &b.view();
    call.out = &result.view();
    Status status = CUKERN_OK;
    if (result.site().on_device && backend == Backend::cuda) {
        status = elementwise(call, result.site().stream);
    } else {
        const GilRelease released;
        status = result.site().on_device ? elementwise(call, result.site().stream) : elementwise_on_host(call);
    }
    if (status == CUKERN_OUT_OF_MEMORY)  // nothing has been written yet
        status = retry_after_collection([&] {
            return result.site().on_device ? elementwise(call, result.site().stream) : elementwise_on_host(call);
        });
    if (status != CUKERN_OK) {
        raise_status(state, function, status);
        return nullptr;
    }
    return result.end(request, operands, 2) ? result.finish(state) : nullptr;
}

namespace {

PyObject *call_elementwise(Op op, PyObject *module, PyObject *const *values, Py_ssize_t count,
                           PyObject *names) noexcept {
    ModuleState &state = state_of(module);
    Arguments arguments;
    if (!parse_arguments(state, info(op).name, 2, values, count, names, &arguments)) return nullptr;
    return run_elementwise(state, op, arguments.positional[0], arguments.positional[1], arguments.out,
                           arguments.stream);
}

template <Op op>
PyObject *method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return call_elementwise(op, module, values, count, names);
}

PyRef row_of(const OpInfo &op) noexcept {
    return PyRef::steal(Py_BuildValue("{s:s,s:s,s:s,s:s,s:s}", "name", op.name, "kind", name_of(op.kind), "types",
                                      name_of(op.types), "rule", name_of(op.rule), "doc", op.doc));
}

}  // namespace

#define CUKERN_SIGNATURE_TEXT_binary "(a, b, /, *, out=None, stream=None)\n--\n\n"
#define CUKERN_SIGNATURE_TEXT_scalar "(a, factor, /, *, out=None, stream=None)\n--\n\n"

#define CUKERN_OPERANDS_TEXT_binary                                                              \
    "a, b : Array, ndarray, another library's array, buffer, or number\n"                        \
    "    Operands of any shapes that broadcast and any strides. Python's own numbers take the\n" \
    "    element type of the other operand.\n"
#define CUKERN_OPERANDS_TEXT_scalar                            \
    "a : Array, ndarray, another library's array, or buffer\n" \
    "    Operand of any shape and any strides.\n"              \
    "factor : number or zero-dimensional array\n"              \
    "    Python's own numbers take the element type of `a`.\n"

#define CUKERN_RESULT_TEXT_boolean "bool"
#define CUKERN_RESULT_TEXT_promoted "the promoted type of the operands, as in NumPy 2"
#define CUKERN_RESULT_TEXT_floating \
    "the promoted type of the operands, as in NumPy 2; integers and bool give float64"

#define CUKERN_EXAMPLE_TEXT_binary(name)          \
    ">>> a = numpy.ones((2, 3), numpy.float32)\n" \
    ">>> cukern." name                            \
    "(a, numpy.ones(3, numpy.float32)).shape\n"   \
    "(2, 3)\n"
#define CUKERN_EXAMPLE_TEXT_scalar(name)          \
    ">>> a = numpy.ones((2, 3), numpy.float32)\n" \
    ">>> cukern." name                            \
    "(a, 2.0, out=a) is a\n"                      \
    "True\n"

#define CUKERN_ELEMENTWISE_DOC(id, kind, rule, doc)                                                        \
    #id CUKERN_SIGNATURE_TEXT_##kind doc "\n\nParameters\n----------\n" CUKERN_OPERANDS_TEXT_##kind        \
        "out : array of any kind, or writable buffer, optional\n"                                          \
        "    Takes the result, and is returned. It has the result's shape and an element type that\n"      \
        "    'same_kind' casting reaches. It may be exactly an operand; else it must not overlap one.\n"   \
        "stream : Stream, object with __cuda_stream__, or int, optional\n"                                 \
        "    Where the work runs; by default the innermost active ``with Stream()``, else the current\n"   \
        "    stream of the operands' library, else the legacy default stream.\n"                           \
        "\nReturns\n-------\n"                                                                             \
        "array of the kind of the first array operand, or `out`\n"                                         \
        "    Its shape is that to which the operands broadcast; its element type is\n"                     \
        "    " CUKERN_RESULT_TEXT_##rule                                                                   \
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

PyMethodDef kElementwiseMethods[] = {
#define CUKERN_OP(id, kind, types, rule, doc) \
    {#id, as_method(method<Op::id>), METH_FASTCALL | METH_KEYWORDS, CUKERN_ELEMENTWISE_DOC(id, kind, rule, doc)},
#include "cukern/ops.def"
#undef CUKERN_OP
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
