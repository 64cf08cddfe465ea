// Kernels that users bring, by way of the back-end in use.
#include "cukern/user_kernels.h"

#include "context/context.h"
#include "runtime/kernel_loader.h"

namespace cukern {
namespace {

Status loader_of(Context **active, KernelLoader **loader) noexcept {
    CUKERN_TRY(context(active));
    *loader = (*active)->runtime.kernel_loader();
    if (*loader != nullptr) return CUKERN_OK;
    return fail(CUKERN_NO_BACKEND,
                "kernels of one's own need a GPU, and the host back-end is in use; python -m cukern tells why");
}

}  // namespace

Status KernelImage::load(const void *image, std::size_t bytes, int device, char *log, std::size_t log_size,
                         KernelImage **out) noexcept {
    Context *active = nullptr;
    KernelLoader *loader = nullptr;
    CUKERN_TRY(loader_of(&active, &loader));
    log[0] = '\0';
    return loader->load(image, bytes, device, log, log_size, out);
}

Status launch_limits(int device, const LaunchLimits **limits) noexcept {
    Context *active = nullptr;
    KernelLoader *loader = nullptr;
    CUKERN_TRY(loader_of(&active, &loader));
    return loader->limits(device, limits);
}

Status launch_user_kernel(UserKernel &kernel, const LaunchShape &shape, const void *parameters,
                          const StreamRef &stream) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    const DeviceGuard guard(active->runtime, stream.device);
    CUKERN_TRY(guard.status());
    return active->runtime.launch_user_kernel(kernel, shape, parameters, stream.device, stream.handle);
}

}  // namespace cukern
