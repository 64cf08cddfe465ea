// Elementwise operations over either back-end.
#include "operations/execute.h"

namespace cukern {

Status elementwise(const ElementwiseCall &call, const Execution &where) noexcept {
    const auto run = [](Context &context, const ElementwiseCall &own, const StreamRef &stream) {
        ElementwiseLaunch launch;
        plan_elementwise(own, &launch);
        return launch.count == 0 ? CUKERN_OK : context.runtime.launch_elementwise(launch, stream.handle);
    };
    return execute(call, where, Staging::Uses::once, run);
}

}  // namespace cukern
