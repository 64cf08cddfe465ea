// Reductions of int16.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<std::int16_t>(const ReduceLaunch &, bool,
                                                                  cudaStream_t) noexcept;
