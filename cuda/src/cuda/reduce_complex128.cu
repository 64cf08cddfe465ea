// Reductions of complex128.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<cukern::Complex128>(const ReduceLaunch &, bool,
                                                                        cudaStream_t) noexcept;
