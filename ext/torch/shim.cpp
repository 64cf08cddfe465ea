#include "torch/shim.h"

#include <dlfcn.h>

namespace cukern::py {
namespace {

Shim g_shim;

// A library that the process has loaded already; it is not opened otherwise.
void *loaded_library(const char *name) noexcept { return dlopen(name, RTLD_NOLOAD | RTLD_LAZY); }

template <typename Function>
bool find_function(void *library, const char *name, Function *function) noexcept {
    *function = library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
    return *function != nullptr;
}

}  // namespace

bool find_shim(const char **missing) noexcept {
    void *const cpu = loaded_library("libtorch_cpu.so");
#define CUKERN_FIND(name, parameters)                             \
    if (!find_function(cpu, "aoti_torch_" #name, &g_shim.name)) { \
        *missing = "aoti_torch_" #name;                           \
        return false;                                             \
    }
    CUKERN_SHIM_FUNCTIONS(CUKERN_FIND)
#undef CUKERN_FIND
    find_function(loaded_library("libtorch_cuda.so"), "aoti_torch_get_current_cuda_stream",
                  &g_shim.get_current_cuda_stream);
    find_function(loaded_library("libc10.so"), "_ZN3c1031get_default_dtype_as_scalartypeEv",
                  &g_shim.get_default_dtype);
    return true;
}

const Shim &shim() noexcept { return g_shim; }

}  // namespace cukern::py
