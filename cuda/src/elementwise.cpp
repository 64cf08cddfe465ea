// Elementwise operations over either back-end: plan, launch, and for host operands the staging around it.
#include <cstring>

#include "context.h"
#include "staging.h"

namespace cukern {
namespace {

Status launch(Context &context, const ElementwiseCall &call, Stream stream) noexcept {
    ElementwiseLaunch plan;
    plan_elementwise(call, &plan);
    if (plan.count == 0) return CUKERN_OK;
    return context.runtime.launch_elementwise(plan, stream);
}

// The very same view, as in add(a, a): it travels once.
bool same_view(const TensorView &a, const TensorView &b) noexcept {
    const auto bytes = static_cast<std::size_t>(a.ndim) * sizeof(std::int64_t);
    return !a.immediate && !b.immediate && a.data == b.data && a.type == b.type && a.ndim == b.ndim &&
           std::memcmp(a.shape, b.shape, bytes) == 0 && std::memcmp(a.strides, b.strides, bytes) == 0;
}

}  // namespace

Status elementwise(const ElementwiseCall &call, const StreamRef &stream) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    const DeviceGuard guard(active->runtime, stream.device);
    CUKERN_TRY(guard.status());
    return launch(*active, call, stream.handle);
}

Status elementwise_on_host(const ElementwiseCall &call) noexcept {
    if (count_of(*call.out) == 0) return CUKERN_OK;
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    Staging staging;
    CUKERN_TRY(staging.begin(Staging::Uses::once));
    ElementwiseCall on_device = call;
    TensorView inputs[kMaxInputs];
    TensorView out;
    for (int i = 0; i < arity(call.op); ++i) {
        on_device.inputs[i] = &inputs[i];
        if (i > 0 && same_view(*call.inputs[i], *call.inputs[0]))
            on_device.inputs[i] = &inputs[0];
        else
            CUKERN_TRY(staging.upload(*call.inputs[i], &inputs[i]));
    }
    CUKERN_TRY(staging.reserve(*call.out, &out));
    on_device.out = &out;
    CUKERN_TRY(launch(*active, on_device, staging.stream().handle));
    return staging.download(out, *call.out);
}

}  // namespace cukern
