// Launches of operands of any strides: by the type whose kernels serve them, and in parts where one launch can't
// hold them.
#include <algorithm>
#include <cstdlib>

#include "cukern/testing.h"
#include "device/kernels.h"

namespace cukern::cuda {
namespace {

// The part of a launch from `begin` on along one dimension.
ElementwiseLaunch part_of(const ElementwiseLaunch &launch, int dimension, std::int64_t begin,
                          std::int64_t length) noexcept {
    ElementwiseLaunch part = launch;
    part.prepared = nullptr;  // several kernels
    part.shape[dimension] = length;
    part.count = launch.count / launch.shape[dimension] * length;
    for (int j = 0; j < launch.num_operands; ++j)
        if (!launch.immediate[j])
            part.data[j] = static_cast<char *>(part.data[j]) +
                           begin * launch.strides[j][dimension] * size_of(launch.types[j]);
    return part;
}

void drop_dimension(ElementwiseLaunch &launch, int dimension) noexcept {
    --launch.ndim;
    for (int d = dimension; d < launch.ndim; ++d) {
        launch.shape[d] = launch.shape[d + 1];
        for (int j = 0; j < launch.num_operands; ++j) launch.strides[j][d] = launch.strides[j][d + 1];
    }
}

// From an operand's first element to its last along one dimension, in elements.
std::int64_t distance(const ElementwiseLaunch &launch, int operand, int dimension) noexcept {
    return launch.immediate[operand]
               ? 0
               : (launch.shape[dimension] - 1) * std::abs(launch.strides[operand][dimension]);
}

bool is_within_reach(const ElementwiseLaunch &launch) noexcept {
    if (launch.count > kStridedReach) return false;
    for (int j = 0; j < launch.num_operands; ++j) {
        std::int64_t all = 0;
        for (int d = 0; d < launch.ndim; ++d) all += distance(launch, j, d);
        if (all > kStridedReach) return false;
    }
    return true;
}

// Too many elements, or too far apart: in halves of the dimension that reaches furthest. Too many dimensions: one
// by one along the shortest.
cudaError_t launch_in_parts(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    const bool halves = !is_within_reach(launch);
    int cut = 0;
    std::int64_t most = -1;
    for (int d = 0; d < launch.ndim; ++d) {
        std::int64_t furthest = launch.shape[d] - 1;
        for (int j = 0; j < launch.num_operands; ++j) furthest = std::max(furthest, distance(launch, j, d));
        if (halves ? furthest <= most : launch.shape[d] >= launch.shape[cut]) continue;
        most = furthest;
        cut = d;
    }
    const std::int64_t step = halves ? (launch.shape[cut] + 1) / 2 : 1;
    for (std::int64_t begin = 0; begin < launch.shape[cut]; begin += step) {
        ElementwiseLaunch part = part_of(launch, cut, begin, std::min(step, launch.shape[cut] - begin));
        if (!halves) drop_dimension(part, cut);
        const cudaError_t error =
            testing::fails(testing::Fault::part) ? cudaErrorMemoryAllocation : launch_elementwise(part, stream);
        // A call that runs out of memory is tried again, which must not repeat parts that may be in place.
        if (error == cudaErrorMemoryAllocation && begin > 0) return cudaErrorLaunchOutOfResources;
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace

cudaError_t launch_strided(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    if (launch.ndim > kStridedDims || !is_within_reach(launch)) return launch_in_parts(launch, stream);
    const StridedPlan plan = plan_strided(launch);
    switch (wide_type(launch.compute)) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: return launch_strided<ctype>(launch, plan, stream);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return cudaErrorInvalidValue;
}

}  // namespace cukern::cuda
