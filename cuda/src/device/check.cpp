#include "device/check.h"

#include <atomic>
#include <mutex>

#include "runtime/fork_mutex.h"

namespace cukern::cuda {
namespace {

std::atomic<bool> g_lost{false};
ForkMutex g_mutex;
ErrorRecord g_first;

// The errors after which CUDA's documentation says that the process must be ended.
bool is_sticky(cudaError_t error) noexcept {
    switch (error) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case cudaErrorAssert:
        case cudaErrorECCUncorrectable:
        case cudaErrorNvlinkUncorrectable:
        case cudaErrorContained:
        case cudaErrorExternalDevice: return true;
        default: return false;
    }
}

}  // namespace

Status record_failure(cudaError_t error, const char *api) noexcept {
    cudaGetLastError();  // a failure that is reported once must not be found again by the next launch
    if (!is_sticky(error)) {
        const Status status = error == cudaErrorMemoryAllocation ? CUKERN_OUT_OF_MEMORY : CUKERN_CUDA_ERROR;
        return fail_cuda(status, error, cudaGetErrorName(error), api, cudaGetErrorString(error));
    }
    fail_cuda(CUKERN_DEVICE_LOST, error, cudaGetErrorName(error), api, cudaGetErrorString(error));
    const std::lock_guard lock(g_mutex);
    if (!g_lost.load(std::memory_order_relaxed)) {
        g_first = last_error();
        g_lost.store(true, std::memory_order_release);
    }
    return CUKERN_DEVICE_LOST;
}

[[gnu::hot]] Status lost_status() noexcept {
    if (!g_lost.load(std::memory_order_acquire)) return CUKERN_OK;
    const std::lock_guard lock(g_mutex);
    set_last_error(g_first);
    return CUKERN_DEVICE_LOST;
}

}  // namespace cukern::cuda
