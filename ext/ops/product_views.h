// The shapes of products, and their arrays as matrices. Nothing here needs Python or the GIL.
#pragma once

#include "view/tracked_view.h"

#include "cukern/operations.h"

namespace cukern::py {

// The shape of a product: numpy.matmul's, or numpy.dot's, of every row of `a` with every column of b.
enum class ProductForm { matmul, dot };

// NumPy's rules: a vector on the left is a row, one on the right a column, and the result does not have that
// dimension. Fails where shapes do not fit each other.
Status product_shape(ProductForm form, const Shape &a, const Shape &b, Shape *shape) noexcept;

// Operands and result as batches of matrices: the same number of dimensions, strides of 0 where an operand
// repeats, lengths of 1 for the dimensions that vectors lack.
struct ProductViews {
    TensorView a;
    TensorView b;
    TensorView out;
};
// `out` is of the shape that product_shape gives.
void make_product_views(ProductForm form, const TensorView &a, const TensorView &b, const TensorView &out,
                        ProductViews *views) noexcept;

}  // namespace cukern::py
