// A launch by the driver's own function, which takes some 0.2 us less than the runtime's <<<>>>.
#pragma once

#include <cuda_runtime_api.h>

#include "device/driver.h"
#include "plan/launch.h"

namespace cukern::cuda {

// A kernel whose one parameter is of a type.
template <typename Params>
struct KernelOf {
    KernelToLaunch kernel;
};

template <typename Params>
Params parameter_of(void (*)(Params));

// `kernel`: a __global__ function that waits for the one before it (device/follow.cuh).
template <auto kernel>
KernelOf<decltype(parameter_of(kernel))> kernel_of() noexcept {
    static KernelHandles handles;
    return {{reinterpret_cast<const void *>(kernel), &handles}};
}

// Launches a kernel. With `prepared`, which keeps the launch, the parameter holds the addresses of out and of the
// inputs at `prepared->places`, and no others.
template <typename Params>
cudaError_t launch_kernel(const KernelOf<Params> &kernel, const Grid &grid, cudaStream_t stream, Params &params,
                          PreparedKernel *prepared = nullptr) noexcept {
    return launch_kernel(kernel.kernel, grid, stream, &params, sizeof params, prepared);
}

template <typename Params>
cudaError_t launch_kernel(const KernelOf<Params> &kernel, unsigned blocks, unsigned threads, cudaStream_t stream,
                          Params &params, PreparedKernel *prepared = nullptr) noexcept {
    return launch_kernel(kernel, Grid{blocks, threads}, stream, params, prepared);
}

template <auto kernel, typename Params>
cudaError_t launch_kernel(const Grid &grid, cudaStream_t stream, Params &params,
                          PreparedKernel *prepared = nullptr) noexcept {
    return launch_kernel(kernel_of<kernel>(), grid, stream, params, prepared);
}

template <auto kernel, typename Params>
cudaError_t launch_kernel(unsigned blocks, unsigned threads, cudaStream_t stream, Params &params,
                          PreparedKernel *prepared = nullptr) noexcept {
    return launch_kernel<kernel>(Grid{blocks, threads}, stream, params, prepared);
}

}  // namespace cukern::cuda
