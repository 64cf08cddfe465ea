// Reductions of bfloat16.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<cukern::BFloat16>(const ReduceLaunch &, bool,
                                                                      cudaStream_t) noexcept;
