// Limits of plans that kernels depend on.
#pragma once

namespace cukern {

constexpr int kMaxReduceDims = 8;  // kept, or reduced

}  // namespace cukern
