// Products of matrices: view, check, launch, return. products.cpp has the functions of the module.
#include "base/python.h"

#include "base/backend.h"
#include "base/errors.h"
#include "call/result.h"
#include "ops/operations.h"
#include "types/element_types.h"
#include "view/shapes.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

bool check_dimensions(const char *function, const char *argument, int ndim) noexcept {
    if (ndim > 0) return true;
    PyErr_Format(PyExc_ValueError, "%s: %s has no dimensions; it needs one at least (multiply takes numbers)",
                 function, argument);
    return false;
}

bool refuse_shapes(const char *function, const char *what, const Shape &a, const Shape &b) noexcept {
    const PyRef sa = shape_text(a.ndim, a.lengths);
    const PyRef sb = shape_text(b.ndim, b.lengths);
    if (sa && sb) PyErr_Format(PyExc_ValueError, "%s: %s: a is %U, b is %U", function, what, sa.get(), sb.get());
    return false;
}

// Dimensions before the last two.
int batch_of(int ndim) noexcept { return ndim > 2 ? ndim - 2 : 0; }

bool broadcast_batches(const char *function, const Shape &a, const Shape &b, Shape *shape) noexcept {
    const int of_a = batch_of(a.ndim);
    const int of_b = batch_of(b.ndim);
    shape->ndim = of_a > of_b ? of_a : of_b;
    for (int d = 0; d < shape->ndim; ++d) {
        const int in_a = d - (shape->ndim - of_a);
        const int in_b = d - (shape->ndim - of_b);
        const std::int64_t x = in_a < 0 ? 1 : a.lengths[in_a];
        const std::int64_t y = in_b < 0 ? 1 : b.lengths[in_b];
        if (x != y && x != 1 && y != 1)
            return refuse_shapes(function, "dimensions before the last two do not broadcast", a, b);
        shape->lengths[d] = x == 1 ? y : x;
    }
    return true;
}

// Which dimensions of a batch are the operand's first `count`: those from `first` on.
struct Place {
    int first;
    int count;
};

// An operand as matrices in a batch, with strides of 0 where it repeats; a vector's other dimension gets length 1.
TensorView as_matrices(const TensorView &view, int batch, const std::int64_t *lengths, const Place &own,
                       bool is_left) noexcept {
    TensorView matrices = view;
    matrices.ndim = batch + 2;
    for (int d = 0; d < batch; ++d) {
        const int at = d - own.first;
        const bool repeats = d < own.first || d >= own.first + own.count || view.shape[at] == 1;
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

// The result as (m, n) matrices, its dimension of rows after `rows_at` others; a dimension that it lacks gets
// length 1.
TensorView as_results(const TensorView &view, std::int64_t m, std::int64_t n, int rows_at, bool has_rows,
                      bool has_columns) noexcept {
    TensorView matrices = view;
    const int batch = view.ndim - (has_rows ? 1 : 0) - (has_columns ? 1 : 0);
    matrices.ndim = batch + 2;
    for (int d = rows_at; has_rows && d < batch; ++d) {
        matrices.shape[d] = view.shape[d + 1];
        matrices.strides[d] = view.strides[d + 1];
    }
    matrices.shape[batch] = m;
    matrices.shape[batch + 1] = n;
    matrices.strides[batch + 1] = has_columns ? view.strides[view.ndim - 1] : 1;
    matrices.strides[batch] = has_rows ? view.strides[rows_at] : n;
    return matrices;
}

}  // namespace

// NumPy's rules: a vector on the left is a row, one on the right a column, and the result does not have that
// dimension.
bool product_shape(const char *function, const ProductOptions &options, const Shape &a, const Shape &b,
                   Shape *shape) noexcept {
    if (!check_dimensions(function, "a", a.ndim) || !check_dimensions(function, "b", b.ndim)) return false;
    if (a.lengths[a.ndim - 1] != b.lengths[b.ndim < 2 ? 0 : b.ndim - 2])
        return refuse_shapes(function, "inner dimensions must match", a, b);
    if (options.form == ProductForm::matmul) {
        if (!broadcast_batches(function, a, b, shape)) return false;
        if (a.ndim > 1) shape->lengths[shape->ndim++] = a.lengths[a.ndim - 2];
    } else {
        if (a.ndim + b.ndim - 2 > kMaxDims)
            return refuse_shapes(function, "the product has too many dimensions", a, b);
        shape->ndim = 0;
        for (int d = 0; d < a.ndim - 1; ++d) shape->lengths[shape->ndim++] = a.lengths[d];
        for (int d = 0; d < batch_of(b.ndim); ++d) shape->lengths[shape->ndim++] = b.lengths[d];
    }
    if (b.ndim > 1) shape->lengths[shape->ndim++] = b.lengths[b.ndim - 1];
    return true;
}

namespace {

// Whether what products are computed in has more bits than their type.
bool is_widened(ElementType type) noexcept {
    return size_of(type) < 4 && (is_floating(type) || product_type(type) != type);
}

// A product whose type is narrower than what it is computed in, into an `out` of another type: it is brought to
// its own type before.
PyObject *copy_narrowed(PyObject *module, const char *function, const ProductOptions &options, ElementType type,
                        PyObject *first, PyObject *second, PyObject *out, PyObject *given_stream) noexcept {
    const PyRef product =
        PyRef::steal(run_matmul(module, function, options, first, second, nullptr, given_stream));
    return product ? run_cast(state_of(module), function, product.get(), type, out, given_stream) : nullptr;
}

}  // namespace

PyObject *run_matmul(PyObject *module, const char *function, const ProductOptions &options, PyObject *first,
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
    if (!product_shape(function, options, Shape(a.view().ndim, a.view().shape),
                       Shape(b.view().ndim, b.view().shape), &shape))
        return nullptr;
    const ElementType type = promote(a.type(), b.type());
    const ElementType compute = product_type(type);
    if (options.algorithm == MatmulAlgorithm::cublas && is_integer(compute)) {
        PyErr_Format(
            PyExc_TypeError,
            "%s: element type %s is not supported by cuBLAS; supported are floats and complex numbers (matmul "
            "takes integers and bool too)",
            function, name_of(type));
        return nullptr;
    }
    if (out != nullptr && is_widened(type)) {
        Description given;
        if (!describe(state_of(module), function, "out", out, &given)) return nullptr;
        if (given.type != type)
            return copy_narrowed(module, function, options, type, first, second, out, given_stream);
    }
    const bool is_sum = options.keeps_sums && is_floating(type) && size_of(type) == 2;
    Operand *const operands[] = {&a, &b};
    Result result;
    if (!result.prepare(request, shape, is_sum ? ElementType::float32 : type, operands, 2, Overlap::none_allowed,
                        reading))
        return nullptr;
    const bool is_dot = options.form == ProductForm::dot;
    const bool has_rows = a.view().ndim > 1;
    const bool has_columns = b.view().ndim > 1;
    const int of_a = batch_of(a.view().ndim);
    const int of_b = batch_of(b.view().ndim);
    const int batch = shape.ndim - (has_rows ? 1 : 0) - (has_columns ? 1 : 0);
    const int rows_at = is_dot ? of_a : batch;
    if (is_dot && has_rows)  // in the shape of the batch, rows are none of its dimensions
        for (int d = rows_at; d < batch; ++d) shape.lengths[d] = shape.lengths[d + 1];
    const TensorView x = as_matrices(a.view(), batch, shape.lengths, {is_dot ? 0 : batch - of_a, of_a}, true);
    const TensorView y = as_matrices(b.view(), batch, shape.lengths, {batch - of_b, of_b}, false);
    const TensorView z =
        as_results(result.view(), x.shape[batch], y.shape[batch + 1], rows_at, has_rows, has_columns);
    MatmulCall call;
    call.algorithm = options.algorithm;
    call.compute = compute;
    call.allows_tf32 = options.allows_tf32;
    call.inputs[0] = &x;
    call.inputs[1] = &y;
    call.out = &z;
    const bool is_preferred = options.algorithm == MatmulAlgorithm::automatic && prefers_cublas(call);
    if (result.place(call) != Placement::host && (options.algorithm == MatmulAlgorithm::cublas || is_preferred))
        if (!seek_cublas(module)) return nullptr;
    return result.perform(request, backend, operands, 2, call,
                          [&](const Execution &where) { return matmul(call, where); });
}

}  // namespace cukern::py
