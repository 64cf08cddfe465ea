// Elementwise kernels that compute in uint32: copies and conversions from it.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<std::uint32_t>(const ElementwiseLaunch &,
                                                                     cudaStream_t) noexcept;
