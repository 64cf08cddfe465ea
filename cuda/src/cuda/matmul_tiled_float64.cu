// The tiled product of float64.
#include "cuda/matmul_tiled.cuh"

template cudaError_t cukern::cuda::launch_matmul_tiled<double>(const MatmulLaunch &, cudaStream_t) noexcept;
