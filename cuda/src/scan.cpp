// Running results over either back-end: lines found, memory for the totals of their parts, launch, and for host
// operands the staging around it.
#include <algorithm>

#include "context.h"
#include "layout.h"
#include "staging.h"

namespace cukern {
namespace {

constexpr std::int64_t kScratchBytes = 1 << 18;
constexpr std::int64_t kLongLine = 1 << 14;

// False: there are more dimensions than a launch takes.
bool plan_scan(const ScanCall &call, const TensorView &input, void *out, ScanLaunch *launch) noexcept {
    launch->op = call.op;
    launch->type = input.type;
    launch->compute = call.compute;
    launch->in = input.data;
    launch->out = out;
    launch->length = input.shape[call.axis];
    launch->stride = input.strides[call.axis];
    launch->inner = launch->lines = 1;
    launch->num_kept = 0;
    launch->scratch = nullptr;
    launch->scratch_bytes = 0;
    for (int d = 0; d < input.ndim; ++d) {
        if (d == call.axis || input.shape[d] == 1) continue;
        launch->lines *= input.shape[d];
        if (d > call.axis) launch->inner *= input.shape[d];
        const int last = launch->num_kept - 1;
        if (last >= 0 && launch->kept_strides[last] == input.strides[d] * input.shape[d]) {
            launch->kept_shape[last] *= input.shape[d];
            launch->kept_strides[last] = input.strides[d];
            continue;
        }
        if (launch->num_kept == kMaxReduceDims) return false;
        launch->kept_shape[launch->num_kept] = input.shape[d];
        launch->kept_strides[launch->num_kept++] = input.strides[d];
    }
    return true;
}

Status run(Context &context, const ScanCall &call, const StreamRef &stream) noexcept {
    const TensorView &out = *call.out;
    if (count_of(out) == 0) return CUKERN_OK;
    Runtime &runtime = context.runtime;
    const bool direct = out.type == call.compute && is_packed(out);
    Block result;
    if (!direct)
        CUKERN_TRY(
            result.acquire(context, static_cast<std::size_t>(count_of(out) * size_of(call.compute)), stream));
    ScanLaunch launch;
    Block copy;
    if (!plan_scan(call, *call.input, direct ? out.data : result.data(), &launch)) {
        CUKERN_TRY(copy.acquire(context, static_cast<std::size_t>(bytes_of(*call.input)), stream));
        const TensorView dense = packed_like(*call.input, call.input->type, copy.data());
        CUKERN_TRY(runtime.launch_elementwise(plan_copy(*call.input, dense), stream.handle));
        plan_scan(call, dense, launch.out, &launch);
    }
    // While the stream is captured there is none: lines are then taken in one piece each.
    Block scratch;
    bool capturing = false;
    CUKERN_TRY(stream_is_capturing(stream, &capturing));
    if (!capturing && runtime.backend() == Backend::cuda && launch.length > kLongLine) {
        CUKERN_TRY(scratch.acquire(context, kScratchBytes, stream));
        launch.scratch = scratch.data();
        launch.scratch_bytes = kScratchBytes;
    }
    CUKERN_TRY(runtime.launch_scan(launch, stream.handle));
    if (direct) return CUKERN_OK;
    return runtime.launch_elementwise(plan_copy(packed_like(out, call.compute, result.data()), out),
                                      stream.handle);
}

}  // namespace

Status scan(const ScanCall &call, const StreamRef &stream) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    const DeviceGuard guard(active->runtime, stream.device);
    CUKERN_TRY(guard.status());
    return run(*active, call, stream);
}

Status scan_on_host(const ScanCall &call) noexcept {
    if (count_of(*call.out) == 0) return CUKERN_OK;
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    Staging staging;
    CUKERN_TRY(staging.begin(Staging::Uses::once));
    ScanCall on_device = call;
    TensorView input;
    TensorView out;
    CUKERN_TRY(staging.upload(*call.input, &input));
    CUKERN_TRY(staging.reserve(*call.out, &out));
    on_device.input = &input;
    on_device.out = &out;
    CUKERN_TRY(run(*active, on_device, staging.stream()));
    return staging.download(out, *call.out);
}

}  // namespace cukern
