// Elementwise operations on the CPU: shared out among the threads.
#include "host/kernels.h"
#include "host/thread_pool.h"

namespace cukern::host {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements below which a second thread costs more than it saves

RangeFunction find_range(Op op, ElementType compute) noexcept {
    switch (compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: return range_function<ctype>(op);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return nullptr;
}

}  // namespace

void run_elementwise(const ElementwiseLaunch &launch) noexcept {
    const RangeFunction function =
        find_range(launch.op, is_logical(launch.op) ? ElementType::bool_ : launch.compute);
    if (function == nullptr) return;
    parallel_for(launch.count, kGrain,
                 [&](std::int64_t begin, std::int64_t end) { function(launch, begin, end); });
}

}  // namespace cukern::host
