// Of CUDA's header, what the sources of the kernels name. Comes before it on the include path.
#pragma once

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorLaunchOutOfResources = 701
};
using cudaStream_t = void *;
