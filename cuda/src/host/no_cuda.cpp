// Stands in for the CUDA back-end in a host-only build (CUKERN_HOST_ONLY=1).
#include <cstdio>

#include "runtime/runtime.h"

namespace cukern {

CudaProbe probe_cuda(char *reason, std::size_t size) noexcept {
    std::snprintf(reason, size, "this build of cukern has the host back-end only (CUKERN_HOST_ONLY=1)");
    return CudaProbe::no_driver;
}

Status make_cuda_runtime(Runtime **out) noexcept {
    *out = nullptr;
    return fail(CUKERN_NO_BACKEND, "this build of cukern has the host back-end only (CUKERN_HOST_ONLY=1)");
}

int driver_version() noexcept { return 0; }
int runtime_version() noexcept { return 0; }

Status open_cublas(const char *) noexcept {
    return fail(CUKERN_NOT_SUPPORTED, "this build of cukern has the host back-end only: it does not use cuBLAS");
}

bool find_cublas() noexcept { return false; }

void note_cublas_search(const char *, const char *) noexcept {}

CublasInfo cublas_info() noexcept { return {}; }

}  // namespace cukern
