// var and std, made of other operations.
#include "base/python.h"

#include "array/array.h"

#include "base/methods.h"
#include "base/signature.h"
#include "call/operand.h"
#include "ops/operations.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

PyObject *as_float32(ModuleState &state, PyObject *object, PyObject *stream) noexcept {
    return run_cast(state, "var", object, ElementType::float32, nullptr, stream);
}

// The mean of the squared distances from the mean, in the type of the mean; 16-bit floats in float32, rounded
// once.
PyObject *run_variance(ModuleState &state, bool is_root, PyObject *object, const ReductionOptions &given,
                       double correction) noexcept {
    const char *const function = is_root ? "std" : "var";
    Description a;
    if (!describe(state, function, "a", object, &a)) return nullptr;
    const ElementType type = a.type;
    std::int64_t count = 1;
    int axes[kMaxDims] = {};
    int num_axes = a.shape.ndim;
    if (is_given(given.axis) && !parse_axes(state, function, given.axis, a.shape.ndim, axes, &num_axes))
        return nullptr;
    for (int i = 0; i < num_axes; ++i) count *= a.shape.lengths[is_given(given.axis) ? axes[i] : i];
    const bool narrow = size_of(type) == 2 && kind_of(type) == 'f';
    PyObject *const stream = is_given(given.stream) ? given.stream : nullptr;
    PyObject *const target = is_given(given.out) ? given.out : nullptr;
    PyRef x = narrow ? PyRef::steal(as_float32(state, object, stream)) : PyRef::borrow(object);
    if (!x) return nullptr;
    ReductionOptions wide;
    wide.axis = given.axis;
    wide.keepdims = true;
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
        const PyRef x2 =
            imag ? PyRef::steal(run_elementwise(state, Op::square, real.get(), nullptr, nullptr, stream))
                 : PyRef();
        const PyRef y2 =
            x2 ? PyRef::steal(run_elementwise(state, Op::square, imag.get(), nullptr, nullptr, stream)) : PyRef();
        squares =
            y2 ? PyRef::steal(run_elementwise(state, Op::add, x2.get(), y2.get(), nullptr, stream)) : PyRef();
    } else {
        squares = PyRef::steal(run_elementwise(state, Op::square, distance.get(), nullptr, nullptr, stream));
    }
    distance = PyRef();
    if (!squares) return nullptr;
    ReductionOptions last;
    last.axis = given.axis;
    last.keepdims = given.keepdims;
    last.stream = given.stream;
    const PyRef sum = PyRef::steal(run_reduction(state, Op::sum, squares.get(), last));
    if (!sum) return nullptr;
    squares = PyRef();
    const double freedom = static_cast<double>(count) - correction;
    const PyRef divisor = PyRef::steal(PyFloat_FromDouble(freedom < 0 ? 0 : freedom));
    if (!divisor) return nullptr;
    PyRef result = PyRef::steal(run_elementwise(state, Op::divide, sum.get(), divisor.get(),
                                                is_root || narrow ? nullptr : target, stream));
    if (result && is_root)
        result = PyRef::steal(
            run_elementwise(state, Op::sqrt, result.get(), nullptr, narrow ? nullptr : target, stream));
    if (result && narrow) result = PyRef::steal(run_cast(state, function, result.get(), type, target, stream));
    return result.release();
}

PyObject *parse_and_run(ModuleState &state, bool is_root, PyObject *self, PyObject *const *values,
                        Py_ssize_t count, PyObject *names) noexcept {
    static constexpr Signature kSignature(CUKERN_VARIANCE_PARAMETERS("a, /"));
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse(is_root ? "std" : "var", self, values, count, names, arguments)) return nullptr;
    const double correction = arguments[2] == nullptr ? 0 : PyFloat_AsDouble(arguments[2]);
    bool keepdims = false;
    if ((correction == -1 && PyErr_Occurred() != nullptr) || !parse_flag(arguments[3], &keepdims)) return nullptr;
    ReductionOptions given;
    given.axis = arguments[1];
    given.keepdims = keepdims;
    given.out = arguments[4];
    given.stream = arguments[5];
    return run_variance(state, is_root, arguments[0], given, correction);
}

template <bool is_root>
PyObject *variance_function(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return parse_and_run(state_of(module), is_root, nullptr, values, count, names);
}

}  // namespace

PyObject *array_var(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return parse_and_run(state_of_type(self), false, self, values, count, names);
}
PyObject *array_std(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return parse_and_run(state_of_type(self), true, self, values, count, names);
}

#define CUKERN_VARIANCE_DOC(name, summary)                                                                        \
    name CUKERN_VARIANCE_PARAMETERS(                                                                              \
        "a, /") "\n--\n\n" summary                                                                                \
                "\n\nIn two passes: the mean, then the squared distances from it.\n\nParameters\n----------\n"    \
                "a : Array, ndarray, another library's array, buffer, or number\n"                                \
                "axis : int or tuple of int, optional\n    The axes to reduce, by default all.\n"                 \
                "correction : float\n    The sum of squares is divided by the number of elements less this.\n"    \
                "keepdims : bool\n    Whether dimensions stay, with length 1.\n"                                  \
                "out : array of any kind, or writable buffer, optional\n    Takes the result, and is returned.\n" \
                "stream : Stream, object with __cuda_stream__, or int, optional\n    Where the work runs.\n"      \
                "\nReturns\n-------\narray of the kind of `a`, or `out`\n"                                        \
                "    Of the element type of `a`, of complex ones that of the parts; integers and bool give "      \
                "float64.\n"                                                                                      \
                "\nExamples\n--------\n>>> import numpy, cukern\n>>> float(cukern." name                          \
                "(numpy.array([1.0, 3.0])))\n1.0\n"

PyMethodDef kVarianceMethods[] = {
    {"var", as_method(variance_function<false>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_VARIANCE_DOC("var", "Variance.")},
    {"std", as_method(variance_function<true>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_VARIANCE_DOC("std", "Standard deviation: the root of the variance.")},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
