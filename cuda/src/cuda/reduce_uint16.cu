// Reductions of uint16.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<std::uint16_t>(const ReduceLaunch &, bool,
                                                                   cudaStream_t) noexcept;
