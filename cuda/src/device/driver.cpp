#include "device/driver.h"

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>

namespace cukern::cuda {
namespace {

[[gnu::hot]] int current_context(void **context) noexcept {
    static const auto function = look_up<int (*)(void **)>("cuCtxGetCurrent");
    return function != nullptr ? function(context) : cudaErrorNotSupported;
}

// `extra` is what launch_by_driver gives the driver.
cudaError_t launch_with_attributes(void *function, const Grid &grid, cudaStream_t stream, void **extra) noexcept {
    static const auto launch = look_up<decltype(&cuLaunchKernelEx)>("cuLaunchKernelEx");
    if (launch == nullptr) return cudaErrorNotSupported;
    CUlaunchAttribute attributes[2] = {};
    CUlaunchConfig config{};
    if (grid.follows) {
        CUlaunchAttribute &own = attributes[config.numAttrs++];
        own.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        own.value.programmaticStreamSerializationAllowed = 1;
    }
    if (grid.cluster != 1) {
        CUlaunchAttribute &own = attributes[config.numAttrs++];
        own.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        own.value.clusterDim = {grid.cluster, 1, 1};
    }
    config.gridDimX = grid.blocks;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = grid.threads;
    config.sharedMemBytes = grid.shared_bytes;
    config.hStream = stream;
    config.attrs = attributes;
    return static_cast<cudaError_t>(launch(&config, static_cast<CUfunction>(function), nullptr, extra));
}

}  // namespace

void *driver_function(const char *name, unsigned version) noexcept {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    if (cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result) != cudaSuccess)
        cudaGetLastError();
    return found;
}

[[gnu::hot]] LaunchFunction launch_function() noexcept {
    static const auto function = look_up<LaunchFunction>("cuLaunchKernel");
    return function;
}

[[gnu::hot]] cudaError_t launch_by_driver(void *function, const Grid &grid, cudaStream_t stream, void *params,
                                          std::size_t bytes) noexcept {
    // One block of memory takes the driver less time than a list of parameters.
    void *buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END};
    if (grid.cluster != 1 || grid.follows) return launch_with_attributes(function, grid, stream, buffer);
    return static_cast<cudaError_t>(launch_function()(function, grid.blocks, 1, 1, grid.threads, 1, 1,
                                                      grid.shared_bytes, stream, nullptr, buffer));
}

[[gnu::hot]] void *current_context() noexcept {
    void *context = nullptr;
    return current_context(&context) == 0 ? context : nullptr;
}

[[gnu::hot]] void *KernelHandles::in_current_context(const void *symbol, Grid *grid, void **context) noexcept {
    *context = current_context();
    if (*context == nullptr) return nullptr;
    const Handle *handle = first_.load(std::memory_order_acquire);
    while (handle != nullptr && handle->context != *context) handle = handle->next;
    if (handle == nullptr) handle = find(symbol, *grid, *context);
    if (handle == nullptr) return nullptr;
    grid->follows = handle->may_follow;
    return handle->function;
}

const KernelHandles::Handle *KernelHandles::find(const void *symbol, const Grid &grid, void *context) noexcept {
    static const auto set_attribute = look_up<int (*)(void *, int, int)>("cuFuncSetAttribute");
    static const auto attribute_of = look_up<int (*)(int *, int, void *)>("cuFuncGetAttribute");
    static const auto function_of = look_up<int (*)(void **, cudaKernel_t)>("cuKernelGetFunction");
    cudaKernel_t kernel = nullptr;
    if (cudaGetKernel(&kernel, symbol) != cudaSuccess) {
        cudaGetLastError();
        return nullptr;
    }
    void *function = nullptr;
    if (function_of == nullptr || launch_function() == nullptr || function_of(&function, kernel) != 0)
        return nullptr;
    if (grid.shared_bytes > kDeclaredSharedBytes) {
        constexpr int kMostSharedBytes = 8;
        if (set_attribute == nullptr ||
            set_attribute(function, kMostSharedBytes, static_cast<int>(grid.shared_bytes)) != 0)
            return nullptr;
    }
    // The target that the code was written for, which says whether it waits: PTX of an older one may have been
    // compiled for this device.
    constexpr int kPtxVersion = 5;
    constexpr int kLeastToFollow = 90;
    int version = 0;
    if (attribute_of != nullptr && attribute_of(&version, kPtxVersion, function) != 0) version = 0;
    auto *handle = new (std::nothrow)
        Handle{context, function, version >= kLeastToFollow, first_.load(std::memory_order_relaxed)};
    while (handle != nullptr && !first_.compare_exchange_weak(handle->next, handle, std::memory_order_release));
    return handle;
}

namespace {

// The same by the runtime, of a __global__ function.
cudaError_t launch_by_runtime(const void *kernel, const Grid &grid, cudaStream_t stream,
                              void **arguments) noexcept {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {grid.cluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(grid.blocks);
    config.blockDim = dim3(grid.threads);
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = grid.cluster == 1 ? 0 : 1;
    cudaError_t error = cudaSuccess;
    if (grid.shared_bytes > kDeclaredSharedBytes)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(grid.shared_bytes));
    if (error == cudaSuccess) error = cudaLaunchKernelExC(&config, kernel, arguments);
    if (error != cudaSuccess) cudaGetLastError();  // left for nobody else to find
    return error;
}

// Keeps what launch_by_driver has been given, unless the parameter is too long.
void keep_launch(void *function, void *context, const Grid &grid, const void *params, std::size_t bytes,
                 PreparedKernel *prepared) noexcept {
    if (bytes > PreparedKernel::kMostBytes) return;
    prepared->function = function;
    prepared->context = context;
    prepared->blocks = grid.blocks;
    prepared->threads = grid.threads;
    prepared->follows = grid.follows;
    prepared->bytes = bytes;
    std::memcpy(prepared->params, params, bytes);
}

}  // namespace

[[gnu::hot]] cudaError_t launch_kernel(const KernelToLaunch &kernel, Grid grid, cudaStream_t stream, void *params,
                                       std::size_t bytes, PreparedKernel *prepared) noexcept {
    void *context = nullptr;
    void *const function = kernel.handles->in_current_context(kernel.symbol, &grid, &context);
    if (function != nullptr) {
        const cudaError_t error = launch_by_driver(function, grid, stream, params, bytes);
        if (prepared != nullptr && error == cudaSuccess)
            keep_launch(function, context, grid, params, bytes, prepared);
        if (!may_be_outlived(error)) return error;
    }
    void *arguments[] = {params};
    return launch_by_runtime(kernel.symbol, grid, stream, arguments);
}

cudaError_t current_device(int *device) noexcept {
    static const auto device_of_current = look_up<int (*)(int *)>("cuCtxGetDevice");
    void *context = nullptr;
    if (device_of_current != nullptr && current_context(&context) == 0 && context != nullptr &&
        device_of_current(device) == 0)
        return cudaSuccess;
    return cudaGetDevice(device);
}

namespace {

constexpr int kMostDevices = 64;
std::atomic<void *> g_primary[kMostDevices];  // retained for the process

cudaError_t retain_primary(int device, void **context) noexcept {
    static const auto device_handle = look_up<int (*)(int *, int)>("cuDeviceGet");
    static const auto retain = look_up<int (*)(void **, int)>("cuDevicePrimaryCtxRetain");
    if (device < 0 || device >= kMostDevices) return cudaErrorInvalidDevice;
    if (device_handle == nullptr || retain == nullptr) return cudaErrorNotSupported;
    int handle = 0;
    int error = device_handle(&handle, device);
    if (error == 0) error = retain(context, handle);
    if (error == 0) g_primary[device].store(*context, std::memory_order_release);
    return static_cast<cudaError_t>(error);
}

int push(void *context) noexcept {
    static const auto function = look_up<int (*)(void *)>("cuCtxPushCurrent");
    return function != nullptr ? function(context) : cudaErrorNotSupported;
}

}  // namespace

void *primary_context(int device) noexcept {
    return device >= 0 && device < kMostDevices ? g_primary[device].load(std::memory_order_acquire) : nullptr;
}

cudaError_t push_device(int device, bool *pushed) noexcept {
    *pushed = false;
    void *current = nullptr;
    const int error = current_context(&current);
    if (error != 0) return static_cast<cudaError_t>(error);
    void *wanted = primary_context(device);
    if (wanted != nullptr && current == wanted) return cudaSuccess;
    if (wanted == nullptr)
        if (const cudaError_t failed = retain_primary(device, &wanted); failed != cudaSuccess) return failed;
    if (current == wanted) return cudaSuccess;
    int status = push(wanted);
    // Another library may have reset the device: its primary context is made anew.
    if (may_be_outlived(static_cast<cudaError_t>(status)) && retain_primary(device, &wanted) == cudaSuccess)
        status = push(wanted);
    *pushed = status == 0;
    return static_cast<cudaError_t>(status);
}

void pop_device() noexcept {
    static const auto function = look_up<int (*)(void **)>("cuCtxPopCurrent");
    void *popped = nullptr;
    if (function != nullptr) function(&popped);
}

AnyContext::AnyContext() noexcept {
    void *context = nullptr;
    if (current_context(&context) != 0 || context != nullptr) return;
    for (const std::atomic<void *> &primary : g_primary)
        if (void *known = primary.load(std::memory_order_acquire); known != nullptr) {
            pushed_ = push(known) == 0;
            return;
        }
}

cudaError_t pointer_attributes(const void *data, int *kind, bool *managed, int *device) noexcept {
    static const auto function =
        look_up<int (*)(unsigned, int *, void **, std::uintptr_t)>("cuPointerGetAttributes");
    if (function == nullptr) return cudaErrorNotSupported;
    constexpr int kMemoryType = 2;
    constexpr int kIsManaged = 8;
    constexpr int kDeviceOrdinal = 9;
    int attributes[] = {kMemoryType, kIsManaged, kDeviceOrdinal};
    unsigned type = 0;
    unsigned is_managed = 0;
    int ordinal = 0;
    void *values[] = {&type, &is_managed, &ordinal};
    const int error = function(3, attributes, values, reinterpret_cast<std::uintptr_t>(data));
    *kind = static_cast<int>(type);
    *managed = is_managed != 0;
    *device = ordinal;
    return static_cast<cudaError_t>(error);
}

bool is_pinned(const void *data, std::size_t bytes) noexcept {
    static const auto function =
        look_up<int (*)(unsigned, int *, void **, std::uintptr_t)>("cuPointerGetAttributes");
    if (function == nullptr) return false;
    constexpr int kMemoryType = 2;
    constexpr int kDevicePointer = 3;
    constexpr int kIsManaged = 8;
    constexpr int kRangeStart = 11;
    constexpr int kRangeSize = 12;
    int attributes[] = {kMemoryType, kDevicePointer, kIsManaged, kRangeStart, kRangeSize};
    unsigned type = 0;
    std::uintptr_t address = 0;
    unsigned is_managed = 0;
    std::uintptr_t start = 0;
    std::size_t size = 0;
    void *values[] = {&type, &address, &is_managed, &start, &size};
    constexpr unsigned kOfTheHost = 1;
    return function(5, attributes, values, reinterpret_cast<std::uintptr_t>(data)) == 0 && type == kOfTheHost &&
           is_managed == 0 && address - start + bytes <= size;
}

cudaError_t record_context(cudaEvent_t event) noexcept {
    static const auto function = look_up<int (*)(void *, cudaEvent_t)>("cuCtxRecordEvent", 12050);
    void *context = nullptr;
    if (function == nullptr) return cudaErrorNotSupported;
    const int error = current_context(&context);
    return static_cast<cudaError_t>(error == 0 ? function(context, event) : error);
}

}  // namespace cukern::cuda
