// torch's C shim: functions of a stable ABI that libtorch exports. They are found in the libtorch that the process
// has loaded: nothing of torch is linked or compiled against, and one build serves every version that has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace cukern::py {

using TensorHandle = void *;       // torch's AtenTensorHandle
using StackValue = std::uint64_t;  // torch's StableIValue; of a tensor the bits of its handle

// A kernel as the shim registers it. It owns the handles of the tensors that it is given, and puts its results
// where its arguments were. It may throw.
using TorchKernel = void (*)(StackValue *stack, std::uint64_t num_arguments, std::uint64_t num_results);

// The functions of the shim: the name after "aoti_torch_", and the parameters. Each returns 0 for success.
#define CUKERN_SHIM_FUNCTIONS(X)                                                                   \
    X(library_init_impl,                                                                           \
      (const char *library, const char *key, const char *file, std::uint32_t line, void **handle)) \
    X(library_impl, (void *library, const char *operation, TorchKernel kernel))                    \
    X(get_data_ptr, (TensorHandle tensor, void **data))                                            \
    X(get_dim, (TensorHandle tensor, std::int64_t * ndim))                                         \
    X(get_sizes, (TensorHandle tensor, std::int64_t * *sizes))                                     \
    X(get_strides, (TensorHandle tensor, std::int64_t * *strides))                                 \
    X(get_dtype, (TensorHandle tensor, std::int32_t * dtype))                                      \
    X(get_device_type, (TensorHandle tensor, std::int32_t * device_type))                          \
    X(get_device_index, (TensorHandle tensor, std::int32_t * device))                              \
    X(delete_tensor_object, (TensorHandle tensor))                                                 \
    X(empty_strided, (std::int64_t ndim, const std::int64_t *sizes, const std::int64_t *strides,   \
                      std::int32_t dtype, std::int32_t device_type, std::int32_t device, TensorHandle *tensor))

// c10::ArrayRef and c10::Device.
struct TorchLengths {
    const std::int64_t *data;
    std::size_t count;
};
struct TorchDevice {
    std::int8_t type;
    std::int8_t index;
};

struct Shim {
#define CUKERN_SHIM_MEMBER(name, parameters) std::int32_t(*name) parameters = nullptr;
    CUKERN_SHIM_FUNCTIONS(CUKERN_SHIM_MEMBER)
#undef CUKERN_SHIM_MEMBER
    // What the shim lacks, by the names in libtorch and libc10. A handle is the address of an at::Tensor made by
    // `new`, whose one member is the address of a TensorImpl.
    void (*bump_version)(TensorHandle tensor) = nullptr;  // may throw
    bool (*requires_grad)(const void *tensor_impl) = nullptr;
    bool (*is_recording)() = nullptr;
    std::int8_t (*get_default_dtype)() = nullptr;
    // Of a torch with CUDA only, and null where it has none.
    // at::detail::empty_strided_cuda, which returns an at::Tensor by the address in its first parameter. It
    // throws.
    void (*empty_strided_cuda)(void **tensor_impl, TorchLengths sizes, TorchLengths strides, std::int8_t dtype,
                               std::optional<TorchDevice> device) = nullptr;
    std::int32_t (*get_current_cuda_stream)(std::int32_t device, void **stream) = nullptr;
};

inline bool tensor_requires_grad(const Shim &torch, TensorHandle tensor) noexcept {
    return torch.requires_grad(*static_cast<void *const *>(tensor));
}

// The handle of a tensor that is owned by the address of its TensorImpl.
inline TensorHandle new_handle(void *tensor_impl) {
    struct Tensor {
        void *impl;
    };
    return new Tensor{tensor_impl};
}

// Finds the shim; false, with the name of the first function that is missing, where torch has none.
bool find_shim(const char **missing) noexcept;

// Valid once find_shim has found it.
const Shim &shim() noexcept;

// Lists as arguments, which the shim has since torch 2.10. Items of a list of integers are these.
struct ListFunctions {
    std::int32_t (*size)(void *list, std::uint64_t *count) = nullptr;
    std::int32_t (*get_item)(void *list, std::uint64_t at, StackValue *item) = nullptr;
    std::int32_t (*remove)(void *list) = nullptr;
};
bool find_list_functions(const char **missing) noexcept;
const ListFunctions &list_functions() noexcept;

}  // namespace cukern::py
