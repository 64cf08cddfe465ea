// Which kernels a reduction takes.
#include <algorithm>

#include "device/kernels.h"
#include "device/reduce/tuning.h"
#include "formulas/reducers.cuh"

namespace cukern::cuda {

namespace {

// Whether packed rows begin at vectors of 16 bytes and end with them.
bool are_vectors(const ReduceLaunch &launch) noexcept {
    const int size = size_of(launch.type);
    bool whole = reinterpret_cast<std::uintptr_t>(launch.in) % 16 == 0 && launch.reduced * size % 16 == 0;
    for (int d = 0; d < launch.num_kept; ++d) whole = whole && launch.kept_strides[d] * size % 16 == 0;
    return whole;
}

// Indices and variances, of which joins are long.
bool is_heavy(Op op) noexcept {
    return op == Op::argmax || op == Op::argmin || info(op).rule == ResultRule::variance;
}

// Whether a packed row is short enough to be taken as a column.
bool is_column(const ReduceLaunch &launch) noexcept {
    const bool is_little = launch.kept * launch.reduced < kLittleWork;
    const std::int64_t most = short_row(size_of(launch.type), is_heavy(launch.op), are_vectors(launch));
    return launch.reduced <= (is_little ? std::min<std::int64_t>(most, short_column(size_of(launch.type))) : most);
}

}  // namespace

bool reduces_along_rows(const ReduceLaunch &launch) noexcept {
    const int last = launch.num_reduced - 1;
    if (last < 0 || launch.reduced_strides[last] != 1) return false;
    if (last == 0 && is_column(launch)) return false;
    const std::int64_t bytes = launch.reduced_shape[last] * size_of(launch.type);
    return last == 0 || bytes >= (launch.kept < kFewResults ? kShortSegmentOfFew : kShortSegment);
}

ElementType loaded_type(const ReduceLaunch &launch) noexcept {
    if (returns_wide(launch)) return launch.type;
    const bool is_variance = info(launch.op).rule == ResultRule::variance;
    const bool is_exact = is_integer(launch.type) || launch.type == ElementType::bool_;
    // IntegerVariance loads 32 bits. Its sums hold as many elements as one kernel may reduce, also of several
    // pieces.
    if (is_variance && is_exact && launch.compute == ElementType::float64 && size_of(launch.type) <= 4 &&
        launch.reduced <= ReduceLimits{}.reduced)
        return size_of(launch.type) == 4 ? launch.type : ElementType::int32;
    const bool is_stored = launch.compute == compute_type(launch.op, launch.type, launch.type);
    return is_stored && !(is_variance && is_exact) ? launch.type : launch.compute;
}

bool reduces_as_stored(const ReduceLaunch &launch, const ReduceLimits &limits) noexcept {
    return launch.reduced <= limits.reduced && loaded_type(launch) == launch.type;
}

}  // namespace cukern::cuda
