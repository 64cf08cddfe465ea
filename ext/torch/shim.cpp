#include "torch/shim.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace cukern::py {
namespace {

Shim g_shim;
ListFunctions g_lists;

// A library that the process has loaded already; it is not opened otherwise.
void *loaded_library(const char *name) noexcept { return dlopen(name, RTLD_NOLOAD | RTLD_LAZY); }

// CUKERN_TORCH_HIDE names a function that is not to be found, as in a torch that has none: for tests.
template <typename Function>
bool find_function(void *library, const char *name, Function *function) noexcept {
    const char *const hidden = std::getenv("CUKERN_TORCH_HIDE");
    const bool is_there = library != nullptr && (hidden == nullptr || std::strcmp(hidden, name) != 0);
    *function = is_there ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
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
    void *const c10 = loaded_library("libc10.so");
#define CUKERN_FIND_NAMED(library, symbol, member)         \
    if (!find_function(library, symbol, &g_shim.member)) { \
        *missing = symbol;                                 \
        return false;                                      \
    }
    CUKERN_FIND_NAMED(cpu, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", bump_version)
    CUKERN_FIND_NAMED(c10, "_ZNK3c1010TensorImpl13requires_gradEv", requires_grad)
    CUKERN_FIND_NAMED(c10, "_ZN3c108GradMode10is_enabledEv", is_recording)
    CUKERN_FIND_NAMED(c10, "_ZN3c1031get_default_dtype_as_scalartypeEv", get_default_dtype)
#undef CUKERN_FIND_NAMED
    void *const cuda = loaded_library("libtorch_cuda.so");
    find_function(cuda, "aoti_torch_get_current_cuda_stream", &g_shim.get_current_cuda_stream);
#if defined(__x86_64__)  // elsewhere a result's address is no parameter
    find_function(
        cuda, "_ZN2at6detail18empty_strided_cudaEN3c108ArrayRefIlEES3_NS1_10ScalarTypeESt8optionalINS1_6DeviceEE",
        &g_shim.empty_strided_cuda);
#endif
    return true;
}

const Shim &shim() noexcept { return g_shim; }

bool find_list_functions(const char **missing) noexcept {
    void *const cpu = loaded_library("libtorch_cpu.so");
    const auto find = [&](const char *name, auto *function) {
        if (find_function(cpu, name, function)) return true;
        *missing = name;
        return false;
    };
    return find("torch_list_size", &g_lists.size) && find("torch_list_get_item", &g_lists.get_item) &&
           find("torch_delete_list", &g_lists.remove);
}

const ListFunctions &list_functions() noexcept { return g_lists; }

}  // namespace cukern::py
