// Running results over either back-end: lines found, memory for the totals of their parts, launch, and for host
// operands the staging around it.

#include "context/scratch_buffer.h"
#include "operations/execute.h"
#include "plan/layout.h"

namespace cukern {
namespace {

// False: there are more dimensions than a launch takes.
bool plan_scan(const ScanCall &call, const TensorView &input, const TensorView &out, ScanLaunch *launch) noexcept {
    launch->op = call.op;
    launch->type = input.type;
    launch->compute = call.compute;
    launch->in = input.data;
    launch->out = out.data;
    launch->length = input.shape[call.axis];
    launch->stride = input.strides[call.axis];
    launch->out_stride = out.strides[call.axis];
    launch->lines = 1;
    launch->num_kept = 0;
    launch->scratch = nullptr;
    launch->scratch_bytes = 0;
    for (int d = 0; d < input.ndim; ++d) {
        const std::int64_t length = input.shape[d];
        if (d == call.axis || length == 1) continue;
        launch->lines *= length;
        const int last = launch->num_kept - 1;
        if (last >= 0 && launch->kept_strides[last] == input.strides[d] * length &&
            launch->kept_out_strides[last] == out.strides[d] * length) {
            launch->kept_shape[last] *= length;
            launch->kept_strides[last] = input.strides[d];
            launch->kept_out_strides[last] = out.strides[d];
            continue;
        }
        if (launch->num_kept == kMaxReduceDims) return false;
        launch->kept_shape[launch->num_kept] = length;
        launch->kept_strides[launch->num_kept] = input.strides[d];
        launch->kept_out_strides[launch->num_kept++] = out.strides[d];
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
    const TensorView &input = *call.inputs[0];
    const TensorView &out = *call.out;
    Runtime &runtime = context.runtime;
    const bool is_read = runtime.scans_from(input.type, call.compute);
    TensorView dense = packed_like(input, is_read ? input.type : call.compute, nullptr);
    ScanLaunch launch;
    const bool direct =
        out.type == call.compute && call.result == call.compute && plan_scan(call, dense, out, &launch);
    ScratchBuffer result;
    if (!direct)
        CUKERN_TRY(
            result.acquire(context, static_cast<std::size_t>(count_of(out) * size_of(call.compute)), stream));
    const TensorView computed = direct ? out : packed_like(out, call.compute, result.data());
    ScratchBuffer copy;
    if (!is_read || !plan_scan(call, input, computed, &launch)) {
        const auto bytes = static_cast<std::size_t>(count_of(dense) * size_of(dense.type));
        CUKERN_TRY(copy.acquire(context, bytes, stream));
        dense.data = copy.data();
        CUKERN_TRY(runtime.launch_elementwise(plan_copy(input, dense), stream.handle));
        plan_scan(call, dense, computed, &launch);
    }
    ScratchBuffer scratch;
    if (const std::int64_t bytes = runtime.scan_scratch(launch); bytes > 0) {
        CUKERN_TRY(scratch.acquire(context, static_cast<std::size_t>(bytes), stream));
        launch.scratch = scratch.data();
        launch.scratch_bytes = bytes;
    }
    CUKERN_TRY(runtime.launch_scan(launch, stream.handle));
    if (direct) return CUKERN_OK;
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

// Whether all lines have one element, which is its own result, and no type comes between it and `out`.
bool is_copy(const ScanCall &call) noexcept {
    const TensorView &input = *call.inputs[0];
    return input.shape[call.axis] == 1 && call.result == call.compute &&
           (input.type == call.compute || call.out->type == call.compute);
}

Status run(Context &context, const ScanCall &call, const StreamRef &stream) noexcept {
    if (is_copy(call))
        return context.runtime.launch_elementwise(plan_copy(*call.inputs[0], *call.out), stream.handle);
    if (call.out->ndim < 2 || is_packed(*call.out)) return run_in_order(context, call, stream);
    return run_in_order(context, InOrder(call).call, stream);
}

}  // namespace

Status scan(const ScanCall &call, const Execution &where) noexcept {
    return execute(call, where, Staging::Uses::once, run);
}

}  // namespace cukern
