// Reductions of float64.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<double>(const ReduceLaunch &, bool, cudaStream_t) noexcept;
