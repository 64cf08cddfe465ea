// In place of the host back-end's kernels: those of the CUDA back-end, run on the processor.
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "device/kernels.h"
#include "host/kernels.h"

namespace cukern::host {
namespace {

// So that small arrays take the ways of huge ones, a fifth of all reductions is in pieces.
constexpr cuda::ReduceLimits kSmall{3001, 1 << 14, 7};

void check(cudaError_t error) noexcept {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "no kernel takes a launch\n");
    std::abort();
}

// A launch with memory for partial results, which the host back-end is not given.
template <typename Launch, typename Run>
void run_with_scratch(Launch launch, std::size_t bytes, Run run) noexcept {
    launch.scratch = std::malloc(bytes);
    launch.scratch_bytes = static_cast<std::int64_t>(bytes);
    check(run(launch));
    std::free(launch.scratch);
}

}  // namespace

void run_elementwise(const ElementwiseLaunch &launch) noexcept {
    check(cuda::launch_elementwise(launch, nullptr));
}
void run_reduction(const ReduceLaunch &launch) noexcept {
    const cuda::ReduceLimits limits = launch.reduced % 5 == 0 ? kSmall : cuda::ReduceLimits{};
    run_with_scratch(launch, static_cast<std::size_t>(cuda::reduction_scratch(launch, limits)),
                     [&](const ReduceLaunch &with) { return cuda::launch_reduction(with, nullptr, limits); });
}
// None: the calls that would skip the kernels for it take them.
HostLoop elementwise_loop(Op, ElementType) noexcept { return {}; }
bool scans_from(ElementType type, ElementType compute) noexcept { return cuda::scans_from(type, compute); }
void run_scan(const ScanLaunch &launch) noexcept {
    // So that few lines take the ways of very many, some scans are in parts.
    const std::int64_t most = launch.lines % 15 == 0 && launch.lines < 400 ? 7 : cuda::kMostLines;
    run_with_scratch(launch, static_cast<std::size_t>(cuda::scan_scratch(launch)),
                     [&](const ScanLaunch &with) { return cuda::launch_scan(with, nullptr, most); });
}

}  // namespace cukern::host
