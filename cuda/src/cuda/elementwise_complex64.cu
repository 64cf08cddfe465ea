// Elementwise kernels that compute in complex64: copies and conversions from it.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<cukern::Complex64>(const ElementwiseLaunch &,
                                                                         cudaStream_t) noexcept;
