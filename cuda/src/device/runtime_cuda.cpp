// The CUDA back-end: every call of the CUDA runtime but cuBLAS's is made here or in a launcher.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <new>

#include "device/check.h"
#include "device/driver.h"
#include "device/graphs.h"
#include "device/kernels.h"
#include "device/matmul/cublas.h"
#include "device/matmul/own_product.h"
#include "device/outside_captures.h"
#include "device/user_kernels.h"
#include "runtime/runtime.h"

namespace cukern {
namespace {

using cuda::check;

std::atomic<bool> g_forked{false};

void note_fork() noexcept { g_forked.store(true, std::memory_order_relaxed); }

cudaStream_t native(Stream stream) noexcept { return static_cast<cudaStream_t>(stream); }
cudaEvent_t native_event(Event event) noexcept { return static_cast<cudaEvent_t>(event); }

class CudaRuntime final : public Runtime {
public:
    explicit CudaRuntime(int devices) noexcept : devices_(devices) {}

    Backend backend() const noexcept override { return Backend::cuda; }
    int device_count() const noexcept override { return devices_; }
    GraphCalls *graph_calls() noexcept override { return cuda::graph_calls(); }
    KernelLoader *kernel_loader() noexcept override { return cuda::user_kernel_loader(); }

    Status ready() const noexcept override {
        if (g_forked.load(std::memory_order_relaxed))
            return fail(
                CUKERN_FORKED,
                "this process was forked after its parent had used the GPU, and CUDA does not survive a fork: "
                "start workers with multiprocessing.get_context('spawn')");
        return cuda::lost_status();
    }

    Status device_info(int device, DeviceInfo *info) noexcept override {
        cudaDeviceProp properties{};
        CUKERN_TRY(check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
        *info = {};
        std::snprintf(info->name, sizeof info->name, "%s", properties.name);
        info->memory = properties.totalGlobalMem;
        info->capability_major = properties.major;
        info->capability_minor = properties.minor;
        info->multiprocessors = properties.multiProcessorCount;
        return CUKERN_OK;
    }

    Status current_device(int *device) noexcept override {
        return check(cuda::current_device(device), "cudaGetDevice");
    }
    Status enter_device(int device, void **previous) noexcept override {
        bool pushed = false;
        const Status status = check(cuda::push_device(device, &pushed), "cuCtxPushCurrent");
        if (pushed) *previous = this;  // anything but null
        return status;
    }
    void leave_device(void *) noexcept override { cuda::pop_device(); }

    std::uint64_t stream_id(Stream stream) noexcept override {
        unsigned long long id = 0;
        quiet(cudaStreamGetId(native(stream), &id));
        return id + 1;  // 0 is the legacy default stream's
    }

    void device_memory(std::int64_t *free, std::int64_t *total) noexcept override {
        std::size_t f = 0;
        std::size_t t = 0;
        quiet(cudaMemGetInfo(&f, &t));
        *free = static_cast<std::int64_t>(f);
        *total = static_cast<std::int64_t>(t);
    }

    Status pointer_info(const void *data, PointerInfo *info) noexcept override {
        int kind = 0;
        bool managed = false;
        *info = {};
        CUKERN_TRY(
            check(cuda::pointer_attributes(data, &kind, &managed, &info->device), "cuPointerGetAttributes"));
        info->known = kind != 0;
        info->kind = managed ? MemoryKind::managed : kind == 1 ? MemoryKind::pinned : MemoryKind::device;
        return CUKERN_OK;
    }

    bool is_pinned(const void *data, std::size_t bytes) noexcept override { return cuda::is_pinned(data, bytes); }

    Status stream_done(Stream stream, bool *done) noexcept override {
        const cuda::AnyContext any;
        const cuda::OutsideCaptures outside;
        const cudaError_t error = cudaStreamQuery(native(stream));
        return is_done(error, "cudaStreamQuery", done);
    }

    Status is_capturing(Stream stream, bool *capturing) noexcept override {
        const cuda::AnyContext any;
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        CUKERN_TRY(check(cudaStreamIsCapturing(native(stream), &status), "cudaStreamIsCapturing"));
        *capturing = status != cudaStreamCaptureStatusNone;
        return CUKERN_OK;
    }

    Status find_capture(Stream stream, Capture *capture) noexcept override {
        const cuda::AnyContext any;
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long id = 0;
        cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
        const cudaError_t error = cudaStreamGetCaptureInfo(native(stream), &status, &id, &graph);
#else
        const cudaError_t error = cudaStreamGetCaptureInfo_v2(native(stream), &status, &id, &graph);
#endif
        *capture = {};
        CUKERN_TRY(check(error, "cudaStreamGetCaptureInfo"));
        capture->is_active = status == cudaStreamCaptureStatusActive;
        capture->id = id;
        capture->graph = graph;
        if (status == cudaStreamCaptureStatusInvalidated)
            return fail(CUKERN_CAPTURING, "the stream's capture has been invalidated by an earlier error");
        return CUKERN_OK;
    }

    Status own_by_graph(const Capture &capture, void (*gone)(void *) noexcept, void *owner) noexcept override {
        cudaUserObject_t object = nullptr;
        cudaError_t error = cudaUserObjectCreate(&object, owner, gone, 1, cudaUserObjectNoDestructorSync);
        if (error != cudaSuccess) {
            gone(owner);
            return check(error, "cudaUserObjectCreate");
        }
        error =
            cudaGraphRetainUserObject(static_cast<cudaGraph_t>(capture.graph), object, 1, cudaGraphUserObjectMove);
        // The object goes by its only reference, and CUDA calls `gone` on its own thread.
        if (error != cudaSuccess) quiet(cudaUserObjectRelease(object, 1));
        return error == cudaSuccess ? CUKERN_OK : check(error, "cudaGraphRetainUserObject");
    }

    Status event_done(Event event, bool *done) noexcept override {
        const cuda::AnyContext any;
        const cuda::OutsideCaptures outside;
        const cudaError_t error = cudaEventQuery(native_event(event));
        return is_done(error, "cudaEventQuery", done);
    }

    Status event_elapsed(Event begin, Event end, float *milliseconds) noexcept override {
        const cuda::AnyContext any;
        return check(cudaEventElapsedTime(milliseconds, native_event(begin), native_event(end)),
                     "cudaEventElapsedTime");
    }

protected:
    void do_release(MemoryKind kind, void *data) noexcept override {
        const cuda::AnyContext any;
        const cuda::OutsideCaptures outside;
        quiet(kind == MemoryKind::pinned ? cudaFreeHost(data) : cudaFree(data));
    }
    void do_destroy_stream(Stream stream) noexcept override {
        const cuda::AnyContext any;
        cuda::cublas_forget(stream);
        quiet(cudaStreamDestroy(native(stream)));
    }
    void do_destroy_event(Event event) noexcept override {
        const cuda::AnyContext any;
        quiet(cudaEventDestroy(native_event(event)));
    }

    Status do_allocate(MemoryKind kind, std::size_t bytes, void **out) noexcept override {
        const cuda::OutsideCaptures outside;
        switch (kind) {
            case MemoryKind::device: return check(cudaMalloc(out, bytes), "cudaMalloc");
            case MemoryKind::managed: return check(cudaMallocManaged(out, bytes), "cudaMallocManaged");
            case MemoryKind::pinned: break;
        }
        return check(cudaHostAlloc(out, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
    }

    Status do_copy(void *destination, const void *source, std::size_t bytes, Stream stream) noexcept override {
        return check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, native(stream)),
                     "cudaMemcpyAsync");
    }

    Status do_create_stream(bool non_blocking, int priority, Stream *out) noexcept override {
        cudaStream_t stream = nullptr;
        const unsigned flags = non_blocking ? cudaStreamNonBlocking : cudaStreamDefault;
        CUKERN_TRY(check(cudaStreamCreateWithPriority(&stream, flags, priority), "cudaStreamCreateWithPriority"));
        *out = stream;
        return CUKERN_OK;
    }

    Status do_synchronize(Stream stream) noexcept override {
        const cuda::OutsideCaptures outside;
        return check(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize");
    }

    Status do_synchronize_device() noexcept override {
        return check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }

    Status do_create_event(bool timing, Event *out) noexcept override {
        cudaEvent_t event = nullptr;
        const unsigned flags = timing ? cudaEventDefault : cudaEventDisableTiming;
        CUKERN_TRY(check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags"));
        *out = event;
        return CUKERN_OK;
    }

    Status do_record(Event event, Stream stream) noexcept override {
        return check(cudaEventRecord(native_event(event), native(stream)), "cudaEventRecord");
    }

    Status do_record_all(Event event) noexcept override {
        const cudaError_t error = cuda::record_context(native_event(event));
        if (error == cudaSuccess) return CUKERN_OK;
        if (error == cudaErrorNotSupported) return fail(CUKERN_NOT_SUPPORTED, "the driver lacks cuCtxRecordEvent");
        return fail_cuda(CUKERN_CUDA_ERROR, error, "CUresult", "cuCtxRecordEvent", "a call of the driver failed");
    }

    Status do_wait_event(Stream stream, Event event) noexcept override {
        return check(cudaStreamWaitEvent(native(stream), native_event(event), 0), "cudaStreamWaitEvent");
    }

    Status do_synchronize_event(Event event) noexcept override {
        const cuda::AnyContext any;
        const cuda::OutsideCaptures outside;
        return check(cudaEventSynchronize(native_event(event)), "cudaEventSynchronize");
    }

    Status do_launch_elementwise(const ElementwiseLaunch &launch, Stream stream) noexcept override {
        return check(cuda::launch_elementwise(launch, native(stream)), "cudaLaunchKernel");
    }

    [[gnu::hot]] bool launch_prepared(PreparedKernel &kernel, Stream stream, Status *status) noexcept override {
        *status = ready();  // before any call of the driver, which does not survive a fork
        if (*status != CUKERN_OK) return true;
        if (cuda::current_context() != kernel.context) return false;
        const char *const call = kernel.follows ? "cuLaunchKernelEx" : "cuLaunchKernel";
        *status = count_launch(call);
        if (*status != CUKERN_OK) return true;
        const cudaError_t error =
            cuda::launch_by_driver(kernel.function, {kernel.blocks, kernel.threads, 0, 1, kernel.follows},
                                   native(stream), kernel.params, kernel.bytes);
        if (cuda::may_be_outlived(error)) return false;
        *status = check(error, call);
        return true;
    }

    std::int64_t reduction_scratch(const ReduceLaunch &launch) const noexcept override {
        return cuda::reduction_scratch(launch);
    }

    Status do_launch_reduction(const ReduceLaunch &launch, Stream stream) noexcept override {
        return check(cuda::launch_reduction(launch, native(stream)), "cudaLaunchKernel");
    }

    bool scans_from(ElementType type, ElementType compute) const noexcept override {
        return cuda::scans_from(type, compute);
    }

    std::int64_t scan_scratch(const ScanLaunch &launch) const noexcept override {
        return cuda::scan_scratch(launch);
    }

    Status do_launch_scan(const ScanLaunch &launch, Stream stream) noexcept override {
        return check(cuda::launch_scan(launch, native(stream)), "cudaLaunchKernel");
    }

    Status matmul_scratch(const MatmulLaunch &launch, std::int64_t *bytes) const noexcept override {
        cuda::Chip chip{};
        CUKERN_TRY(check(cuda::current_chip(&chip), "cudaDeviceGetAttribute"));
        *bytes = cuda::own_product_scratch(launch, chip);
        return CUKERN_OK;
    }

    Status do_launch_matmul(const MatmulLaunch &launch, Stream stream) noexcept override {
        cuda::Chip chip{};
        CUKERN_TRY(check(cuda::current_chip(&chip), "cudaDeviceGetAttribute"));
        return check(cuda::launch_own_product(launch, chip, native(stream)), "cudaLaunchKernel");
    }

    Status do_launch_cublas(const MatmulLaunch &launch, int device, Stream stream) noexcept override {
        return cuda::cublas_gemm(launch, device, stream);
    }

private:
    static Status is_done(cudaError_t error, const char *api, bool *done) noexcept {
        *done = error == cudaSuccess;
        if (error == cudaSuccess) return CUKERN_OK;
        if (error == cudaErrorNotReady) {
            cudaGetLastError();
            return CUKERN_OK;
        }
        return check(error, api);
    }

    // What is closed quietly must not leave its error for the next launch to find.
    static void quiet(cudaError_t error) noexcept {
        if (error != cudaSuccess) cudaGetLastError();
    }

    const int devices_;
};

bool driver_library_present() noexcept {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return false;
    dlclose(library);
    return true;
}

}  // namespace

// The device answers; can it run what was built?
static CudaProbe probe_device(char *reason, std::size_t size) noexcept {
    const cudaError_t error = cuda::probe_kernels();
    cudaGetLastError();
    if (error == cudaSuccess) return CudaProbe::usable;
    int device = 0;
    cudaDeviceProp properties{};
    if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        cudaGetLastError();
        properties = {};
    }
    std::snprintf(
        reason, size,
        "device %d (%s, compute capability %d.%d) cannot run cukern's kernels: %s (%d): %s; a build with "
        "CUKERN_CUDA_ARCHS=%d%d has them, if the CUDA toolkit supports it",
        device, properties.name, properties.major, properties.minor, cudaGetErrorName(error),
        static_cast<int>(error), cudaGetErrorString(error), properties.major, properties.minor);
    return CudaProbe::broken;
}

CudaProbe probe_cuda(char *reason, std::size_t size) noexcept {
    if (!driver_library_present()) {
        std::snprintf(reason, size, "no NVIDIA driver is installed (libcuda.so.1 was not found)");
        return CudaProbe::no_driver;
    }
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    cudaGetLastError();
    if (error == cudaSuccess && devices > 0) return probe_device(reason, size);
    if (error == cudaSuccess || error == cudaErrorNoDevice) {
        std::snprintf(reason, size, "the NVIDIA driver finds no device (is CUDA_VISIBLE_DEVICES empty?)");
        return CudaProbe::no_device;
    }
    const int driver = driver_version();
    const int runtime = runtime_version();
    if (error == cudaErrorInsufficientDriver)
        std::snprintf(reason, size,
                      "the NVIDIA driver supports CUDA %d.%d, and cukern needs %d.%d: update the driver, or set "
                      "CUKERN_BACKEND=host to use the CPU without this warning",
                      driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else
        std::snprintf(
            reason, size,
            "cudaGetDeviceCount failed: %s (%d): %s (if this process was forked after its parent had used "
            "the GPU, start it with multiprocessing's 'spawn' instead)",
            cudaGetErrorName(error), static_cast<int>(error), cudaGetErrorString(error));
    return CudaProbe::broken;
}

Status make_cuda_runtime(Runtime **out) noexcept {
    *out = nullptr;
    char reason[1000] = {};
    if (probe_cuda(reason, sizeof reason) != CudaProbe::usable) return fail(CUKERN_NO_BACKEND, "%s", reason);
    int devices = 0;
    CUKERN_TRY(check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount"));
    pthread_atfork(nullptr, nullptr, note_fork);
    *out = new (std::nothrow) CudaRuntime(devices);
    return *out != nullptr ? CUKERN_OK : fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
}

int driver_version() noexcept {
    int version = 0;
    if (cudaDriverGetVersion(&version) != cudaSuccess) cudaGetLastError();
    return version;
}

int runtime_version() noexcept {
    int version = 0;
    if (cudaRuntimeGetVersion(&version) != cudaSuccess) cudaGetLastError();
    return version;
}

}  // namespace cukern
