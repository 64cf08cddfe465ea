// Elementwise kernels that compute in float32.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<float>(const ElementwiseLaunch &, cudaStream_t) noexcept;
