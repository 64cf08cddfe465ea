// Runtime: the one place that knows how to allocate, copy, make streams and events, and launch.
//
// Idea: the public functions count their calls and can be made to fail by tests; the protected virtual ones
// do the work, once for CUDA (device/runtime_cuda.cpp) and once on the CPU (host/runtime_host.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cukern/backend.h"
#include "cukern/memory.h"
#include "cukern/operations.h"
#include "plan/launch.h"

namespace cukern {

class GraphCalls;
class KernelLoader;
class UserKernel;
struct LaunchShape;

enum class CopyKind : std::int8_t { host_to_device, device_to_host, on_device };

// The capture that a stream takes part in.
struct Capture {
    bool is_active = false;
    std::uint64_t id = 0;  // unlike that of every other capture of the process
    void *graph = nullptr;
};

class Runtime {
public:
    Runtime(const Runtime &) = delete;
    Runtime &operator=(const Runtime &) = delete;
    virtual ~Runtime() = default;

    virtual Backend backend() const noexcept = 0;
    // Fails when nothing can work any more: after a sticky error, or in a child of fork.
    virtual Status ready() const noexcept = 0;
    virtual int device_count() const noexcept = 0;
    virtual Status device_info(int device, DeviceInfo *info) noexcept = 0;
    // The calling thread's; asking makes no context.
    virtual Status current_device(int *device) noexcept = 0;
    // Makes a device current. *previous gets what leave_device must restore; it stays as it is if nothing changed.
    virtual Status enter_device(int device, void **previous) noexcept = 0;
    virtual void leave_device(void *previous) noexcept = 0;

    // On the current device. A release cannot usefully fail and returns nothing.
    Status allocate(MemoryKind kind, std::size_t bytes, void **out) noexcept;
    void release(MemoryKind kind, void *data) noexcept;
    // Of the current device, in bytes; 0 when unknown.
    virtual void device_memory(std::int64_t *free, std::int64_t *total) noexcept = 0;
    virtual Status pointer_info(const void *data, PointerInfo *info) noexcept = 0;
    // Whether all these bytes are pinned memory, of whichever library. Asking makes no context.
    virtual bool is_pinned(const void *data, std::size_t bytes) noexcept = 0;

    Status copy(void *destination, const void *source, std::size_t bytes, CopyKind kind, Stream stream) noexcept;
    // Counts bytes that a kernel moves over the link by itself.
    static void count_moved(std::size_t bytes, CopyKind kind) noexcept;

    Status create_stream(bool non_blocking, int priority, Stream *out) noexcept;
    void destroy_stream(Stream stream) noexcept;
    Status synchronize(Stream stream) noexcept;
    Status synchronize_device() noexcept;  // the current one
    virtual Status stream_done(Stream stream, bool *done) noexcept = 0;
    virtual Status is_capturing(Stream stream, bool *capturing) noexcept = 0;
    virtual Status find_capture(Stream stream, Capture *capture) noexcept = 0;
    // Makes the captured graph own `object`: `gone(object)` is called once the graph and its instances are
    // destroyed, on any thread, where CUDA must not be called; after a failure too, at once or later.
    virtual Status own_by_graph(const Capture &capture, void (*gone)(void *object) noexcept,
                                void *object) noexcept = 0;
    // Tells streams apart: a handle is used again after its stream is gone, and the per-thread default stream is
    // one handle for many streams. Not 0, which stands for the legacy default stream.
    virtual std::uint64_t stream_id(Stream stream) noexcept = 0;

    Status create_event(bool timing, Event *out) noexcept;
    void destroy_event(Event event) noexcept;
    Status record(Event event, Stream stream) noexcept;
    // Records the work of all streams of the current device's context (cuCtxRecordEvent).
    Status record_all(Event event) noexcept;
    Status wait_event(Stream stream, Event event) noexcept;
    Status synchronize_event(Event event) noexcept;
    virtual Status event_done(Event event, bool *done) noexcept = 0;
    virtual Status event_elapsed(Event begin, Event end, float *milliseconds) noexcept = 0;

    Status launch_elementwise(const ElementwiseLaunch &launch, Stream stream) noexcept;
    // Makes a launch again that was kept, unless its context is gone or another is current: whether it did. It
    // fails where ready() does.
    virtual bool launch_prepared(PreparedKernel &kernel, Stream stream, Status *status) noexcept = 0;
    // The scratch memory that a reduction takes, in bytes.
    virtual std::int64_t reduction_scratch(const ReduceLaunch &launch) const noexcept = 0;
    // Whether scans read elements of a type as they are stored; else they are converted first.
    virtual bool scans_from(ElementType type, ElementType compute) const noexcept = 0;
    virtual std::int64_t scan_scratch(const ScanLaunch &launch) const noexcept = 0;
    // The scratch memory that launch_matmul needs, in bytes.
    virtual Status matmul_scratch(const MatmulLaunch &launch, std::int64_t *bytes) const noexcept = 0;
    Status launch_reduction(const ReduceLaunch &launch, Stream stream) noexcept;
    Status launch_scan(const ScanLaunch &launch, Stream stream) noexcept;
    Status launch_matmul(const MatmulLaunch &launch, Stream stream) noexcept;
    // A product by cuBLAS, which must be open.
    Status launch_cublas(const MatmulLaunch &launch, int device, Stream stream) noexcept;
    // For kernels that users bring; null: the back-end has none.
    virtual KernelLoader *kernel_loader() noexcept { return nullptr; }
    // For graphs; null: the back-end has none.
    virtual GraphCalls *graph_calls() noexcept { return nullptr; }
    Status launch_graph(void *executable, Stream stream) noexcept;
    Status launch_user_kernel(UserKernel &kernel, const LaunchShape &shape, const void *parameters, int device,
                              Stream stream) noexcept;

protected:
    Runtime() = default;
    // Counts a launch by `api`; an error where a test makes it fail.
    static Status count_launch(const char *api) noexcept;
    virtual Status do_allocate(MemoryKind kind, std::size_t bytes, void **out) noexcept = 0;
    virtual void do_release(MemoryKind kind, void *data) noexcept = 0;
    virtual void do_destroy_stream(Stream stream) noexcept = 0;
    virtual void do_destroy_event(Event event) noexcept = 0;
    virtual Status do_copy(void *destination, const void *source, std::size_t bytes, Stream stream) noexcept = 0;
    virtual Status do_create_stream(bool non_blocking, int priority, Stream *out) noexcept = 0;
    virtual Status do_synchronize(Stream stream) noexcept = 0;
    virtual Status do_synchronize_device() noexcept = 0;
    virtual Status do_create_event(bool timing, Event *out) noexcept = 0;
    virtual Status do_record(Event event, Stream stream) noexcept = 0;
    virtual Status do_record_all(Event event) noexcept = 0;
    virtual Status do_wait_event(Stream stream, Event event) noexcept = 0;
    virtual Status do_synchronize_event(Event event) noexcept = 0;
    virtual Status do_launch_elementwise(const ElementwiseLaunch &launch, Stream stream) noexcept = 0;
    virtual Status do_launch_reduction(const ReduceLaunch &launch, Stream stream) noexcept = 0;
    virtual Status do_launch_scan(const ScanLaunch &launch, Stream stream) noexcept = 0;
    virtual Status do_launch_matmul(const MatmulLaunch &launch, Stream stream) noexcept = 0;
    virtual Status do_launch_cublas(const MatmulLaunch &launch, int device, Stream stream) noexcept = 0;
};

// For counters(): an allocation that a pool served, and a call on arrays in host memory.
void count_free_list_hit() noexcept;
void count_call(Placement placement) noexcept;

// Makes `device` current for a scope, and the caller's own again after it.
class DeviceGuard {
public:
    DeviceGuard(Runtime &runtime, int device) noexcept
        : runtime_(runtime), status_(runtime.enter_device(device, &previous_)) {}
    ~DeviceGuard() {
        if (previous_ != nullptr) runtime_.leave_device(previous_);
    }
    DeviceGuard(const DeviceGuard &) = delete;
    DeviceGuard &operator=(const DeviceGuard &) = delete;
    Status status() const noexcept { return status_; }

private:
    Runtime &runtime_;
    void *previous_ = nullptr;
    Status status_;
};

// The implementations; each is made once. make_cuda_runtime fails, with its reason as the last error, where
// there is no usable device or the build has no CUDA.
Status make_host_runtime(Runtime **out) noexcept;
enum class CudaProbe { usable, no_driver, no_device, broken };
CudaProbe probe_cuda(char *reason, std::size_t size) noexcept;
Status make_cuda_runtime(Runtime **out) noexcept;

}  // namespace cukern
