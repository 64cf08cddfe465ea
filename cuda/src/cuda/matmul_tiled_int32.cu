// The tiled product of int32.
#include "cuda/matmul_tiled.cuh"

template cudaError_t cukern::cuda::launch_matmul_tiled<std::int32_t>(const MatmulLaunch &, cudaStream_t) noexcept;
