// Reductions of int32.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<std::int32_t>(const ReduceLaunch &, bool,
                                                                  cudaStream_t) noexcept;
