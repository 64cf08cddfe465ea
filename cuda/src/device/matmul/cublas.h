// cuBLAS, opened at run time: its header and library are not needed to build or to import.
#pragma once

#include "cukern/stream.h"
#include "plan/launch.h"

namespace cukern::cuda {

// With the launch's workspace. cuBLAS must be open (open_cublas); it has one handle per device, which is kept.
Status cublas_gemm(const MatmulLaunch &launch, int device, Stream stream) noexcept;

// A stream is about to be destroyed: another one may get its handle.
void cublas_forget(Stream stream) noexcept;

}  // namespace cukern::cuda
