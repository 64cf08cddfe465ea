// Elementwise kernels that compute in float16: copies and conversions from it.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<cukern::Float16>(const ElementwiseLaunch &,
                                                                       cudaStream_t) noexcept;
