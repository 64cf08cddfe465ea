// A launch of a kernel that a user brings: loaded where it has to be, checked, ordered, started.
#include "base/python.h"

#include <cstddef>
#include <memory>
#include <new>

#include "base/backend.h"
#include "kernels/arguments.h"

namespace cukern::py {
namespace {

constexpr std::size_t kInlineBytes = 4096;  // of parameters, which before CUDA 12.1 was the most

// Applies what was set before the kernel was on a device.
bool apply_settings(const ModuleState &state, RawKernelObject *self, int device, UserKernel *kernel) noexcept {
    Status status = CUKERN_OK;
    if (self->max_dynamic_shared >= 0)
        status = kernel->set(device, KernelSetting::max_dynamic_shared_size, self->max_dynamic_shared);
    if (status == CUKERN_OK && self->carveout >= -1)
        status = kernel->set(device, KernelSetting::preferred_shared_memory_carveout, self->carveout);
    return status == CUKERN_OK || raise_failure(state, self->text, status);
}

// Of k.over(): blocks with which most threads run at once, as many as the threads need.
bool choose_shape(const ModuleState &state, const RawKernelObject *self, LoadedKernel *kernel, int device,
                  std::int64_t threads, LaunchShape *shape) noexcept {
    if (kernel->block == 0 || kernel->block_shared != shape->shared) {
        int grid = 0;
        int block = 0;
        const Status status = kernel->kernel->occupancy(device, shape->shared, &grid, &block);
        if (status != CUKERN_OK) return raise_failure(state, self->text, status);
        if (block <= 0) {
            PyErr_Format(PyExc_ValueError, "%s: no block of this kernel runs on device %d", self->text, device);
            return false;
        }
        kernel->block = static_cast<unsigned>(block);
        kernel->block_shared = shape->shared;
    }
    const std::int64_t blocks = (threads - 1) / kernel->block + 1;
    if (blocks > static_cast<std::int64_t>(kernel->limits->grid[0])) {
        PyErr_Format(PyExc_ValueError, "%s: %lld threads are more than device %d has in blocks of %u", self->text,
                     static_cast<long long>(threads), device, kernel->block);
        return false;
    }
    shape->grid[0] = static_cast<unsigned>(blocks);
    shape->block[0] = kernel->block;
    return true;
}

}  // namespace

bool kernel_on(ModuleState &state, RawKernelObject *self, int device, LoadedKernel **loaded) noexcept {
    if (device >= 0 && device < kMostDevices && self->loaded[device].kernel != nullptr) {
        *loaded = &self->loaded[device];
        return true;
    }
    KernelImage *image = nullptr;
    LoadedKernel own;
    if (!image_on(state, self->text, self->module, device, &image) ||
        !find_kernel(state, self->text, self->module, image, self->name, &own.kernel) ||
        !apply_settings(state, self, device, own.kernel))
        return false;
    Status status = launch_limits(device, &own.limits);
    if (status == CUKERN_OK) status = own.kernel->attributes(device, &own.attributes);
    if (status != CUKERN_OK) return raise_failure(state, self->text, status);
    self->loaded[device] = own;
    *loaded = &self->loaded[device];
    return true;
}

bool launch_kernel(ModuleState &state, RawKernelObject *self, const LaunchRequest &request,
                   PyObject *const *objects, Py_ssize_t count) noexcept {
    const char *const function = self->text;
    Backend backend;
    KernelArguments arguments(state, function, objects, count, self->module->code, self->name);
    HeldStream stream;
    if (!ensure_backend(state, function, &backend) || !arguments.read(request.stream) ||
        !arguments.choose_stream_for(request.stream, &stream))
        return false;
    const int device = stream->device;
    const bool was_loaded = device >= 0 && device < kMostDevices && self->loaded[device].kernel != nullptr;
    LoadedKernel *kernel = nullptr;
    if (!kernel_on(state, self, device, &kernel) || kernel == nullptr) return false;
    LaunchShape shape = request.shape;
    shape.cooperative = shape.cooperative || self->cooperative;
    constexpr int kLeastToFollow = 90;
    shape.follows = self->follows != 0 && kernel->attributes->ptx_version >= kLeastToFollow;
    if (!check_shared(function, shape, *kernel, device)) return false;
    if (request.threads > 0 && !choose_shape(state, self, kernel, device, request.threads, &shape)) return false;
    alignas(16) unsigned char few[kInlineBytes];
    std::unique_ptr<unsigned char[]> many;
    unsigned char *block = few;
    if (kernel->kernel->parameter_bytes() > kInlineBytes) {
        many.reset(new (std::nothrow) unsigned char[kernel->kernel->parameter_bytes()]);
        block = many.get();
        if (block == nullptr) {
            PyErr_NoMemory();
            return false;
        }
    }
    if (!check_shape(function, shape, *kernel, device) ||
        !arguments.pack(*kernel->kernel, device, request.unchecked, block))
        return false;
    if (request.threads == 0) return true;  // nothing to do
    if ((!was_loaded && !arguments.check_unchanged()) || !arguments.begin(stream)) return false;
    const Status status = launch_user_kernel(*kernel->kernel, shape, block, stream);
    return status == CUKERN_OK ? arguments.end(stream) : raise_failure(state, function, status);
}

}  // namespace cukern::py
