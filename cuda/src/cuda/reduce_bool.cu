// Reductions of bool.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<cukern::Bool>(const ReduceLaunch &, bool,
                                                                  cudaStream_t) noexcept;
