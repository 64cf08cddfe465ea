// Elementwise kernels that compute in uint16: copies and conversions from it.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<std::uint16_t>(const ElementwiseLaunch &,
                                                                     cudaStream_t) noexcept;
