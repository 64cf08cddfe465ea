// In place of the host back-end's kernels: those of the CUDA back-end, run on the processor.
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "device/kernels.h"
#include "host/kernels.h"

namespace cukern::host {
namespace {

constexpr std::size_t kScratchBytes = 4 << 20;

void check(cudaError_t error) noexcept {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "no kernel takes a launch\n");
    std::abort();
}

// Memory for partial results, which the host back-end is not given.
template <typename Launch>
void run_with_scratch(Launch launch, cudaError_t (*run)(const Launch &, cudaStream_t) noexcept) noexcept {
    launch.scratch = std::malloc(kScratchBytes);
    launch.scratch_bytes = kScratchBytes;
    check(run(launch, nullptr));
    std::free(launch.scratch);
}

}  // namespace

void run_elementwise(const ElementwiseLaunch &launch) noexcept {
    check(cuda::launch_elementwise(launch, nullptr));
}
void run_reduction(const ReduceLaunch &launch) noexcept { run_with_scratch(launch, cuda::launch_reduction); }
void run_scan(const ScanLaunch &launch) noexcept { run_with_scratch(launch, cuda::launch_scan); }

}  // namespace cukern::host
