#include "runtime/runtime.h"

#include <atomic>

#include "cukern/host_loops.h"
#include "cukern/testing.h"
#include "runtime/graph_calls.h"
#include "runtime/kernel_loader.h"

namespace cukern {

using testing::fails;
using testing::Fault;
using testing::Resource;

namespace {

struct FaultCounter {
    std::atomic<std::int64_t> calls{0};
    std::atomic<int> countdown{0};
};
FaultCounter g_faults[testing::kNumFaults];

std::atomic<std::int64_t> g_moved[3];  // bytes by CopyKind
std::atomic<std::int64_t> g_free_list_hits{0};
std::atomic<std::int64_t> g_calls[3];  // on arrays in host memory, by Placement

std::atomic<std::int64_t> g_held[testing::kNumResources];

std::atomic<std::int64_t> &held_count(testing::Resource resource) noexcept {
    return g_held[static_cast<int>(resource)];
}

// Counts a resource that was made, and one that is given back.
Status made(testing::Resource resource, Status status) noexcept {
    if (status == CUKERN_OK) held_count(resource).fetch_add(1, std::memory_order_relaxed);
    return status;
}

void gone(testing::Resource resource) noexcept { held_count(resource).fetch_sub(1, std::memory_order_relaxed); }

Status injected(const char *api) noexcept {
    return fail_cuda(CUKERN_CUDA_ERROR, 999, "cudaErrorUnknown", api, "injected by a test");
}

}  // namespace

void testing::inject_fault(Fault fault, int n) noexcept {
    g_faults[static_cast<int>(fault)].countdown.store(n, std::memory_order_relaxed);
}

[[gnu::hot]] bool testing::fails(Fault fault) noexcept {
    FaultCounter &counter = g_faults[static_cast<int>(fault)];
    counter.calls.fetch_add(1, std::memory_order_relaxed);
    if (counter.countdown.load(std::memory_order_relaxed) <= 0) return false;
    return counter.countdown.fetch_sub(1, std::memory_order_relaxed) == 1 || fault == Fault::pinned;
}

std::int64_t testing::calls(Fault fault) noexcept {
    return g_faults[static_cast<int>(fault)].calls.load(std::memory_order_relaxed);
}

std::int64_t testing::held(Resource resource) noexcept {
    return held_count(resource).load(std::memory_order_relaxed);
}

Counters counters() noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    Counters c;
    c.launches = testing::calls(Fault::launch);
    c.synchronizations = testing::calls(Fault::synchronize);
    c.host_to_device = g_moved[static_cast<int>(CopyKind::host_to_device)].load(relaxed);
    c.device_to_host = g_moved[static_cast<int>(CopyKind::device_to_host)].load(relaxed);
    c.driver_allocations = testing::calls(Fault::allocate);
    c.free_list_hits = g_free_list_hits.load(relaxed);
    c.calls_on_host = g_calls[static_cast<int>(Placement::host)].load(relaxed);
    c.calls_on_device = g_calls[static_cast<int>(Placement::device)].load(relaxed);
    return c;
}

void count_free_list_hit() noexcept { g_free_list_hits.fetch_add(1, std::memory_order_relaxed); }

void count_call(Placement placement) noexcept {
    g_calls[static_cast<int>(placement)].fetch_add(1, std::memory_order_relaxed);
}

void Runtime::count_moved(std::size_t bytes, CopyKind kind) noexcept {
    g_moved[static_cast<int>(kind)].fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

void Runtime::release(MemoryKind kind, void *data) noexcept {
    gone(Resource::memory);
    do_release(kind, data);
}

void Runtime::destroy_stream(Stream stream) noexcept {
    gone(Resource::stream);
    do_destroy_stream(stream);
}

void Runtime::destroy_event(Event event) noexcept {
    gone(Resource::event);
    do_destroy_event(event);
}

Status Runtime::allocate(MemoryKind kind, std::size_t bytes, void **out) noexcept {
    if (fails(Fault::allocate) || (kind == MemoryKind::pinned && fails(Fault::pinned)))
        return fail_cuda(CUKERN_OUT_OF_MEMORY, 2, "cudaErrorMemoryAllocation",
                         kind == MemoryKind::pinned    ? "cudaHostAlloc"
                         : kind == MemoryKind::managed ? "cudaMallocManaged"
                                                       : "cudaMalloc",
                         "injected by a test");
    return made(Resource::memory, do_allocate(kind, bytes, out));
}

Status Runtime::copy(void *destination, const void *source, std::size_t bytes, CopyKind kind,
                     Stream stream) noexcept {
    if (fails(Fault::copy)) return injected("cudaMemcpyAsync");
    count_moved(bytes, kind);
    return do_copy(destination, source, bytes, stream);
}

Status Runtime::create_stream(bool non_blocking, int priority, Stream *out) noexcept {
    return fails(Fault::stream) ? injected("cudaStreamCreateWithPriority")
                                : made(Resource::stream, do_create_stream(non_blocking, priority, out));
}

Status Runtime::synchronize(Stream stream) noexcept {
    return fails(Fault::synchronize) ? injected("cudaStreamSynchronize") : do_synchronize(stream);
}

Status Runtime::synchronize_device() noexcept {
    if (any_graph_captured())
        return fail(CUKERN_CAPTURING, "a graph is being captured, which a wait for the whole device would end");
    return fails(Fault::synchronize) ? injected("cudaDeviceSynchronize") : do_synchronize_device();
}

Status Runtime::create_event(bool timing, Event *out) noexcept {
    return fails(Fault::event) ? injected("cudaEventCreateWithFlags")
                               : made(Resource::event, do_create_event(timing, out));
}

Status Runtime::record(Event event, Stream stream) noexcept {
    return fails(Fault::event) ? injected("cudaEventRecord") : do_record(event, stream);
}

Status Runtime::record_all(Event event) noexcept {
    return fails(Fault::event) ? injected("cuCtxRecordEvent") : do_record_all(event);
}

Status Runtime::wait_event(Stream stream, Event event) noexcept {
    return fails(Fault::event) ? injected("cudaStreamWaitEvent") : do_wait_event(stream, event);
}

Status Runtime::synchronize_event(Event event) noexcept {
    return fails(Fault::synchronize) ? injected("cudaEventSynchronize") : do_synchronize_event(event);
}

Status Runtime::launch_elementwise(const ElementwiseLaunch &launch, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cudaLaunchKernel") : do_launch_elementwise(launch, stream);
}

[[gnu::hot]] Status Runtime::count_launch(const char *api) noexcept {
    return fails(Fault::launch) ? injected(api) : CUKERN_OK;
}

Status call_brief_loop(const HostLoop &loop, char **data, std::int64_t count,
                       const std::intptr_t *strides) noexcept {
    if (testing::fails(Fault::launch)) return injected("cudaLaunchKernel");
    count_call(Placement::host);
    loop.function(data, &count, strides, loop.context);
    return CUKERN_OK;
}

Status Runtime::launch_reduction(const ReduceLaunch &launch, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cudaLaunchKernel") : do_launch_reduction(launch, stream);
}

Status Runtime::launch_scan(const ScanLaunch &launch, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cudaLaunchKernel") : do_launch_scan(launch, stream);
}

Status Runtime::launch_matmul(const MatmulLaunch &launch, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cudaLaunchKernel") : do_launch_matmul(launch, stream);
}

Status Runtime::launch_cublas(const MatmulLaunch &launch, int device, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cublasGemm") : do_launch_cublas(launch, device, stream);
}

Status Runtime::launch_graph(void *executable, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cudaGraphLaunch") : graph_calls()->launch(executable, stream);
}

Status Runtime::launch_user_kernel(UserKernel &kernel, const LaunchShape &shape, const void *parameters,
                                   int device, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cuLaunchKernel")
                                : kernel_loader()->launch(kernel, shape, parameters, device, stream);
}

}  // namespace cukern
