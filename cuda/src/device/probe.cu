// Whether this build has kernels that the current device can run: every kernel is built for the same targets.
#include "device/kernels.h"

namespace cukern::cuda {
namespace {

__global__ void probe_kernel() {}

}  // namespace

cudaError_t probe_kernels() noexcept {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, probe_kernel);
}

}  // namespace cukern::cuda
