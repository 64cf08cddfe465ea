// Takes the place of the header of this name in cuda/src/device: a launch runs the kernel at once, on the
// processor.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/launch.h"

namespace cukern::cuda {

template <typename Params>
struct KernelOf {
    const char *name;
    void (*run)(void *params);
};

template <typename Params>
Params parameter_of(void (*)(Params));

template <auto kernel>
KernelOf<decltype(parameter_of(kernel))> kernel_of() noexcept {
    using Params = decltype(parameter_of(kernel));
    return {__PRETTY_FUNCTION__, [](void *p) { kernel(*static_cast<Params *>(p)); }};
}

template <typename Params>
cudaError_t launch_kernel(const KernelOf<Params> &kernel, unsigned blocks, unsigned threads, cudaStream_t,
                          Params &params, PreparedKernel * = nullptr) noexcept {
    emulation::run_grid(kernel.name, blocks, threads, kernel.run, &params);
    return cudaSuccess;
}

template <auto kernel, typename Params>
cudaError_t launch_kernel(unsigned blocks, unsigned threads, cudaStream_t stream, Params &params,
                          PreparedKernel *prepared = nullptr) noexcept {
    return launch_kernel(kernel_of<kernel>(), blocks, threads, stream, params, prepared);
}

}  // namespace cukern::cuda
