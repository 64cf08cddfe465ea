// Takes the place of the header of this name in cuda/src/device: a launch runs the kernel at once, on the
// processor.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/launch.h"

namespace cukern::cuda {

template <auto kernel, typename Params>
cudaError_t launch_kernel(unsigned blocks, unsigned threads, cudaStream_t, Params &params,
                          PreparedKernel * = nullptr) noexcept {
    emulation::run_grid(
        __PRETTY_FUNCTION__, blocks, threads, [](void *p) { kernel(*static_cast<Params *>(p)); }, &params);
    return cudaSuccess;
}

}  // namespace cukern::cuda
