#include "cuda/driver.h"

namespace cukern::cuda {
namespace {

template <typename Function>
Function look_up(const char *name, unsigned version = 12000) noexcept {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    if (cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result) != cudaSuccess)
        cudaGetLastError();
    return reinterpret_cast<Function>(found);
}

int current_context(void **context) noexcept {
    static const auto function = look_up<int (*)(void **)>("cuCtxGetCurrent");
    return function != nullptr ? function(context) : cudaErrorNotSupported;
}

}  // namespace

LaunchFunction launch_function() noexcept {
    static const auto function = look_up<LaunchFunction>("cuLaunchKernel");
    return function;
}

cudaError_t current_device(int *device) noexcept {
    static const auto device_of_current = look_up<int (*)(int *)>("cuCtxGetDevice");
    void *context = nullptr;
    if (device_of_current != nullptr && current_context(&context) == 0 && context != nullptr &&
        device_of_current(device) == 0)
        return cudaSuccess;
    const cudaError_t error = cudaGetDevice(device);
    return error == cudaSuccess ? cudaSetDevice(*device) : error;
}

cudaError_t record_context(cudaEvent_t event) noexcept {
    static const auto function = look_up<int (*)(void *, cudaEvent_t)>("cuCtxRecordEvent", 12050);
    void *context = nullptr;
    if (function == nullptr) return cudaErrorNotSupported;
    const int error = current_context(&context);
    return static_cast<cudaError_t>(error == 0 ? function(context, event) : error);
}

}  // namespace cukern::cuda
