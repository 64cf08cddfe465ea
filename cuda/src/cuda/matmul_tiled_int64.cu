// The tiled product of int64.
#include "cuda/matmul_tiled.cuh"

template cudaError_t cukern::cuda::launch_matmul_tiled<std::int64_t>(const MatmulLaunch &, cudaStream_t) noexcept;
