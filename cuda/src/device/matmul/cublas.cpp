#include "device/matmul/cublas.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "device/check.h"
#include "device/matmul/cublaslt.h"
#include "device/outside_captures.h"
#include "runtime/fork_mutex.h"
#include "runtime/shared_library.h"

namespace cukern {
namespace {

using cuda::CublasStatus;
using cuda::gemm_type;
using cuda::GemmType;
using cuda::kNoTranspose;
using cuda::kTranspose;
using Handle = cuda::CublasHandle;
constexpr CublasStatus kSuccess = cuda::kCublasSuccess;

template <typename T>
using Gemm = CublasStatus (*)(Handle, int, int, std::int64_t, std::int64_t, std::int64_t, const T *, const T *,
                              std::int64_t, const T *, std::int64_t, const T *, T *, std::int64_t);

using GemmEx = CublasStatus (*)(Handle, int, int, std::int64_t, std::int64_t, std::int64_t, const void *,
                                const void *, int, std::int64_t, long long, const void *, int, std::int64_t,
                                long long, const void *, void *, int, std::int64_t, long long, std::int64_t, int,
                                int);

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
    GemmEx gemm_batched;
    CublasStatus (*set_math_mode)(Handle, int);
};

constexpr int kDefaultAlgorithm = -1;
constexpr int kNoShortSums = 16;  // a math mode: sums of 16-bit products stay in float32, however k is split

// A device's handle, and what it is set to.
struct DeviceHandle {
    Handle handle = nullptr;
    bool is_set = false;  // to a stream that still lives
    Stream stream = nullptr;
    void *workspace = nullptr;
    std::size_t workspace_bytes = 0;
};

struct State {
    ForkMutex mutex;
    Library library{};
    std::atomic<bool> open{false};
    CublasInfo info;
    std::atomic<bool> names_tried{false};  // once is enough: a search of the loader's paths is slow
    std::vector<DeviceHandle> handles;     // by device; never destroyed: the library goes before we could
};

State &state() noexcept {
    alignas(State) static unsigned char memory[sizeof(State)];
    static auto *const instance = new (memory) State;  // never destroyed
    return *instance;
}

bool find_all(void *handle, Library *library) noexcept {
    return find_symbol(handle, "cublasCreate_v2", &library->create) &&
           find_symbol(handle, "cublasDestroy_v2", &library->destroy) &&
           find_symbol(handle, "cublasSetStream_v2", &library->set_stream) &&
           find_symbol(handle, "cublasSetWorkspace_v2", &library->set_workspace) &&
           find_symbol(handle, "cublasGetProperty", &library->get_property) &&
           find_symbol(handle, "cublasGetStatusName", &library->status_name) &&
           find_symbol(handle, "cublasGetStatusString", &library->status_text) &&
           find_symbol(handle, "cublasSgemm_v2_64", &library->sgemm) &&
           find_symbol(handle, "cublasDgemm_v2_64", &library->dgemm) &&
           find_symbol(handle, "cublasGemmStridedBatchedEx_64", &library->gemm_batched) &&
           find_symbol(handle, "cublasSetMathMode", &library->set_math_mode);
}

// The caller holds the mutex.
bool try_open(State &s, const char *name) noexcept {
    void *handle = open_library(name, s.info.tried);
    if (handle == nullptr) return false;
    Library library{};
    if (!find_all(handle, &library)) {
        note_failure(s.info.tried, name, "it lacks functions of cuBLAS 12");
        return false;
    }
    int major = 0;
    int minor = 0;
    int patch = 0;
    library.get_property(0, &major);
    library.get_property(1, &minor);
    library.get_property(2, &patch);
    s.info.version = major * 10000 + minor * 100 + patch;
    path_of(reinterpret_cast<void *>(library.create), name, s.info.path);
    s.library = library;
    s.info.open = true;
    s.open.store(true, std::memory_order_release);
    return true;
}

// cuBLAS has a CUDA runtime of its own: what went wrong there is known by its status alone.
Status cublas_failed(const Library &library, CublasStatus status, const char *api) noexcept {
    return fail_cuda(status == cuda::kCublasAllocationFailed ? CUKERN_OUT_OF_MEMORY : CUKERN_CUDA_ERROR, status,
                     library.status_name(status), api, library.status_text(status));
}

// Makes the handle. One serves all streams: to make one waits for the device, and takes tens of megabytes for a
// workspace that we don't use.
Status prepare(const Library &library, DeviceHandle *own) noexcept {
    if (own->handle != nullptr) return CUKERN_OK;
    const cuda::OutsideCaptures outside;
    Handle handle = nullptr;
    if (const CublasStatus status = library.create(&handle); status != kSuccess)
        return cublas_failed(library, status, "cublasCreate");
    if (const CublasStatus status = library.set_math_mode(handle, kNoShortSums); status != kSuccess) {
        library.destroy(handle);
        return cublas_failed(library, status, "cublasSetMathMode");
    }
    own->handle = handle;
    return CUKERN_OK;
}

// Directs the handle to a call's stream and workspace. To set a stream resets the workspace.
Status direct(const Library &library, const MatmulLaunch &launch, Stream stream, DeviceHandle *own) noexcept {
    const bool has_workspace =
        own->workspace == launch.workspace && own->workspace_bytes == launch.workspace_bytes;
    const bool is_one_stream = reinterpret_cast<std::uintptr_t>(stream) != kPerThreadHandle;
    if (own->is_set && is_one_stream && own->stream == stream && has_workspace) return CUKERN_OK;
    own->is_set = false;
    if (const CublasStatus status = library.set_stream(own->handle, static_cast<cudaStream_t>(stream));
        status != kSuccess)
        return cublas_failed(library, status, "cublasSetStream");
    if (const CublasStatus status = library.set_workspace(own->handle, launch.workspace, launch.workspace_bytes);
        status != kSuccess)
        return cublas_failed(library, status, "cublasSetWorkspace");
    own->stream = stream;
    own->workspace = launch.workspace;
    own->workspace_bytes = launch.workspace_bytes;
    own->is_set = true;
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

// Of any type that cuBLAS multiplies, and of batches.
CublasStatus gemm_batched(const Library &library, Handle handle, const MatmulLaunch &p) noexcept {
    const GemmType type = gemm_type(p.type);
    const double wide[] = {1, 0, 0, 0};  // one and zero, real or complex
    const float narrow[] = {1, 0, 0, 0};
    const bool is_wide = type.compute == cuda::kCompute64;
    const void *const one = is_wide ? static_cast<const void *>(wide) : narrow;
    const void *const zero = is_wide ? static_cast<const void *>(wide + 2) : narrow + 2;
    return library.gemm_batched(
        handle, p.b_transposed ? kTranspose : kNoTranspose, p.a_transposed ? kTranspose : kNoTranspose, p.n, p.m,
        p.k, one, p.b, type.data, p.ldb, p.batch_b, p.a, type.data, p.lda, p.batch_a, zero, p.c,
        gemm_type(p.result).data, p.ldc, p.batch_c, p.batch,
        p.allows_tf32 && p.type == ElementType::float32 ? cuda::kComputeTf32 : type.compute, kDefaultAlgorithm);
}

CublasStatus gemm(const Library &library, Handle handle, const MatmulLaunch &p, const char **api) noexcept {
    if (p.batch == 1 && p.type == ElementType::float32 && !p.allows_tf32) {
        *api = "cublasSgemm";
        return gemm<float>(library.sgemm, handle, p);
    }
    if (p.batch == 1 && p.type == ElementType::float64) {
        *api = "cublasDgemm";
        return gemm<double>(library.dgemm, handle, p);
    }
    *api = "cublasGemmStridedBatchedEx";
    return gemm_batched(library, handle, p);
}

}  // namespace

bool find_cublas() noexcept {
    State &s = state();
    if (s.open.load(std::memory_order_acquire)) return true;
    if (s.names_tried.load(std::memory_order_acquire)) return false;
    const std::lock_guard lock(s.mutex);
    for (const char *name : {"libcublas.so.13", "libcublas.so.12"})
        if (s.info.open || s.names_tried.load(std::memory_order_relaxed) || try_open(s, name)) break;
    s.names_tried.store(true, std::memory_order_release);
    return s.info.open;
}

Status open_cublas(const char *path) noexcept {
    State &s = state();
    if (path == nullptr) {
        if (find_cublas()) return CUKERN_OK;
    } else {
        const std::lock_guard lock(s.mutex);
        if (s.info.open || try_open(s, path)) return CUKERN_OK;
    }
    const CublasInfo info = cublas_info();
    return fail(CUKERN_LIBRARY_NOT_FOUND,
                "cuBLAS could not be opened; tried %s; 'pip install cukern[cublas]' brings it", info.tried);
}

void note_cublas_search(const char *who, const char *why) noexcept {
    State &s = state();
    const std::lock_guard lock(s.mutex);
    note_failure(s.info.tried, who, why);
}

CublasInfo cublas_info() noexcept {
    State &s = state();
    const std::lock_guard lock(s.mutex);
    return s.info;
}

Status cuda::cublas_gemm(const MatmulLaunch &launch, int device, Stream stream) noexcept {
    State &s = state();
    if (!s.open.load(std::memory_order_acquire)) return fail(CUKERN_INTERNAL, "cuBLAS is not open");
    const std::lock_guard lock(s.mutex);  // cuBLAS allows one call at a time on a handle
    try {
        const auto needed = static_cast<std::size_t>(device) + 1;
        if (s.handles.size() < needed) s.handles.resize(needed);
    } catch (...) {
        return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    }
    DeviceHandle &own = s.handles[static_cast<std::size_t>(device)];
    CUKERN_TRY(prepare(s.library, &own));
    CUKERN_TRY(direct(s.library, launch, stream, &own));
    const char *api = nullptr;
    if (launch.epilogue == nullptr) {
        const CublasStatus status = gemm(s.library, own.handle, launch, &api);
        return status == kSuccess ? CUKERN_OK : cublas_failed(s.library, status, api);
    }
    const CublasStatus status =
        cuda::cublaslt_gemm(own.handle, s.info.version, launch, device, static_cast<cudaStream_t>(stream), &api);
    if (status == cuda::kCublasNotSupported)
        return fail(CUKERN_NOT_SUPPORTED, "cuBLASLt has no kernel for this product's epilogue");
    return status == kSuccess ? CUKERN_OK : cublas_failed(s.library, status, api);
}

void cuda::cublas_forget(Stream stream) noexcept {
    State &s = state();
    if (!s.open.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(s.mutex);
    for (DeviceHandle &own : s.handles)
        if (own.stream == stream) own.is_set = false;
}

}  // namespace cukern
