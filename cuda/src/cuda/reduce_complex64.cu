// Reductions of complex64.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<cukern::Complex64>(const ReduceLaunch &, bool,
                                                                       cudaStream_t) noexcept;
