// Reductions of uint64.
#include "cuda/reduce.cuh"

template cudaError_t cukern::cuda::launch_reduction<std::uint64_t>(const ReduceLaunch &, bool,
                                                                   cudaStream_t) noexcept;
