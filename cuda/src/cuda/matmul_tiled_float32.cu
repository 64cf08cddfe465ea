// The tiled product of float32.
#include "cuda/matmul_tiled.cuh"

template cudaError_t cukern::cuda::launch_matmul_tiled<float>(const MatmulLaunch &, cudaStream_t) noexcept;
