// Elementwise kernels that compute in float64.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<double>(const ElementwiseLaunch &, cudaStream_t) noexcept;
