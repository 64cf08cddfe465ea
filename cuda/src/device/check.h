// CUDA's errors as statuses. A sticky error, after which the context is of no use, is latched.
#pragma once

#include <cuda_runtime_api.h>

#include "cukern/status.h"

namespace cukern::cuda {

// Records a failure of `api`; the usual success costs one comparison.
Status record_failure(cudaError_t error, const char *api) noexcept;

inline Status check(cudaError_t error, const char *api) noexcept {
    return error == cudaSuccess ? CUKERN_OK : record_failure(error, api);
}

// The latched failure, if there is one.
Status lost_status() noexcept;

}  // namespace cukern::cuda
