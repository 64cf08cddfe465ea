// Reductions of int64.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<std::int64_t>(const ReduceLaunch &, bool,
                                                                  cudaStream_t) noexcept;
