// Elementwise kernels that compute in bfloat16: copies and conversions from it.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<cukern::BFloat16>(const ElementwiseLaunch &,
                                                                        cudaStream_t) noexcept;
