// Guards against operands whose code calls operations on themselves: the frames here are larger than those that
// Python's own recursion limit is made for.
#pragma once

namespace cukern::py {

// False with RecursionError set where the thread's stack is nearly used up.
bool enough_stack(const char *function) noexcept;

}  // namespace cukern::py
