// How every operation runs, whatever it computes: on the processor; or its arrays brought to where kernels reach
// them, a device current, the work enqueued.
#pragma once

#include <cstring>

#include "context/context.h"
#include "cukern/operations.h"
#include "cukern/placement.h"
#include "transfer/staging.h"

namespace cukern {

// The very same view, as in add(a, a): it travels once.
inline bool same_view(const TensorView &a, const TensorView &b) noexcept {
    const auto bytes = static_cast<std::size_t>(a.ndim) * sizeof(std::int64_t);
    return !a.immediate && !b.immediate && a.data == b.data && a.type == b.type && a.ndim == b.ndim &&
           std::memcmp(a.shape, b.shape, bytes) == 0 && std::memcmp(a.strides, b.strides, bytes) == 0;
}

// Calls run(context, call, stream), which enqueues the work, with arrays that kernels on the stream reach.
template <typename Call, typename Run>
Status execute_staged(const Call &call, int device, Staging::Uses uses, const Run &run) noexcept {
    Staging staging;
    CUKERN_TRY(staging.begin(uses, device));
    Call on_device = call;
    TensorView inputs[kMaxInputs];
    TensorView out;
    for (int i = 0; i < kMaxInputs && call.inputs[i] != nullptr; ++i) {
        on_device.inputs[i] = &inputs[i];
        if (i > 0 && same_view(*call.inputs[i], *call.inputs[0]))
            on_device.inputs[i] = &inputs[0];
        else
            CUKERN_TRY(staging.upload(*call.inputs[i], &inputs[i]));
    }
    CUKERN_TRY(staging.reserve(*call.out, &out));
    on_device.out = &out;
    CUKERN_TRY(run(staging.context(), on_device, staging.stream()));
    return staging.download(out, *call.out);
}

// `staged(call, device, run)` is for arrays that are brought to the device.
template <typename Call, typename Run, typename Staged>
Status execute(const Call &call, const Execution &where, const Run &run, const Staged &staged) noexcept {
    if (count_of(*call.out) == 0) return CUKERN_OK;
    if (!where.on_device) {
        const Placement placement =
            where.placement != Placement::automatic ? where.placement : choose_placement(call, where).placement;
        count_call(placement);
        if (placement == Placement::device) return staged(call, where.host_device, run);
        Context *processor = nullptr;
        CUKERN_TRY(processor_context(&processor));
        return run(*processor, call, StreamRef{});
    }
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    const DeviceGuard guard(active->runtime, where.stream.device);
    CUKERN_TRY(guard.status());
    return run(*active, call, where.stream);
}

template <typename Call, typename Run>
Status execute(const Call &call, const Execution &where, Staging::Uses uses, const Run &run) noexcept {
    return execute(call, where, run, [uses](const Call &own, int device, const Run &launch) {
        return execute_staged(own, device, uses, launch);
    });
}

}  // namespace cukern
