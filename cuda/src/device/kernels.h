// The CUDA back-end's launchers: each enqueues on a stream of the current device and returns CUDA's error.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/launch.h"

namespace cukern::cuda {

// Loads the module of a kernel that does nothing; fails where the device has no code in this build.
cudaError_t probe_kernels() noexcept;

// One translation unit an element type, so that the build runs in parallel.
template <typename T>
cudaError_t launch_elementwise(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept;

// Whether the kernels of the stored type serve a reduction; else those that convert to what it computes in.
bool reduces_as_stored(const ReduceLaunch &launch) noexcept;
template <typename T>
cudaError_t launch_reduction(const ReduceLaunch &launch, bool stored, cudaStream_t stream) noexcept;

cudaError_t launch_scan(const ScanLaunch &launch, cudaStream_t stream) noexcept;

template <typename T>
cudaError_t launch_matmul_tiled(const MatmulLaunch &launch, cudaStream_t stream) noexcept;

}  // namespace cukern::cuda
