// Reductions of float32.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<float>(const ReduceLaunch &, bool, cudaStream_t) noexcept;
