// The host back-end's kernels.
#pragma once

#include "launch.h"

namespace cukern::host {

void run_elementwise(const ElementwiseLaunch &launch) noexcept;
void run_reduction(const ReduceLaunch &launch) noexcept;
void run_matmul(const MatmulLaunch &launch) noexcept;

}  // namespace cukern::host
