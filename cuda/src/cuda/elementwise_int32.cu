// Elementwise kernels that compute in int32.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<std::int32_t>(const ElementwiseLaunch &,
                                                                    cudaStream_t) noexcept;
