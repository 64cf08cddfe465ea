// Which kernels a reduction takes.
#include "device/kernels.h"
#include "device/reduce/tuning.h"
#include "formulas/reducers.cuh"

namespace cukern::cuda {

bool reduces_along_rows(const ReduceLaunch &launch) noexcept {
    const int last = launch.num_reduced - 1;
    if (last < 0 || launch.reduced_strides[last] != 1) return false;
    const std::int64_t bytes = launch.reduced_shape[last] * size_of(launch.type);
    return last == 0 || bytes >= (launch.kept < kFewResults ? kShortSegmentOfFew : kShortSegment);
}

bool reduces_as_stored(const ReduceLaunch &launch, const ReduceLimits &limits) noexcept {
    if (launch.reduced > limits.reduced) return false;
    if (returns_wide(launch)) return true;
    if (launch.compute != compute_type(launch.op, launch.type, launch.type)) return false;
    // A variance of integers is of floats, to which they are converted.
    return info(launch.op).rule != ResultRule::variance || launch.compute == launch.type;
}

}  // namespace cukern::cuda
