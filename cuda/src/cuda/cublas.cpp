#include "cuda/cublas.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/check.h"

namespace cukern {
namespace {

// The part of cuBLAS's C ABI that is used, from its documentation (cuBLAS 12 and 13).
using Handle = void *;
using CublasStatus = int;
constexpr CublasStatus kSuccess = 0;
constexpr int kNoTranspose = 0;
constexpr int kTranspose = 1;

template <typename T>
using Gemm = CublasStatus (*)(Handle, int, int, std::int64_t, std::int64_t, std::int64_t, const T *, const T *,
                              std::int64_t, const T *, std::int64_t, const T *, T *, std::int64_t);

struct Library {
    CublasStatus (*create)(Handle *);
    CublasStatus (*destroy)(Handle);
    CublasStatus (*set_stream)(Handle, cudaStream_t);
    CublasStatus (*set_workspace)(Handle, void *, std::size_t);
    CublasStatus (*get_property)(int, int *);
    const char *(*status_name)(CublasStatus);
    const char *(*status_text)(CublasStatus);
    Gemm<float> sgemm;
    Gemm<double> dgemm;
};

// Hopper's kernels ask for 32 MiB; cuBLAS's own default is the same.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

struct State {
    std::mutex mutex;
    Library library{};
    std::atomic<bool> open{false};
    CublasInfo info;
    bool names_tried = false;                          // once is enough: a search of the loader's paths is slow
    std::map<std::pair<int, Stream>, Handle> handles;  // never destroyed: the library goes before we could
};

State &state() noexcept {
    static auto *const instance = new State;
    return *instance;
}

template <typename F>
bool find(void *library, const char *name, F *function) noexcept {
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
}

bool find_all(void *handle, Library *library) noexcept {
    return find(handle, "cublasCreate_v2", &library->create) &&
           find(handle, "cublasDestroy_v2", &library->destroy) &&
           find(handle, "cublasSetStream_v2", &library->set_stream) &&
           find(handle, "cublasSetWorkspace_v2", &library->set_workspace) &&
           find(handle, "cublasGetProperty", &library->get_property) &&
           find(handle, "cublasGetStatusName", &library->status_name) &&
           find(handle, "cublasGetStatusString", &library->status_text) &&
           find(handle, "cublasSgemm_v2_64", &library->sgemm) &&
           find(handle, "cublasDgemm_v2_64", &library->dgemm);
}

void note(State &s, const char *name, const char *why) noexcept {
    const std::size_t used = std::strlen(s.info.tried);
    std::snprintf(s.info.tried + used, sizeof s.info.tried - used, "%s%s (%s)", used > 0 ? "; " : "", name, why);
}

// The caller holds the mutex.
bool try_open(State &s, const char *name) noexcept {
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char *why = dlerror();
        note(s, name, why != nullptr ? why : "not found");
        return false;
    }
    Library library{};
    if (!find_all(handle, &library)) {
        note(s, name, "it lacks functions of cuBLAS 12");
        return false;
    }
    int major = 0;
    int minor = 0;
    int patch = 0;
    library.get_property(0, &major);
    library.get_property(1, &minor);
    library.get_property(2, &patch);
    s.info.version = major * 10000 + minor * 100 + patch;
    Dl_info where{};
    const bool known = dladdr(reinterpret_cast<void *>(library.create), &where) != 0 && where.dli_fname != nullptr;
    std::snprintf(s.info.path, sizeof s.info.path, "%s", known ? where.dli_fname : name);
    s.library = library;
    s.info.open = true;
    s.open.store(true, std::memory_order_release);
    return true;
}

Status cublas_failed(const Library &library, CublasStatus status, const char *api) noexcept {
    constexpr CublasStatus kAllocationFailed = 3;
    return fail_cuda(status == kAllocationFailed ? CUKERN_OUT_OF_MEMORY : CUKERN_CUDA_ERROR, status,
                     library.status_name(status), api, library.status_text(status));
}

Status make_handle(const Library &library, Stream stream, Handle *out) noexcept {
    Handle handle = nullptr;
    if (const CublasStatus status = library.create(&handle); status != kSuccess)
        return cublas_failed(library, status, "cublasCreate");
    void *workspace = nullptr;
    Status status = cuda::check(cudaMalloc(&workspace, kWorkspaceBytes), "cudaMalloc");
    const char *api = "cublasSetStream";
    CublasStatus set = kSuccess;
    if (status == CUKERN_OK) {
        set = library.set_stream(handle, static_cast<cudaStream_t>(stream));
        if (set == kSuccess) {
            api = "cublasSetWorkspace";
            set = library.set_workspace(handle, workspace, kWorkspaceBytes);
        }
        if (set != kSuccess) status = cublas_failed(library, set, api);
    }
    if (status != CUKERN_OK) {
        library.destroy(handle);
        cudaFree(workspace);
        return status;
    }
    *out = handle;
    return CUKERN_OK;
}

// cuBLAS is column-major: the row-major c = a @ b is, seen by it, c' = b' @ a'.
template <typename T>
CublasStatus gemm(Gemm<T> function, Handle handle, const MatmulLaunch &p) noexcept {
    const T one = 1;
    const T zero = 0;
    return function(handle, p.b_transposed ? kTranspose : kNoTranspose, p.a_transposed ? kTranspose : kNoTranspose,
                    p.n, p.m, p.k, &one, static_cast<const T *>(p.b), p.ldb, static_cast<const T *>(p.a), p.lda,
                    &zero, static_cast<T *>(p.c), p.ldc);
}

}  // namespace

Status open_cublas(const char *path) noexcept {
    State &s = state();
    if (s.open.load(std::memory_order_acquire)) return CUKERN_OK;
    const std::lock_guard lock(s.mutex);
    if (s.info.open) return CUKERN_OK;
    if (path != nullptr && try_open(s, path)) return CUKERN_OK;
    if (path == nullptr && !s.names_tried) {
        s.names_tried = true;
        for (const char *name : {"libcublas.so.13", "libcublas.so.12"})
            if (try_open(s, name)) return CUKERN_OK;
    }
    return fail(CUKERN_LIBRARY_NOT_FOUND, "cuBLAS could not be opened; tried %s", s.info.tried);
}

void note_cublas_search(const char *who, const char *why) noexcept {
    State &s = state();
    const std::lock_guard lock(s.mutex);
    note(s, who, why);
}

CublasInfo cublas_info() noexcept {
    State &s = state();
    const std::lock_guard lock(s.mutex);
    return s.info;
}

Status cuda::cublas_gemm(const MatmulLaunch &launch, int device, Stream stream) noexcept {
    State &s = state();
    if (!s.open.load(std::memory_order_acquire)) return fail(CUKERN_INTERNAL, "cuBLAS is not open");
    // The handle's workspace belongs to its stream; cuBLAS itself allows one call at a time on a handle.
    const std::lock_guard lock(s.mutex);
    Handle *handle = nullptr;
    try {
        handle = &s.handles[{device, stream}];
    } catch (...) {
        return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    }
    if (*handle == nullptr) CUKERN_TRY(make_handle(s.library, stream, handle));
    const bool single = launch.type == ElementType::float32;
    const CublasStatus status =
        single ? gemm<float>(s.library.sgemm, *handle, launch) : gemm<double>(s.library.dgemm, *handle, launch);
    return status == kSuccess ? CUKERN_OK
                              : cublas_failed(s.library, status, single ? "cublasSgemm" : "cublasDgemm");
}

}  // namespace cukern
