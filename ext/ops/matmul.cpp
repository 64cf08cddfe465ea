// matmul, matmul_tiled and matmul_cublas: parse, view, check, launch, return.
#include "base/python.h"

#include "base/backend.h"
#include "base/errors.h"
#include "base/methods.h"
#include "call/arguments.h"
#include "call/result.h"
#include "ops/operations.h"
#include "types/element_types.h"
#include "view/shapes.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

const char *function_name(MatmulAlgorithm algorithm) noexcept {
    switch (algorithm) {
        case MatmulAlgorithm::automatic: return "matmul";
        case MatmulAlgorithm::tiled: return "matmul_tiled";
        case MatmulAlgorithm::cublas: return "matmul_cublas";
    }
    return "matmul";
}

bool check_dimensions(const char *function, const char *argument, const TensorView &view) noexcept {
    if (view.ndim == 1 || view.ndim == 2) return true;
    PyErr_Format(PyExc_ValueError, "%s: %s has %d dimensions; 1 and 2 are supported", function, argument,
                 view.ndim);
    return false;
}

// NumPy's rules: a vector on the left is a row, one on the right a column, and the result does not have that
// dimension.
bool result_shape(const char *function, const TensorView &a, const TensorView &b, Shape *shape) noexcept {
    if (!check_dimensions(function, "a", a) || !check_dimensions(function, "b", b)) return false;
    if (a.shape[a.ndim - 1] != b.shape[0]) {
        const PyRef sa = shape_text(a.ndim, a.shape);
        const PyRef sb = shape_text(b.ndim, b.shape);
        if (sa && sb)
            PyErr_Format(PyExc_ValueError, "%s: inner dimensions must match: a is %U, b is %U", function, sa.get(),
                         sb.get());
        return false;
    }
    if (a.ndim == 2) shape->lengths[shape->ndim++] = a.shape[0];
    if (b.ndim == 2) shape->lengths[shape->ndim++] = b.shape[1];
    return true;
}

TensorView as_rows(const TensorView &view, bool row) noexcept {
    TensorView matrix = view;
    if (view.ndim == 2) return matrix;
    matrix.ndim = 2;
    matrix.shape[row ? 1 : 0] = view.shape[0];
    matrix.strides[row ? 1 : 0] = view.strides[0];
    matrix.shape[row ? 0 : 1] = 1;
    matrix.strides[row ? 0 : 1] = 0;
    return matrix;
}

// The result as an (m, n) matrix; a dimension that it lacks gets length 1.
TensorView as_matrix(const TensorView &view, std::int64_t m, std::int64_t n, bool has_rows,
                     bool has_columns) noexcept {
    TensorView matrix = view;
    matrix.ndim = 2;
    matrix.shape[0] = m;
    matrix.shape[1] = n;
    matrix.strides[1] = has_columns ? view.strides[view.ndim - 1] : 1;
    matrix.strides[0] = has_rows ? view.strides[0] : n;
    return matrix;
}

}  // namespace

PyObject *run_matmul(PyObject *module, const char *function, MatmulAlgorithm algorithm, PyObject *first,
                     PyObject *second, PyObject *out, PyObject *given_stream) noexcept {
    const ModuleState &state = state_of(module);
    const Request request{state, function, out, given_stream};
    Backend backend;
    ReadContext reading;
    if (!ensure_backend(state_of(module), function, &backend) || !consumer_of(request, reading)) return nullptr;

    Operand a;
    Operand b;
    if (!a.read({state, function, "a"}, first, reading) || !b.read({state, function, "b"}, second, reading))
        return nullptr;
    if (!a.check_type(function, has_product(a.type())) || !b.check_type(function, has_product(b.type())))
        return nullptr;
    Shape shape;
    if (!result_shape(function, a.view(), b.view(), &shape)) return nullptr;
    const ElementType type = promote(a.type(), b.type());
    if (algorithm == MatmulAlgorithm::cublas && !is_floating(type)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: element type %s is not supported; supported are float32, float64 (matmul "
                     "takes integers too)",
                     function, name_of(type));
        return nullptr;
    }
    Operand *const operands[] = {&a, &b};
    Result result;
    if (!result.prepare(request, shape, type, operands, 2, Overlap::none_allowed, reading)) return nullptr;
    const TensorView x = as_rows(a.view(), true);
    const TensorView y = as_rows(b.view(), false);
    const TensorView z = as_matrix(result.view(), x.shape[0], y.shape[1], a.view().ndim == 2, b.view().ndim == 2);
    MatmulCall call;
    call.algorithm = algorithm;
    call.compute = type;
    call.inputs[0] = &x;
    call.inputs[1] = &y;
    call.out = &z;
    const bool is_preferred = algorithm == MatmulAlgorithm::automatic && prefers_cublas(call);
    if (result.place(call) != Placement::host && (algorithm == MatmulAlgorithm::cublas || is_preferred))
        if (!seek_cublas(module)) return nullptr;
    return result.perform(request, backend, operands, 2, call,
                          [&](const Execution &where) { return matmul(call, where); });
}

namespace {

PyObject *call_matmul(MatmulAlgorithm algorithm, PyObject *module, PyObject *const *values, Py_ssize_t count,
                      PyObject *names) noexcept {
    Arguments arguments;
    const char *const function = function_name(algorithm);
    if (!parse_arguments(state_of(module), function, 2, values, count, names, &arguments)) return nullptr;
    return run_matmul(module, function, algorithm, arguments.positional[0], arguments.positional[1], arguments.out,
                      arguments.stream);
}

template <MatmulAlgorithm algorithm>
PyObject *method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return call_matmul(algorithm, module, values, count, names);
}

}  // namespace

#define CUKERN_MATMUL_DOC(name, summary, types, errors)                                                       \
    name "(a, b, /, *, out=None, stream=None)\n--\n\n" summary                                                \
         "\n\nParameters\n----------\n"                                                                       \
         "a, b : Array, ndarray, another library's array, or buffer\n"                                        \
         "    Of one or two dimensions, with any strides; a's last length is b's first. Element types:\n"     \
         "    " types                                                                                         \
         ".\n"                                                                                                \
         "out : array of any kind, or writable buffer, optional\n"                                            \
         "    Takes the result, and is returned. It shares no memory with `a` or `b`.\n"                      \
         "\nReturns\n-------\n"                                                                               \
         "array of the kind of `a`, or `out`\n"                                                               \
         "    (m, k) with (k, n) gives (m, n); a vector's dimension leaves the result, so that two of them\n" \
         "    give shape (). The element type is the promoted type of the operands.\n"                        \
         "\nRaises\n------\n"                                                                                 \
         "TypeError\n    An operand is no array, or of another element type.\n"                               \
         "ValueError\n    Inner dimensions differ; more than two dimensions; `out` has another shape, is\n"   \
         "    read-only, or overlaps an operand.\n" errors                                                    \
         "CudaError\n    A call of CUDA or cuBLAS failed.\n"                                                  \
         "\nExamples\n--------\n"                                                                             \
         ">>> import numpy, cukern\n"                                                                         \
         ">>> a = numpy.ones((2, 3), numpy.float32)\n"                                                        \
         ">>> cukern." name                                                                                   \
         "(a, a.T)\n"                                                                                         \
         "array([[3., 3.],\n"                                                                                 \
         "       [3., 3.]], dtype=float32)\n"

PyMethodDef kMatmulMethods[] = {
    {"matmul", as_method(method<MatmulAlgorithm::automatic>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_MATMUL_DOC("matmul",
                       "Multiply two matrices, by the faster of `matmul_cublas` and `matmul_tiled`.\n\n"
                       "float32 is computed in full precision, without TF32. On the processor products of\n"
                       "floats are those of NumPy's BLAS, but for small ones.",
                       "float32, float64, int32, int64", "")},
    {"matmul_tiled", as_method(method<MatmulAlgorithm::tiled>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_MATMUL_DOC("matmul_tiled", "Multiply two matrices with cukern's own shared-memory kernel.",
                       "float32, float64, int32, int64", "")},
    {"matmul_cublas", as_method(method<MatmulAlgorithm::cublas>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_MATMUL_DOC("matmul_cublas",
                       "Multiply two matrices with cuBLAS, in full precision (no TF32).\n\n"
                       "On the host back-end it computes as `matmul` does.",
                       "float32, float64",
                       "RuntimeError\n    cuBLAS was not found; the message says what was tried.\n")},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
