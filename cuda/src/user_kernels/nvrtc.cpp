// NVRTC, opened on first use and never closed.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "cukern/user_kernels.h"
#include "runtime/fork_mutex.h"
#include "runtime/shared_library.h"

namespace cukern {
namespace {

// The part of NVRTC's C ABI that is used, from its documentation (NVRTC 12 and 13).
using Program = void *;
using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kInvalidOption = 5;
constexpr Result kCompilationFailed = 6;

struct Library {
    Result (*version)(int *, int *);
    Result (*num_targets)(int *);
    Result (*targets)(int *);
    Result (*create)(Program *, const char *, const char *, int, const char *const *, const char *const *);
    Result (*destroy)(Program *);
    Result (*compile)(Program, int, const char *const *);
    Result (*log_size)(Program, std::size_t *);
    Result (*log)(Program, char *);
    Result (*cubin_size)(Program, std::size_t *);
    Result (*cubin)(Program, char *);
    Result (*ptx_size)(Program, std::size_t *);
    Result (*ptx)(Program, char *);
    Result (*add_name)(Program, const char *);
    Result (*lowered_name)(Program, const char *, const char **);
    const char *(*error_text)(Result);
};

struct State {
    ForkMutex mutex;
    Library library{};
    std::atomic<bool> open{false};
    NvrtcInfo info;
    char tried[1024] = {};
};

State &state() noexcept {
    alignas(State) static unsigned char memory[sizeof(State)];
    static auto *const instance = new (memory) State;  // never destroyed
    return *instance;
}

bool find_all(void *handle, Library *library) noexcept {
    return find_symbol(handle, "nvrtcVersion", &library->version) &&
           find_symbol(handle, "nvrtcGetNumSupportedArchs", &library->num_targets) &&
           find_symbol(handle, "nvrtcGetSupportedArchs", &library->targets) &&
           find_symbol(handle, "nvrtcCreateProgram", &library->create) &&
           find_symbol(handle, "nvrtcDestroyProgram", &library->destroy) &&
           find_symbol(handle, "nvrtcCompileProgram", &library->compile) &&
           find_symbol(handle, "nvrtcGetProgramLogSize", &library->log_size) &&
           find_symbol(handle, "nvrtcGetProgramLog", &library->log) &&
           find_symbol(handle, "nvrtcGetCUBINSize", &library->cubin_size) &&
           find_symbol(handle, "nvrtcGetCUBIN", &library->cubin) &&
           find_symbol(handle, "nvrtcGetPTXSize", &library->ptx_size) &&
           find_symbol(handle, "nvrtcGetPTX", &library->ptx) &&
           find_symbol(handle, "nvrtcAddNameExpression", &library->add_name) &&
           find_symbol(handle, "nvrtcGetLoweredName", &library->lowered_name) &&
           find_symbol(handle, "nvrtcGetErrorString", &library->error_text);
}

// NVRTC opens a second library by its bare name when it compiles first. It is the one beside it, which the loader
// does not always look for there.
void open_builtins(const NvrtcInfo &info) noexcept {
    const char *const name = std::strrchr(info.path, '/');
    char path[sizeof info.path + 64];
    const int folder = name == nullptr ? 0 : static_cast<int>(name - info.path) + 1;
    std::snprintf(path, sizeof path, "%.*slibnvrtc-builtins.so.%d.%d", folder, info.path, info.major, info.minor);
    dlopen(path, RTLD_NOW | RTLD_LOCAL);  // where it is not there, NVRTC says so
}

// The caller holds the mutex.
bool try_open(State &s, const char *name) noexcept {
    void *handle = open_library(name, s.tried);
    if (handle == nullptr) return false;
    Library library{};
    if (!find_all(handle, &library)) {
        note_failure(s.tried, name, "it lacks functions of NVRTC 12");
        return false;
    }
    library.version(&s.info.major, &s.info.minor);
    path_of(reinterpret_cast<void *>(library.version), name, s.info.path);
    open_builtins(s.info);
    s.library = library;
    s.info.open = true;
    s.open.store(true, std::memory_order_release);
    return true;
}

Status nvrtc_failed(Result result, const char *api) noexcept {
    char name[32];
    std::snprintf(name, sizeof name, "nvrtcResult %d", result);
    return fail_cuda(CUKERN_CUDA_ERROR, result, name, api, state().library.error_text(result));
}

// What a pair of functions gives: its size, then its bytes, followed by a zero byte.
Status read_text(Program program, Result (*size_of_text)(Program, std::size_t *), Result (*get)(Program, char *),
                 const char *api, char **text, std::size_t *bytes) noexcept {
    std::size_t size = 0;
    if (const Result result = size_of_text(program, &size); result != kSuccess) return nvrtc_failed(result, api);
    *text = static_cast<char *>(std::calloc(size + 1, 1));
    if (*text == nullptr) return fail(CUKERN_OUT_OF_MEMORY, "no memory for %zu bytes of compiled code", size);
    *bytes = size;
    const Result result = get(program, *text);
    return result == kSuccess ? CUKERN_OK : nvrtc_failed(result, api);
}

}  // namespace

Status open_nvrtc(const char *path) noexcept {
    State &s = state();
    if (s.open.load(std::memory_order_acquire)) return CUKERN_OK;
    const std::lock_guard lock(s.mutex);
    if (s.info.open) return CUKERN_OK;
    if (path != nullptr && try_open(s, path)) return CUKERN_OK;
    for (const char *name : {"libnvrtc.so.13", "libnvrtc.so.12"})
        if (try_open(s, name)) return CUKERN_OK;
    const Status status = fail(CUKERN_LIBRARY_NOT_FOUND,
                               "NVRTC, which compiles CUDA C++, could not be opened; tried %s; "
                               "'pip install cukern[nvrtc]' brings it",
                               s.tried);
    s.tried[0] = '\0';
    return status;
}

NvrtcInfo nvrtc_info() noexcept {
    State &s = state();
    const std::lock_guard lock(s.mutex);
    return s.info;
}

int nvrtc_targets(int *targets, int most) noexcept {
    const State &s = state();
    constexpr int kMost = 64;
    int all[kMost];
    int count = 0;
    if (!s.open.load(std::memory_order_acquire) || s.library.num_targets(&count) != kSuccess || count > kMost ||
        s.library.targets(all) != kSuccess)
        return 0;
    if (count > most) count = most;
    std::memcpy(targets, all, static_cast<std::size_t>(count) * sizeof(int));
    return count;
}

Compilation::~Compilation() {
    if (program_ != nullptr) state().library.destroy(&program_);
    std::free(log_);
    std::free(image_);
}

Status Compilation::compile(const char *source, const char *file_name, const char *const *names, int num_names,
                            const char *const *options, int num_options) noexcept {
    CUKERN_TRY(open_nvrtc(nullptr));
    const Library &nvrtc = state().library;
    Result result = nvrtc.create(&program_, source, file_name, 0, nullptr, nullptr);
    if (result != kSuccess) return nvrtc_failed(result, "nvrtcCreateProgram");
    for (int i = 0; i < num_names; ++i) {
        result = nvrtc.add_name(program_, names[i]);
        if (result != kSuccess) return nvrtc_failed(result, "nvrtcAddNameExpression");
    }
    const Result compiled = nvrtc.compile(program_, num_options, options);
    std::size_t log_bytes = 0;
    CUKERN_TRY(read_text(program_, nvrtc.log_size, nvrtc.log, "nvrtcGetProgramLog", &log_, &log_bytes));
    if (compiled == kCompilationFailed || compiled == kInvalidOption)
        return fail(CUKERN_INVALID_ARGUMENT, "the source does not compile");
    if (compiled != kSuccess) return nvrtc_failed(compiled, "nvrtcCompileProgram");
    // Code for a real architecture where there is some, else PTX.
    std::size_t size = 0;
    if (nvrtc.cubin_size(program_, &size) == kSuccess && size > 0)
        return read_text(program_, nvrtc.cubin_size, nvrtc.cubin, "nvrtcGetCUBIN", &image_, &image_bytes_);
    return read_text(program_, nvrtc.ptx_size, nvrtc.ptx, "nvrtcGetPTX", &image_, &image_bytes_);
}

const char *Compilation::lowered(const char *name) const noexcept {
    const char *found = nullptr;
    return state().library.lowered_name(program_, name, &found) == kSuccess ? found : nullptr;
}

}  // namespace cukern
