// Functions of the CUDA driver that take less time than the runtime's own, or that it has no form of. Their codes
// are those of cudaError_t.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

namespace cukern::cuda {

using LaunchFunction = int (*)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared_bytes, cudaStream_t stream,
                               void **params, void **extra);

// cuLaunchKernel, or null where the driver does not give it; looked up once.
LaunchFunction launch_function() noexcept;

// The handles of one kernel, a CUfunction for each context that it has been launched in. They are found once: with
// a CUkernel, which belongs to no context, each launch takes the driver up to 0.4 us to find that again.
class KernelHandles {
public:
    // That of the context which is current. Null where the runtime has to launch: the thread has used no context
    // yet, or the driver is too old.
    void *in_current_context(const void *symbol) noexcept;

private:
    struct Handle {
        void *context;
        void *function;
        const Handle *next;
    };
    void *find(const void *symbol, void *context) noexcept;

    std::atomic<const Handle *> first_{nullptr};  // a list that only grows, by a context at a time
};

// The device whose context the thread uses. On a thread that uses none yet, that of the runtime's device becomes
// current, since the driver's functions want one.
cudaError_t current_device(int *device) noexcept;

// cuCtxRecordEvent: records `event` behind all that the current device's context has been asked for.
// cudaErrorNotSupported where the driver is older than 12.5.
cudaError_t record_context(cudaEvent_t event) noexcept;

}  // namespace cukern::cuda
