// Elementwise kernels that compute in int16: copies and conversions from it.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<std::int16_t>(const ElementwiseLaunch &,
                                                                    cudaStream_t) noexcept;
