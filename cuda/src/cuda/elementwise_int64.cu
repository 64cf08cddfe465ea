// Elementwise kernels that compute in int64.
#include "cuda/elementwise.cuh"

template cudaError_t cukern::cuda::launch_elementwise<std::int64_t>(const ElementwiseLaunch &,
                                                                    cudaStream_t) noexcept;
