// The CUDA back-end's loader of kernels that users bring.
#pragma once

#include "runtime/kernel_loader.h"

namespace cukern::cuda {

KernelLoader *user_kernel_loader() noexcept;

}  // namespace cukern::cuda
