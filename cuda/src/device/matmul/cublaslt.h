// cuBLASLt, which cuBLAS brings: products with an epilogue in one kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "device/matmul/cublas_types.h"
#include "plan/launch.h"

namespace cukern::cuda {

// A product with launch.epilogue, of one matrix each. `handle` is one of cuBLAS's. One thread at a time.
// kCublasNotSupported: there is no cuBLASLt of that version, or it has no kernel for these matrices.
CublasStatus cublaslt_gemm(CublasHandle handle, int version, const MatmulLaunch &launch, int device,
                           cudaStream_t stream, const char **api) noexcept;

}  // namespace cukern::cuda
