// Reductions of uint32.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<std::uint32_t>(const ReduceLaunch &, bool,
                                                                   cudaStream_t) noexcept;
