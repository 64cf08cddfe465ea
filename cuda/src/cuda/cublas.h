// cuBLAS, opened at run time: its header and library are not needed to build or to import.
#pragma once

#include "launch.h"

namespace cukern::cuda {

// One handle and workspace per device and stream, kept. cuBLAS must be open (open_cublas).
Status cublas_gemm(const MatmulLaunch &launch, int device, Stream stream) noexcept;

}  // namespace cukern::cuda
