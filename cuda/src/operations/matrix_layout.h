// The operands of a product as matrices with a leading dimension, and the batches that these are in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cukern/tensor_view.h"

namespace cukern {

// The last two dimensions of an operand as a matrix with a leading dimension.
struct Matrix {
    void *data = nullptr;
    std::int64_t ld = 0;
    bool transposed = false;  // column-major
};

// False where it has none: no stride of 1, or overlapping rows.
inline bool as_matrix(const TensorView &view, Matrix *matrix) noexcept {
    const int last = view.ndim - 1;
    const std::int64_t rows = view.shape[last - 1];
    const std::int64_t columns = view.shape[last];
    const std::int64_t row_stride = view.strides[last - 1];
    const std::int64_t column_stride = view.strides[last];
    matrix->data = view.data;
    if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns)) {
        matrix->ld = rows == 1 ? columns : row_stride;
        matrix->transposed = false;
        return true;
    }
    if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows)) {
        matrix->ld = columns == 1 ? rows : column_stride;
        matrix->transposed = true;
        return true;
    }
    return false;
}

// The dimensions of a batch of products, merged where all three operands allow it.
struct Batch {
    int ndim = 0;
    std::int64_t shape[kMaxDims];
    std::int64_t a[kMaxDims];  // steps in elements
    std::int64_t b[kMaxDims];
    std::int64_t c[kMaxDims];

    Batch(const TensorView &x, const TensorView &y, const TensorView &z) noexcept {
        for (int d = 0; d < z.ndim - 2; ++d) {
            if (z.shape[d] == 1) continue;
            const std::int64_t n = z.shape[d];
            const int last = ndim - 1;
            if (ndim > 0 && a[last] == n * x.strides[d] && b[last] == n * y.strides[d] &&
                c[last] == n * z.strides[d])
                --ndim;
            else
                shape[ndim] = 1;
            shape[ndim] *= n;
            a[ndim] = x.strides[d];
            b[ndim] = y.strides[d];
            c[ndim] = z.strides[d];
            ++ndim;
        }
    }

    // Brings the longest dimension to the last place: one launch has all of it.
    void put_longest_last() noexcept {
        const auto longest = static_cast<int>(std::max_element(shape, shape + ndim) - shape);
        for (std::int64_t *values : {shape, a, b, c})
            if (ndim > 0) std::swap(values[longest], values[ndim - 1]);
    }
};

}  // namespace cukern
