// A launch by the driver's own function, which takes some 0.2 us less than the runtime's <<<>>>.
#pragma once

#include <cuda_runtime_api.h>

#include "device/driver.h"
#include "plan/launch.h"

namespace cukern::cuda {

// Launches `kernel`, a __global__ function that waits for the one before it (device/follow.cuh), with one
// parameter. The shared memory of a kernel's blocks is the same at each launch on a device. With `prepared`, which
// keeps the launch, the parameter holds the addresses of out and of the inputs at `prepared->places`, and no
// others.
template <auto kernel, typename Params>
cudaError_t launch_kernel(Grid grid, cudaStream_t stream, Params &params,
                          PreparedKernel *prepared = nullptr) noexcept {
    static KernelHandles handles;
    const auto *const symbol = reinterpret_cast<const void *>(kernel);
    void *context = nullptr;
    if (void *function = handles.in_current_context(symbol, &grid, &context); function != nullptr) {
        const cudaError_t error = launch_by_driver(function, grid, stream, &params, sizeof params);
        if (prepared != nullptr && error == cudaSuccess)
            keep_launch(function, context, grid, &params, sizeof params, prepared);
        if (!may_be_outlived(error)) return error;
    }
    void *arguments[] = {&params};
    return launch_by_runtime(symbol, grid, stream, arguments);
}

template <auto kernel, typename Params>
cudaError_t launch_kernel(unsigned blocks, unsigned threads, cudaStream_t stream, Params &params,
                          PreparedKernel *prepared = nullptr) noexcept {
    return launch_kernel<kernel>(Grid{blocks, threads}, stream, params, prepared);
}

}  // namespace cukern::cuda
