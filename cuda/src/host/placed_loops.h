// Another library's loops of long functions, called where the stack does not slow them down.
#pragma once

#include "cukern/host_loops.h"
#include "plan/launch.h"

namespace cukern {

// The loop that calls this one so, if it is long enough; else this one. It keeps a place for each operation and
// type.
HostLoop placed_loop(Op op, ElementType inputs, const HostLoop &loop) noexcept;

}  // namespace cukern
