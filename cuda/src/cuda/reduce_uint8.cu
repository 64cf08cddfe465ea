// Reductions of uint8.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<std::uint8_t>(const ReduceLaunch &, bool,
                                                                  cudaStream_t) noexcept;
