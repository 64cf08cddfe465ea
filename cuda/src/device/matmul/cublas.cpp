#include "device/matmul/cublas.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>

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

constexpr std::size_t kMostHandles = 16;  // the least recently used one makes room
constexpr std::uint64_t kCaptured =
    ~std::uint64_t{0};  // in place of a stream: for captured calls, of a device each

// What is kept for a stream.
struct StreamHandle {
    Handle handle = nullptr;
    void *workspace = nullptr;
    std::uint64_t last_use = 0;
};

struct State {
    ForkMutex mutex;
    std::uint64_t uses = 0;
    Library library{};
    std::atomic<bool> open{false};
    CublasInfo info;
    std::atomic<bool> names_tried{false};  // once is enough: a search of the loader's paths is slow
    std::map<std::pair<int, std::uint64_t>, StreamHandle>
        handles;  // never destroyed: the library goes before we could
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

void destroy(Runtime &runtime, const Library &library, StreamHandle &own) noexcept {
    const cuda::OutsideCaptures outside;
    if (own.handle != nullptr) library.destroy(own.handle);
    if (own.workspace != nullptr) runtime.release(MemoryKind::device, own.workspace);
    own = {};
}

// Live streams are told apart by their handles, but for the per-thread default stream: one handle for many.
std::uint64_t key_of(Runtime &runtime, Stream stream) noexcept {
    if (is_legacy(stream)) return 0;
    const auto handle = reinterpret_cast<std::uintptr_t>(stream);
    return handle == kPerThreadHandle ? runtime.stream_id(stream) : handle;
}

// A stream of the caller's may be long gone. The driver's release of the workspace waits for work in it.
void drop_oldest(Runtime &runtime, State &s) noexcept {
    auto oldest = s.handles.end();
    for (auto entry = s.handles.begin(); entry != s.handles.end(); ++entry)
        if (entry->first.second != kCaptured &&
            (oldest == s.handles.end() || entry->second.last_use < oldest->second.last_use))
            oldest = entry;
    if (oldest == s.handles.end()) return;
    destroy(runtime, s.library, oldest->second);
    s.handles.erase(oldest);
}

Status prepare(Runtime &runtime, const Library &library, Stream stream, bool is_captured,
               StreamHandle *own) noexcept {
    const cuda::OutsideCaptures outside;  // making a handle allocates memory
    if (const CublasStatus status = library.create(&own->handle); status != kSuccess)
        return cublas_failed(library, status, "cublasCreate");
    if (const CublasStatus status = library.set_math_mode(own->handle, kNoShortSums); status != kSuccess)
        return cublas_failed(library, status, "cublasSetMathMode");
    if (is_captured) return CUKERN_OK;
    CUKERN_TRY(runtime.allocate(MemoryKind::device, kCublasWorkspaceBytes, &own->workspace));
    if (const CublasStatus status = library.set_stream(own->handle, static_cast<cudaStream_t>(stream));
        status != kSuccess)
        return cublas_failed(library, status, "cublasSetStream");
    if (const CublasStatus status = library.set_workspace(own->handle, own->workspace, kCublasWorkspaceBytes);
        status != kSuccess)
        return cublas_failed(library, status, "cublasSetWorkspace");
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

Status cuda::cublas_gemm(Runtime &runtime, const MatmulLaunch &launch, int device, Stream stream) noexcept {
    State &s = state();
    if (!s.open.load(std::memory_order_acquire)) return fail(CUKERN_INTERNAL, "cuBLAS is not open");
    // The handle's workspace belongs to its stream; cuBLAS itself allows one call at a time on a handle.
    const std::lock_guard lock(s.mutex);
    StreamHandle *own = nullptr;
    // Captured calls share a handle, with the graph's workspace: one of the stream's own would have to go with the
    // stream, which waits for the device and would end a later capture.
    const bool is_captured = launch.workspace != nullptr;
    const std::pair key{device, is_captured ? kCaptured : key_of(runtime, stream)};
    if (const auto found = s.handles.find(key); found != s.handles.end()) own = &found->second;
    if (own == nullptr) {
        // Not while calls are captured: cuBLAS waits for the device where a handle goes, which would end the
        // capture.
        if (!is_captured && !any_graph_captured() && s.handles.size() >= kMostHandles) drop_oldest(runtime, s);
        try {
            own = &s.handles[key];
        } catch (...) {
            return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
        }
    }
    own->last_use = ++s.uses;
    if (own->handle == nullptr) {
        if (const Status status = prepare(runtime, s.library, stream, is_captured, own); status != CUKERN_OK) {
            destroy(runtime, s.library, *own);
            return status;
        }
    }
    CublasStatus status = kSuccess;
    if (is_captured) status = s.library.set_stream(own->handle, static_cast<cudaStream_t>(stream));
    if (is_captured && status == kSuccess)
        status = s.library.set_workspace(own->handle, launch.workspace, kCublasWorkspaceBytes);
    const char *api = "cublasSetStream";
    if (status == kSuccess && launch.epilogue == nullptr) status = gemm(s.library, own->handle, launch, &api);
    if (status == kSuccess && launch.epilogue != nullptr) {
        void *const workspace = is_captured ? launch.workspace : own->workspace;
        status = cuda::cublaslt_gemm(own->handle, s.info.version, launch, workspace, device,
                                     static_cast<cudaStream_t>(stream), &api);
        if (status == cuda::kCublasNotSupported)
            return fail(CUKERN_NOT_SUPPORTED, "cuBLASLt has no kernel for this product's epilogue");
    }
    return status == kSuccess ? CUKERN_OK : cublas_failed(s.library, status, api);
}

void cuda::cublas_forget(Runtime &runtime, Stream stream) noexcept {
    State &s = state();
    if (!s.open.load(std::memory_order_acquire)) return;
    const std::uint64_t id = key_of(runtime, stream);
    const std::lock_guard lock(s.mutex);
    for (auto entry = s.handles.begin(); entry != s.handles.end();) {
        if (entry->first.second != id) {
            ++entry;
            continue;
        }
        destroy(runtime, s.library, entry->second);
        entry = s.handles.erase(entry);
    }
}

}  // namespace cukern
