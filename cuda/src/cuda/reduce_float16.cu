// Reductions of float16.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<cukern::Float16>(const ReduceLaunch &, bool,
                                                                     cudaStream_t) noexcept;
