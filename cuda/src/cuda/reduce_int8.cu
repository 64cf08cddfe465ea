// Reductions of int8.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<std::int8_t>(const ReduceLaunch &, bool,
                                                                 cudaStream_t) noexcept;
