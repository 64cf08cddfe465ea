// The CUDA back-end's graphs.
#pragma once

#include "runtime/graph_calls.h"

namespace cukern::cuda {

GraphCalls *graph_calls() noexcept;

}  // namespace cukern::cuda
