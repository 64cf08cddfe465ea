// Functions of the CUDA driver that take less time than the runtime's own, or that it has no form of. Their codes
// are those of cudaError_t.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>

#include "plan/launch.h"

namespace cukern::cuda {

// A function of the driver by its name, or null where it has none.
void *driver_function(const char *name, unsigned version) noexcept;
template <typename Function>
Function look_up(const char *name, unsigned version = 12000) noexcept {
    return reinterpret_cast<Function>(driver_function(name, version));
}

// What a launch may fail with whose context has been destroyed and made anew, as by cudaDeviceReset.
inline bool may_be_outlived(cudaError_t error) noexcept {
    return error == cudaErrorInvalidResourceHandle || error == cudaErrorContextIsDestroyed ||
           error == cudaErrorDeviceUninitialized;
}

using LaunchFunction = int (*)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared_bytes, cudaStream_t stream,
                               void **params, void **extra);

// A line of blocks. So many of them form a cluster, which takes compute capability 9.0; each may have so many
// bytes of shared memory besides what its kernel declares. `follows`: the kernel may be launched before the one
// before it on the stream ends (device/follow.cuh); KernelHandles says whether it may.
struct Grid {
    unsigned blocks;
    unsigned threads;
    unsigned shared_bytes = 0;
    unsigned cluster = 1;
    bool follows = false;
};

// Launches a CUfunction, with one parameter of so many bytes. Only where launch_function() gives one.
cudaError_t launch_by_driver(void *function, const Grid &grid, cudaStream_t stream, void *params,
                             std::size_t bytes) noexcept;

// More shared memory of a block has to be asked for.
constexpr unsigned kDeclaredSharedBytes = 48 << 10;

// The context that is current in this thread, or null.
void *current_context() noexcept;

// cuLaunchKernel, or null where the driver does not give it; looked up once.
LaunchFunction launch_function() noexcept;

// The handles of one kernel, a CUfunction for each context that it has been launched in. They are found once: with
// a CUkernel, which belongs to no context, each launch takes the driver up to 0.4 us to find that again.
class KernelHandles {
public:
    // That of the context which is current. Null where the runtime has to launch: the thread has used no context
    // yet, or the driver is too old. `grid->follows` is set where the device's code of the kernel can wait.
    void *in_current_context(const void *symbol, Grid *grid, void **context) noexcept;

private:
    struct Handle {
        void *context;
        void *function;
        bool may_follow;
        const Handle *next;
    };
    const Handle *find(const void *symbol, const Grid &grid, void *context) noexcept;

    std::atomic<const Handle *> first_{nullptr};  // a list that only grows, by a context at a time
};

// A __global__ function with the handles that are kept for it (device/launch_kernel.h).
struct KernelToLaunch {
    const void *symbol;
    KernelHandles *handles;
};

// Launches it with one parameter of so many bytes. The shared memory of a kernel's blocks is the same at each
// launch on a device. `prepared`, unless it is null, keeps the launch.
cudaError_t launch_kernel(const KernelToLaunch &kernel, Grid grid, cudaStream_t stream, void *params,
                          std::size_t bytes, PreparedKernel *prepared) noexcept;

// The device whose context the thread uses; on a thread that uses none, the runtime's. Neither makes a context.
cudaError_t current_device(int *device) noexcept;

// Makes a device's primary context current, which is where the runtime's streams and memory are. Nothing happens
// where it is current already; else it is pushed onto the caller's own, of whatever kind that is, and `*pushed`
// set.
cudaError_t push_device(int device, bool *pushed) noexcept;
void pop_device() noexcept;
// The one that push_device makes current; null before its first call for the device.
void *primary_context(int device) noexcept;

// For calls that need a context, no matter of which device: on a thread that uses none, one that this library has
// used before, so that the runtime does not make one on its default device.
class AnyContext {
public:
    AnyContext() noexcept;
    ~AnyContext() {
        if (pushed_) pop_device();
    }
    AnyContext(const AnyContext &) = delete;
    AnyContext &operator=(const AnyContext &) = delete;

private:
    bool pushed_ = false;
};

// Where an address is: CUDA's own attributes of it, without a context. `kind`: 0 for memory that CUDA does not
// know, 1 for the host's, 2 for a device's.
cudaError_t pointer_attributes(const void *data, int *kind, bool *managed, int *device) noexcept;

// Whether the host's memory there is pinned from the first byte to the last, as one piece.
bool is_pinned(const void *data, std::size_t bytes) noexcept;

// cuCtxRecordEvent: records `event` after all work of the current device's context.
// cudaErrorNotSupported where the driver is older than 12.5.
cudaError_t record_context(cudaEvent_t event) noexcept;

}  // namespace cukern::cuda
