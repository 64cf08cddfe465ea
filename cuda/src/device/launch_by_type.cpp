// Launches by element type: each finds the translation unit with the kernels.
#include "device/kernels.h"

namespace cukern::cuda {

cudaError_t launch_elementwise(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    switch (launch.compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: return launch_elementwise<ctype>(launch, stream);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return cudaErrorInvalidValue;
}

namespace {

// A grid has at most 2**31 - 1 blocks, and a kernel takes a block for each result at most.
constexpr std::int64_t kMostReductions = (std::int64_t{1} << 31) - 1;

// Cut along the outermost of the kept dimensions, so that each part's results follow each other.
cudaError_t launch_in_halves(const ReduceLaunch &launch, cudaStream_t stream,
                             const ReduceLimits &limits) noexcept {
    ReduceLaunch part = launch;
    if (launch.kept_shape[0] == 1) {
        --part.num_kept;
        for (int d = 0; d < part.num_kept; ++d) {
            part.kept_shape[d] = launch.kept_shape[d + 1];
            part.kept_strides[d] = launch.kept_strides[d + 1];
        }
        return launch_reduction(part, stream, limits);
    }
    const std::int64_t inner = launch.kept / launch.kept_shape[0];
    const std::int64_t first = launch.kept_shape[0] / 2;
    part.kept_shape[0] = first;
    part.kept = first * inner;
    const cudaError_t error = launch_reduction(part, stream, limits);
    if (error != cudaSuccess) return error;
    part.in = static_cast<const char *>(launch.in) + first * launch.kept_strides[0] * size_of(launch.type);
    part.out = static_cast<char *>(launch.out) + first * inner * size_of(result_type(launch.op, launch.compute));
    part.kept_shape[0] = launch.kept_shape[0] - first;
    part.kept = part.kept_shape[0] * inner;
    return launch_reduction(part, stream, limits);
}

}  // namespace

cudaError_t launch_reduction(const ReduceLaunch &launch, cudaStream_t stream,
                             const ReduceLimits &limits) noexcept {
    if (launch.kept > kMostReductions) return launch_in_halves(launch, stream, limits);
    return reduces_as_stored(launch, limits) ? launch_stored_reduction(launch, stream)
                                             : launch_in_pieces(launch, limits, stream);
}

cudaError_t launch_stored_reduction(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    switch (stored_type(launch.op, launch.type)) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: return launch_stored_reduction<ctype>(launch, stream);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return cudaErrorInvalidValue;
}

}  // namespace cukern::cuda
