// Elementwise operations over either back-end.
#include <new>

#include "operations/execute.h"

namespace cukern {

Status elementwise(const ElementwiseCall &call, const Execution &where) noexcept {
    const auto run = [](Context &context, const ElementwiseCall &own, const StreamRef &stream) {
        ElementwiseLaunch launch;
        plan_elementwise(own, &launch);
        return does_nothing(launch) ? CUKERN_OK : context.runtime.launch_elementwise(launch, stream.handle);
    };
    return execute(call, where, Staging::Uses::once, run);
}

namespace {

class PlannedElementwise final : public ElementwisePlan {
public:
    explicit PlannedElementwise(const ElementwiseCall &call) noexcept {
        plan_elementwise(call, &launch_);
        for (int i = 0; i < launch_.num_operands; ++i) {
            const TensorView &view = i == 0 ? *call.out : *call.inputs[i - 1];
            offsets_[i] = static_cast<char *>(launch_.data[i]) - static_cast<char *>(view.data);
        }
    }

    Status launch(void *const *data, const StreamRef &stream) noexcept override {
        Context *active = nullptr;
        CUKERN_TRY(context(&active));
        const DeviceGuard guard(active->runtime, stream.device);
        CUKERN_TRY(guard.status());
        for (int i = 0; i < launch_.num_operands; ++i)
            launch_.data[i] = static_cast<char *>(data[i]) + offsets_[i];
        if (does_nothing(launch_)) return CUKERN_OK;
        return active->runtime.launch_elementwise(launch_, stream.handle);
    }

private:
    ElementwiseLaunch launch_;
    std::ptrdiff_t offsets_[kMaxOperands];  // from the address of an array to where the launch begins
};

}  // namespace

ElementwisePlan *ElementwisePlan::make(const ElementwiseCall &call) noexcept {
    return new (std::nothrow) PlannedElementwise(call);
}

}  // namespace cukern
