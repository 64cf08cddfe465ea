// Elementwise kernels that compute in bool: copies and conversions from it.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<cukern::Bool>(const ElementwiseLaunch &,
                                                                    cudaStream_t) noexcept;
