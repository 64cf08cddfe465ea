#include "base/python.h"

#include "ops/product_views.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

Status refuse_shapes(const char *what, const Shape &a, const Shape &b) noexcept {
    return fail(CUKERN_INVALID_ARGUMENT, "%s: a is %s, b is %s", what, ShapeText(a).text, ShapeText(b).text);
}

// Dimensions before the last two.
int batch_of(int ndim) noexcept { return ndim > 2 ? ndim - 2 : 0; }

Status broadcast_batches(const Shape &a, const Shape &b, Shape *shape) noexcept {
    const int of_a = batch_of(a.ndim);
    const int of_b = batch_of(b.ndim);
    shape->ndim = of_a > of_b ? of_a : of_b;
    for (int d = 0; d < shape->ndim; ++d) {
        const int in_a = d - (shape->ndim - of_a);
        const int in_b = d - (shape->ndim - of_b);
        const std::int64_t x = in_a < 0 ? 1 : a.lengths[in_a];
        const std::int64_t y = in_b < 0 ? 1 : b.lengths[in_b];
        if (x != y && x != 1 && y != 1)
            return refuse_shapes("dimensions before the last two do not broadcast", a, b);
        shape->lengths[d] = x == 1 ? y : x;
    }
    return CUKERN_OK;
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
        // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): a batch is among the dimensions of the result
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

Status product_shape(ProductForm form, const Shape &a, const Shape &b, Shape *shape) noexcept {
    if (a.ndim == 0 || b.ndim == 0)
        return fail(CUKERN_INVALID_ARGUMENT,
                    "%s has no dimensions; it needs one at least (multiply takes numbers)",
                    a.ndim == 0 ? "a" : "b");
    if (a.lengths[a.ndim - 1] != b.lengths[b.ndim < 2 ? 0 : b.ndim - 2])
        return refuse_shapes("inner dimensions must match", a, b);
    if (form == ProductForm::matmul) {
        CUKERN_TRY(broadcast_batches(a, b, shape));
        if (a.ndim > 1) shape->lengths[shape->ndim++] = a.lengths[a.ndim - 2];
    } else {
        if (a.ndim + b.ndim - 2 > kMaxDims) return refuse_shapes("the product has too many dimensions", a, b);
        shape->ndim = 0;
        for (int d = 0; d < a.ndim - 1; ++d) shape->lengths[shape->ndim++] = a.lengths[d];
        for (int d = 0; d < batch_of(b.ndim); ++d) shape->lengths[shape->ndim++] = b.lengths[d];
    }
    if (b.ndim > 1) shape->lengths[shape->ndim++] = b.lengths[b.ndim - 1];
    return CUKERN_OK;
}

void make_product_views(ProductForm form, const TensorView &a, const TensorView &b, const TensorView &out,
                        ProductViews *views) noexcept {
    const bool is_dot = form == ProductForm::dot;
    const bool has_rows = a.ndim > 1;
    const bool has_columns = b.ndim > 1;
    const int of_a = batch_of(a.ndim);
    const int of_b = batch_of(b.ndim);
    const int batch = out.ndim - (has_rows ? 1 : 0) - (has_columns ? 1 : 0);
    const int rows_at = is_dot ? of_a : batch;
    Shape shape(out.ndim, out.shape);
    if (is_dot && has_rows)  // in the shape of the batch, rows are none of its dimensions
        for (int d = rows_at; d < batch; ++d) shape.lengths[d] = shape.lengths[d + 1];
    views->a = as_matrices(a, batch, shape.lengths, {is_dot ? 0 : batch - of_a, of_a}, true);
    views->b = as_matrices(b, batch, shape.lengths, {batch - of_b, of_b}, false);
    views->out = as_results(out, views->a.shape[batch], views->b.shape[batch + 1], rows_at, has_rows, has_columns);
}

}  // namespace cukern::py
