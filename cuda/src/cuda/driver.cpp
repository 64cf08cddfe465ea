#include "cuda/driver.h"

#include <new>

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

void *KernelHandles::in_current_context(const void *symbol) noexcept {
    void *context = nullptr;
    if (current_context(&context) != 0 || context == nullptr) return nullptr;
    for (const Handle *handle = first_.load(std::memory_order_acquire); handle != nullptr; handle = handle->next)
        if (handle->context == context) return handle->function;
    return find(symbol, context);
}

void *KernelHandles::find(const void *symbol, void *context) noexcept {
    static const auto function_of = look_up<int (*)(void **, cudaKernel_t)>("cuKernelGetFunction");
    cudaKernel_t kernel = nullptr;
    if (cudaGetKernel(&kernel, symbol) != cudaSuccess) {
        cudaGetLastError();
        return nullptr;
    }
    void *function = nullptr;
    if (function_of == nullptr || launch_function() == nullptr || function_of(&function, kernel) != 0)
        return nullptr;
    auto *handle = new (std::nothrow) Handle{context, function, first_.load(std::memory_order_relaxed)};
    while (handle != nullptr && !first_.compare_exchange_weak(handle->next, handle, std::memory_order_release));
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
