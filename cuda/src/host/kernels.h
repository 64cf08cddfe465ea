// The host back-end's kernels.
#pragma once

#include "launch.h"

namespace cukern::host {

// Whether kernels of an element type are made. clang-tidy would take minutes for all: these have every formula.
constexpr bool is_made(ElementType type) noexcept {
#ifdef __clang_analyzer__
    return type == ElementType::float32 || type == ElementType::int8 || type == ElementType::complex64 ||
           type == ElementType::bool_;
#else
    return static_cast<int>(type) < kNumElementTypes;
#endif
}

void run_elementwise(const ElementwiseLaunch &launch) noexcept;
void run_reduction(const ReduceLaunch &launch) noexcept;
void run_matmul(const MatmulLaunch &launch) noexcept;

}  // namespace cukern::host
