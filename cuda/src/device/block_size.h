// The threads of a block, the same for all kernels but the products'.
#pragma once

namespace cukern::cuda {

constexpr int kThreadBits = 8;
constexpr int kThreads = 1 << kThreadBits;

// Of an H200: from how many blocks on all have work. On other devices what is chosen by it is right, too.
constexpr int kMultiprocessors = 132;

}  // namespace cukern::cuda
