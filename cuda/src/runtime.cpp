#include "runtime.h"

#include <atomic>

namespace cukern {

using testing::Fault;

namespace {

struct FaultCounter {
    std::atomic<std::int64_t> calls{0};
    std::atomic<int> countdown{0};
};
FaultCounter g_faults[testing::kNumFaults];

// Counts a call; true when a test asked for this one to fail.
bool fails(Fault fault) noexcept {
    FaultCounter &counter = g_faults[static_cast<int>(fault)];
    counter.calls.fetch_add(1, std::memory_order_relaxed);
    if (counter.countdown.load(std::memory_order_relaxed) == 0) return false;
    return counter.countdown.fetch_sub(1, std::memory_order_relaxed) == 1;
}

Status injected(const char *api) noexcept {
    return fail_cuda(CUKERN_CUDA_ERROR, 999, "cudaErrorUnknown", api, "injected by a test");
}

}  // namespace

void testing::inject_fault(Fault fault, int n) noexcept {
    g_faults[static_cast<int>(fault)].countdown.store(n, std::memory_order_relaxed);
}

std::int64_t testing::calls(Fault fault) noexcept {
    return g_faults[static_cast<int>(fault)].calls.load(std::memory_order_relaxed);
}

Status Runtime::allocate_device(std::size_t bytes, void **out) noexcept {
    if (fails(Fault::allocate))
        return fail_cuda(CUKERN_OUT_OF_MEMORY, 2, "cudaErrorMemoryAllocation", "cudaMalloc", "injected by a test");
    return do_allocate_device(bytes, out);
}

Status Runtime::allocate_pinned(std::size_t bytes, void **out) noexcept {
    if (fails(Fault::allocate))
        return fail_cuda(CUKERN_OUT_OF_MEMORY, 2, "cudaErrorMemoryAllocation", "cudaHostAlloc",
                         "injected by a test");
    return do_allocate_pinned(bytes, out);
}

Status Runtime::copy(void *destination, const void *source, std::size_t bytes, Stream stream) noexcept {
    return fails(Fault::copy) ? injected("cudaMemcpyAsync") : do_copy(destination, source, bytes, stream);
}

Status Runtime::create_stream(Stream *out) noexcept {
    return fails(Fault::stream) ? injected("cudaStreamCreateWithFlags") : do_create_stream(out);
}

Status Runtime::synchronize(Stream stream) noexcept {
    return fails(Fault::synchronize) ? injected("cudaStreamSynchronize") : do_synchronize(stream);
}

Status Runtime::create_event(Event *out) noexcept {
    return fails(Fault::event) ? injected("cudaEventCreateWithFlags") : do_create_event(out);
}

Status Runtime::record(Event event, Stream stream) noexcept {
    return fails(Fault::event) ? injected("cudaEventRecord") : do_record(event, stream);
}

Status Runtime::synchronize_event(Event event) noexcept {
    return fails(Fault::synchronize) ? injected("cudaEventSynchronize") : do_synchronize_event(event);
}

Status Runtime::launch_elementwise(const ElementwiseLaunch &launch, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cudaLaunchKernel") : do_launch_elementwise(launch, stream);
}

Status Runtime::launch_matmul(const MatmulLaunch &launch, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cudaLaunchKernel") : do_launch_matmul(launch, stream);
}

Status Runtime::launch_cublas(const MatmulLaunch &launch, int device, Stream stream) noexcept {
    return fails(Fault::launch) ? injected("cublasGemm") : do_launch_cublas(launch, device, stream);
}

}  // namespace cukern
