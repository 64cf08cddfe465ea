// Which kernels a reduction takes.
#include "device/kernels.h"
#include "formulas/reducers.cuh"

namespace cukern::cuda {

namespace {

// Indices are 32 bits wide, also beyond the end by what all blocks that share a row take at once.
constexpr std::int64_t kMostElements = (std::int64_t{1} << 31) - (1 << 22);
constexpr std::int64_t kShortSegment = 128;  // bytes, of several that a group takes one after the other

}  // namespace

bool reduces_along_rows(const ReduceLaunch &launch) noexcept {
    const int last = launch.num_reduced - 1;
    return last >= 0 && launch.reduced_strides[last] == 1 &&
           (last == 0 || launch.reduced_shape[last] * size_of(launch.type) >= kShortSegment);
}

bool reduces_as_stored(const ReduceLaunch &launch) noexcept {
    if (launch.reduced >= kMostElements) return false;
    if (launch.compute != compute_type(launch.op, launch.type, launch.type)) return false;
    // A mean of integers is of their sum, which is exact while it fits into 64 bits.
    return launch.op != Op::mean || launch.compute == launch.type || size_of(launch.type) < 8;
}

}  // namespace cukern::cuda
