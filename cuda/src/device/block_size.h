// The threads of a block, the same for all kernels but the products'.
#pragma once

namespace cukern::cuda {

constexpr int kThreadBits = 8;
constexpr int kThreads = 1 << kThreadBits;

// Of an H200. Only the choice of kernels, and how work is cut, depend on it: on other devices results are right,
// and may take longer.
constexpr int kMultiprocessors = 132;

}  // namespace cukern::cuda
