// NumPy's loops over elements, which the host back-end takes where they are faster than our own.
#pragma once

#include "base/module_state.h"

namespace cukern::py {

// Hands them to the host back-end. False with an exception set.
bool hand_over_loops(const ModuleState &state) noexcept;

}  // namespace cukern::py
