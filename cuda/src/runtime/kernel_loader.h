// What a back-end does for kernels that users bring. The CUDA back-end has one; the host's has none.
#pragma once

#include "cukern/user_kernels.h"

namespace cukern {

class KernelLoader {
public:
    KernelLoader() noexcept = default;
    KernelLoader(const KernelLoader &) = delete;
    KernelLoader &operator=(const KernelLoader &) = delete;
    virtual ~KernelLoader() = default;

    virtual Status load(const void *image, std::size_t bytes, int device, char *log, std::size_t log_size,
                        KernelImage **out) noexcept = 0;
    virtual Status limits(int device, const LaunchLimits **limits) noexcept = 0;
    // In the current device's context.
    virtual Status launch(UserKernel &kernel, const LaunchShape &shape, const void *parameters, int device,
                          Stream stream) noexcept = 0;
};

}  // namespace cukern
