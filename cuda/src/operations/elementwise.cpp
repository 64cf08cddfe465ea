// Elementwise operations over either back-end.
#include <new>

#include "operations/elementwise_chunks.h"
#include "operations/execute.h"
#include "operations/planned_launch.h"

namespace cukern {

Status elementwise(const ElementwiseCall &call, const Execution &where) noexcept {
    const auto run = [](Context &context, const ElementwiseCall &own, const StreamRef &stream) {
        ElementwiseLaunch launch;
        plan_elementwise(own, &launch);
        return does_nothing(launch) ? CUKERN_OK : context.runtime.launch_elementwise(launch, stream.handle);
    };
    const auto staged = [](const ElementwiseCall &own, int device, const auto &launch) {
        return is_in_chunks(own, device) ? elementwise_in_chunks(own, device)
                                         : execute_staged(own, device, Staging::Uses::once, launch);
    };
    return execute(call, where, run, staged);
}

namespace {

class PlannedElementwise final : public PlannedLaunch {
public:
    PlannedElementwise(const ElementwiseLaunch &launch, const ElementwiseCall &call) noexcept
        : PlannedLaunch(count_arrays(launch)), launch_(launch) {
        for (int i = 0; i < arrays(); ++i) {
            const TensorView &view = i == 0 ? *call.out : *call.inputs[i - 1];
            offsets_[i] = static_cast<char *>(launch_.data[i]) - static_cast<char *>(view.data);
        }
    }

private:
    // Out and the inputs that are no values. Operands that plan_elementwise has added are values, and come last.
    static int count_arrays(const ElementwiseLaunch &launch) noexcept {
        int arrays = 0;
        while (arrays < launch.num_operands && !launch.immediate[arrays]) ++arrays;
        return arrays;
    }

    Status launch_anew(Context &context, void *const *data, const StreamRef &stream,
                       PreparedKernel *prepared) noexcept override {
        for (int i = 0; i < arrays(); ++i) launch_.data[i] = static_cast<char *>(data[i]) + offsets_[i];
        if (does_nothing(launch_)) return CUKERN_OK;
        launch_.prepared = prepared;
        return context.runtime.launch_elementwise(launch_, stream.handle);
    }

    ElementwiseLaunch launch_;
    std::ptrdiff_t offsets_[kMaxOperands];  // from the address of an array to where the launch begins
};

}  // namespace

LaunchPlan *LaunchPlan::make(const ElementwiseCall &call) noexcept {
    ElementwiseLaunch launch;
    plan_elementwise(call, &launch);
    return new (std::nothrow) PlannedElementwise(launch, call);
}

}  // namespace cukern
