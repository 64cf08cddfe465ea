// How arrays of one shape are cut into chunks: a chunk is a range of one dimension for one index of each outer
// one, with all of the inner ones.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cukern/tensor_view.h"

namespace cukern {

class ChunkCut {
public:
    // Chunks of at most `most` elements of the shape; ranges that are longer than `granule` are multiples of it.
    void cut(const std::int64_t *shape, int ndim, std::int64_t most, std::int64_t granule) noexcept {
        shape_ = shape;
        std::int64_t inner = 1;
        for (int d = 0; d < ndim; ++d) inner *= shape[d];
        axis_ = -1;
        outer_ = 1;
        do {
            if (axis_ >= 0) outer_ *= shape[axis_];
            ++axis_;
            inner /= shape[axis_];
        } while (inner > most && axis_ + 1 < ndim);
        rows_ = std::clamp<std::int64_t>(most / inner, 1, shape[axis_]);
        if (rows_ > granule) rows_ -= rows_ % granule;
        per_outer_ = (shape[axis_] + rows_ - 1) / rows_;
    }

    std::int64_t chunks() const noexcept { return outer_ * per_outer_; }
    std::int64_t rows() const noexcept { return rows_; }

    // Whether several chunks need the same elements.
    bool repeats(const TensorView &view) const noexcept {
        for (int d = 0; d <= axis_; ++d)
            if (view.strides[d] == 0) return true;
        return false;
    }

    // What a view, whose first dimensions are those of the shape, has for a chunk.
    TensorView part_of(const TensorView &view, std::int64_t chunk) const noexcept {
        TensorView part;
        part.type = view.type;
        std::int64_t offset = chunk % per_outer_ * rows_ * view.strides[axis_];
        std::int64_t outer = chunk / per_outer_;
        for (int d = axis_ - 1; d >= 0; --d) {
            offset += outer % shape_[d] * view.strides[d];
            outer /= shape_[d];
        }
        part.data = static_cast<char *>(view.data) + offset * size_of(view.type);
        part.ndim = view.ndim - axis_;
        std::copy_n(view.shape + axis_, part.ndim, part.shape);
        std::copy_n(view.strides + axis_, part.ndim, part.strides);
        part.shape[0] = std::min(rows_, shape_[axis_] - chunk % per_outer_ * rows_);
        return part;
    }

private:
    const std::int64_t *shape_ = nullptr;
    int axis_ = 0;  // that is cut
    std::int64_t rows_ = 1, outer_ = 1, per_outer_ = 1;
};

}  // namespace cukern
