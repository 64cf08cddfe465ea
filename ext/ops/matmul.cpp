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
    if (view.ndim > 0) return true;
    PyErr_Format(PyExc_ValueError, "%s: %s has no dimensions; it needs one at least (multiply takes numbers)",
                 function, argument);
    return false;
}

std::int64_t columns_of(const TensorView &view) noexcept { return view.shape[view.ndim - 1]; }
// A vector on the left is a row, one on the right a column.
std::int64_t rows_of(const TensorView &view) noexcept { return view.shape[view.ndim < 2 ? 0 : view.ndim - 2]; }

bool refuse_shapes(const char *function, const char *what, const TensorView &a, const TensorView &b) noexcept {
    const PyRef sa = shape_text(a.ndim, a.shape);
    const PyRef sb = shape_text(b.ndim, b.shape);
    if (sa && sb) PyErr_Format(PyExc_ValueError, "%s: %s: a is %U, b is %U", function, what, sa.get(), sb.get());
    return false;
}

// NumPy's rules: the result does not have the dimension that a vector lacks, and the dimensions before the last
// two broadcast.
bool result_shape(const char *function, const TensorView &a, const TensorView &b, Shape *shape) noexcept {
    if (!check_dimensions(function, "a", a) || !check_dimensions(function, "b", b)) return false;
    if (columns_of(a) != rows_of(b)) return refuse_shapes(function, "inner dimensions must match", a, b);
    const int of_a = a.ndim > 2 ? a.ndim - 2 : 0;
    const int of_b = b.ndim > 2 ? b.ndim - 2 : 0;
    shape->ndim = of_a > of_b ? of_a : of_b;
    for (int d = 0; d < shape->ndim; ++d) {
        const int in_a = d - (shape->ndim - of_a);
        const int in_b = d - (shape->ndim - of_b);
        const std::int64_t x = in_a < 0 ? 1 : a.shape[in_a];
        const std::int64_t y = in_b < 0 ? 1 : b.shape[in_b];
        if (x != y && x != 1 && y != 1)
            return refuse_shapes(function, "dimensions before the last two do not broadcast", a, b);
        shape->lengths[d] = x == 1 ? y : x;
    }
    if (a.ndim > 1) shape->lengths[shape->ndim++] = a.shape[a.ndim - 2];
    if (b.ndim > 1) shape->lengths[shape->ndim++] = b.shape[b.ndim - 1];
    return true;
}

// An operand as matrices in a batch of `batch` dimensions, with strides of 0 where it repeats; a vector's other
// dimension gets length 1.
TensorView as_matrices(const TensorView &view, int batch, const std::int64_t *lengths, bool is_left) noexcept {
    TensorView matrices = view;
    matrices.ndim = batch + 2;
    const int own = view.ndim > 2 ? view.ndim - 2 : 0;
    for (int d = 0; d < batch; ++d) {
        const int at = d - (batch - own);
        const bool repeats = at < 0 || view.shape[at] == 1;
        matrices.shape[d] = lengths[d];
        matrices.strides[d] = repeats ? 0 : view.strides[at];
    }
    const bool is_vector = view.ndim == 1;
    const int last = view.ndim - 1;
    matrices.shape[batch] = !is_vector ? view.shape[last - 1] : is_left ? 1 : view.shape[0];
    matrices.strides[batch] = !is_vector ? view.strides[last - 1] : is_left ? 0 : view.strides[0];
    matrices.shape[batch + 1] = is_vector && !is_left ? 1 : view.shape[last];
    matrices.strides[batch + 1] = is_vector && !is_left ? 0 : view.strides[last];
    return matrices;
}

// The result as (m, n) matrices; a dimension that it lacks gets length 1.
TensorView as_results(const TensorView &view, std::int64_t m, std::int64_t n, bool has_rows,
                      bool has_columns) noexcept {
    TensorView matrices = view;
    const int batch = view.ndim - (has_rows ? 1 : 0) - (has_columns ? 1 : 0);
    matrices.ndim = batch + 2;
    matrices.shape[batch] = m;
    matrices.shape[batch + 1] = n;
    matrices.strides[batch + 1] = has_columns ? view.strides[view.ndim - 1] : 1;
    matrices.strides[batch] = has_rows ? view.strides[batch] : n;
    return matrices;
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
    Shape shape;
    if (!result_shape(function, a.view(), b.view(), &shape)) return nullptr;
    const ElementType type = promote(a.type(), b.type());
    const ElementType compute = product_type(type);
    if (algorithm == MatmulAlgorithm::cublas && is_integer(compute)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: element type %s is not supported; supported are floats and complex numbers (matmul "
                     "takes integers and bool too)",
                     function, name_of(type));
        return nullptr;
    }
    Operand *const operands[] = {&a, &b};
    Result result;
    if (!result.prepare(request, shape, type, operands, 2, Overlap::none_allowed, reading)) return nullptr;
    const bool has_rows = a.view().ndim > 1;
    const bool has_columns = b.view().ndim > 1;
    const int batch = shape.ndim - (has_rows ? 1 : 0) - (has_columns ? 1 : 0);
    const TensorView x = as_matrices(a.view(), batch, shape.lengths, true);
    const TensorView y = as_matrices(b.view(), batch, shape.lengths, false);
    const TensorView z = as_results(result.view(), x.shape[batch], y.shape[batch + 1], has_rows, has_columns);
    MatmulCall call;
    call.algorithm = algorithm;
    call.compute = compute;
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

#define CUKERN_MATMUL_DOC(name, summary, types, errors)                                                        \
    name "(a, b, /, *, out=None, stream=None)\n--\n\n" summary                                                 \
         "\n\nParameters\n----------\n"                                                                        \
         "a, b : Array, ndarray, another library's array, or buffer\n"                                         \
         "    Of one dimension or more, with any strides; a's last length is b's last but one. Dimensions\n"   \
         "    before the last two are batches, and broadcast. Element types: " types                           \
         ".\n"                                                                                                 \
         "out : array of any kind, or writable buffer, optional\n"                                             \
         "    Takes the result, and is returned. It shares no memory with `a` or `b`.\n"                       \
         "\nReturns\n-------\n"                                                                                \
         "array of the kind of `a`, or `out`\n"                                                                \
         "    (..., m, k) with (..., k, n) gives (..., m, n); a vector's dimension leaves the result, so\n"    \
         "    that two of them give shape (). The element type is the promoted type of the operands. 16-bit\n" \
         "    floats are summed in float32, integers wrap, and of bool it is whether any product holds.\n"     \
         "\nRaises\n------\n"                                                                                  \
         "TypeError\n    An operand is no array, or of another element type.\n"                                \
         "ValueError\n    Inner dimensions differ; batches do not broadcast; an operand has no dimensions;\n"  \
         "    `out` has another shape, is read-only, or overlaps an operand.\n" errors                         \
         "CudaError\n    A call of CUDA or cuBLAS failed.\n"                                                   \
         "\nExamples\n--------\n"                                                                              \
         ">>> import numpy, cukern\n"                                                                          \
         ">>> a = numpy.ones((2, 3), numpy.float32)\n"                                                         \
         ">>> cukern." name                                                                                    \
         "(a, a.T)\n"                                                                                          \
         "array([[3., 3.],\n"                                                                                  \
         "       [3., 3.]], dtype=float32)\n"

PyMethodDef kMatmulMethods[] = {
    {"matmul", as_method(method<MatmulAlgorithm::automatic>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_MATMUL_DOC("matmul",
                       "Multiply two matrices, by the faster of `matmul_cublas` and `matmul_tiled`.\n\n"
                       "float32 is computed in full precision, without TF32. On the processor products of\n"
                       "floats and complex numbers are those of NumPy's BLAS, but for small ones.",
                       "all", "")},
    {"matmul_tiled", as_method(method<MatmulAlgorithm::tiled>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_MATMUL_DOC("matmul_tiled", "Multiply two matrices with cukern's own shared-memory kernel.", "all",
                       "")},
    {"matmul_cublas", as_method(method<MatmulAlgorithm::cublas>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_MATMUL_DOC("matmul_cublas",
                       "Multiply two matrices with cuBLAS, in full precision (no TF32).\n\n"
                       "On the host back-end it computes as `matmul` does.",
                       "floats and complex numbers",
                       "RuntimeError\n    cuBLAS was not found; the message says what was tried.\n")},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
