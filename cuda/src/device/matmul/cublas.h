// cuBLAS, opened at run time: its header and library are not needed to build or to import.
#pragma once

#include "runtime/runtime.h"

namespace cukern::cuda {

// One handle and workspace per device and stream, kept. cuBLAS must be open (open_cublas).
Status cublas_gemm(Runtime &runtime, const MatmulLaunch &launch, int device, Stream stream) noexcept;

// Gives back what is kept for a stream, before that is destroyed.
void cublas_forget(Runtime &runtime, Stream stream) noexcept;

}  // namespace cukern::cuda
