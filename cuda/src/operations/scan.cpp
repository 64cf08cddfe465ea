// Running results over either back-end: lines found, memory for the totals of their parts, launch, and for host
// operands the staging around it.

#include <utility>

#include "context/scratch_buffer.h"
#include "operations/execute.h"
#include "plan/layout.h"

namespace cukern {
namespace {

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
    bool beside_axis = false;
    for (int d = 0; d < input.ndim; ++d) {
        if (d == call.axis || input.shape[d] == 1) continue;
        launch->lines *= input.shape[d];
        if (d > call.axis) launch->inner *= input.shape[d];
        const int last = launch->num_kept - 1;
        // Dimensions on both sides of the axis stay apart: their lines lie otherwise in `out`.
        const bool is_beside = std::exchange(beside_axis, d > call.axis) == (d > call.axis);
        if (last >= 0 && is_beside && launch->kept_strides[last] == input.strides[d] * input.shape[d]) {
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

// Dimensions in the order that they have in `out`, by which results are stored one after the other.
struct InOrder {
    explicit InOrder(const ScanCall &asked) noexcept : call(asked), input(*asked.inputs[0]), out(*asked.out) {
        int order[kMaxDims];
        order_of_memory(asked.out->strides, out.ndim, order);
        for (int d = 0; d < out.ndim; ++d) {
            input.shape[d] = asked.inputs[0]->shape[order[d]];
            input.strides[d] = asked.inputs[0]->strides[order[d]];
            out.shape[d] = asked.out->shape[order[d]];
            out.strides[d] = asked.out->strides[order[d]];
            if (order[d] == asked.axis) call.axis = d;
        }
        call.inputs[0] = &input;
        call.out = &out;
    }
    InOrder(const InOrder &) = delete;
    InOrder &operator=(const InOrder &) = delete;

    ScanCall call;
    TensorView input;
    TensorView out;
};

Status run_in_order(Context &context, const ScanCall &call, const StreamRef &stream) noexcept {
    const TensorView &out = *call.out;
    Runtime &runtime = context.runtime;
    const bool direct = out.type == call.compute && call.result == call.compute && is_packed(out);
    ScratchBuffer result;
    if (!direct)
        CUKERN_TRY(
            result.acquire(context, static_cast<std::size_t>(count_of(out) * size_of(call.compute)), stream));
    ScanLaunch launch;
    ScratchBuffer copy;
    const TensorView &input = *call.inputs[0];
    const bool is_read = runtime.scans_from(input.type, call.compute);
    if (!plan_scan(call, input, direct ? out.data : result.data(), &launch) || !is_read) {
        const ElementType type = is_read ? input.type : call.compute;
        CUKERN_TRY(copy.acquire(context, static_cast<std::size_t>(count_of(input) * size_of(type)), stream));
        const TensorView dense = packed_like(input, type, copy.data());
        CUKERN_TRY(runtime.launch_elementwise(plan_copy(input, dense), stream.handle));
        plan_scan(call, dense, launch.out, &launch);
    }
    ScratchBuffer scratch;
    if (const std::int64_t bytes = runtime.scan_scratch(launch); bytes > 0) {
        CUKERN_TRY(scratch.acquire(context, static_cast<std::size_t>(bytes), stream));
        launch.scratch = scratch.data();
        launch.scratch_bytes = bytes;
    }
    CUKERN_TRY(runtime.launch_scan(launch, stream.handle));
    if (direct) return CUKERN_OK;
    const TensorView computed = packed_like(out, call.compute, result.data());
    if (call.result == call.compute || call.result == out.type)
        return runtime.launch_elementwise(plan_copy(computed, out), stream.handle);
    // A narrower type than both comes between: its values wrap, or are rounded, before `out` takes them.
    ScratchBuffer between;
    const auto bytes = static_cast<std::size_t>(count_of(out) * size_of(call.result));
    CUKERN_TRY(between.acquire(context, bytes, stream));
    const TensorView narrowed = packed_like(out, call.result, between.data());
    CUKERN_TRY(runtime.launch_elementwise(plan_copy(computed, narrowed), stream.handle));
    return runtime.launch_elementwise(plan_copy(narrowed, out), stream.handle);
}

Status run(Context &context, const ScanCall &call, const StreamRef &stream) noexcept {
    if (call.out->ndim < 2 || is_packed(*call.out)) return run_in_order(context, call, stream);
    return run_in_order(context, InOrder(call).call, stream);
}

}  // namespace

Status scan(const ScanCall &call, const Execution &where) noexcept {
    return execute(call, where, Staging::Uses::once, run);
}

}  // namespace cukern
