// Running results on the CPU: a thread takes a line at a time, from its first element to its last.
#include <algorithm>

#include "host/kernels.h"
#include "host/thread_pool.h"
#include "reducers.cuh"

namespace cukern::host {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements below which a second thread costs more than it saves

template <Op op, typename T>
void scan_line(const ScanLaunch &launch, std::int64_t line) noexcept {
    using F = Reducer<op, T>;
    std::int64_t in = 0;
    std::int64_t rest = line;
    for (int d = launch.num_kept - 1; d >= 0; --d) {
        in += rest % launch.kept_shape[d] * launch.kept_strides[d];
        rest /= launch.kept_shape[d];
    }
    T *out =
        static_cast<T *>(launch.out) + line / launch.inner * launch.inner * launch.length + line % launch.inner;
    typename F::A running{};
    for (std::int64_t i = 0; i < launch.length; ++i) {
        const auto element = F::of(load_as<T>(launch.in, launch.type, in + i * launch.stride), i);
        running = i == 0 ? element : F::join(running, element);
        out[i * launch.inner] = F::template result<T>(running, i);
    }
}

template <Op op>
void scan_op(const ScanLaunch &launch) noexcept {
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, launch.length));
    parallel_for(launch.lines, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t line = begin; line < end; ++line) switch (launch.compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)                     \
    case ElementType::id:                                                                     \
        if constexpr (is_made(ElementType::id, scans_in)) scan_line<op, ctype>(launch, line); \
        break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
            }
    });
}

}  // namespace

void run_scan(const ScanLaunch &launch) noexcept {
    if (launch.op == Op::sum)
        scan_op<Op::sum>(launch);
    else
        scan_op<Op::prod>(launch);
}

}  // namespace cukern::host
