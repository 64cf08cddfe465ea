// The threads of a block, the same for all kernels but the products'.
#pragma once

namespace cukern::cuda {

constexpr int kThreadBits = 8;
constexpr int kThreads = 1 << kThreadBits;

}  // namespace cukern::cuda
