// The structures of DLPack 1.3, written from its specification: they are an ABI shared by libraries that know
// nothing of each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cukern::py::dlpack {

constexpr std::uint32_t kMajor = 1;
constexpr std::uint32_t kMinor = 3;

enum DeviceType : std::int32_t { kCPU = 1, kCUDA = 2, kCUDAHost = 3, kCUDAManaged = 13 };

struct Version {
    std::uint32_t major;
    std::uint32_t minor;
};

struct Device {
    std::int32_t type;
    std::int32_t id;
};

// Of the codes in element_types.def, with the element's bits and the number of lanes of a vector.
struct DataType {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
};

struct Tensor {
    void *data;
    Device device;
    std::int32_t ndim;
    DataType dtype;
    std::int64_t *shape;
    std::int64_t *strides;  // in elements; null: C-contiguous (not from 1.2 on)
    std::uint64_t byte_offset;
};

struct ManagedTensor {
    Tensor tensor;
    void *manager_context;
    void (*deleter)(ManagedTensor *);
};

constexpr std::uint64_t kReadOnly = 1;
constexpr std::uint64_t kIsCopied = 2;

struct ManagedTensorVersioned {
    Version version;
    void *manager_context;
    void (*deleter)(ManagedTensorVersioned *);
    std::uint64_t flags;
    Tensor tensor;
};

// What a type offers to C code under the attribute __dlpack_c_exchange_api__, a capsule of this name.
constexpr const char *kExchangeName = "dlpack_exchange_api";

struct ExchangeHeader {
    Version version;
    ExchangeHeader *previous;
};

using SetError = void (*)(void *context, const char *kind, const char *message);

struct ExchangeAPI {
    ExchangeHeader header;
    int (*allocate)(Tensor *prototype, ManagedTensorVersioned **out, void *context, SetError set_error);
    int (*managed_from_object)(void *object, ManagedTensorVersioned **out);
    int (*object_from_managed)(ManagedTensorVersioned *tensor, void **out);
    int (*tensor_from_object)(void *object, Tensor *out);
    int (*current_stream)(std::int32_t device_type, std::int32_t device, void **out);
};

constexpr const char *kLegacyName = "dltensor";
constexpr const char *kLegacyUsedName = "used_dltensor";
constexpr const char *kVersionedName = "dltensor_versioned";
constexpr const char *kVersionedUsedName = "used_dltensor_versioned";

static_assert(sizeof(Tensor) == 48);
static_assert(offsetof(Tensor, device) == 8 && offsetof(Tensor, ndim) == 16 && offsetof(Tensor, dtype) == 20);
static_assert(offsetof(Tensor, shape) == 24 && offsetof(Tensor, strides) == 32);
static_assert(offsetof(Tensor, byte_offset) == 40);
static_assert(sizeof(ManagedTensor) == 64);
static_assert(offsetof(ManagedTensor, manager_context) == 48 && offsetof(ManagedTensor, deleter) == 56);
static_assert(sizeof(ManagedTensorVersioned) == 80);
static_assert(offsetof(ManagedTensorVersioned, manager_context) == 8);
static_assert(offsetof(ManagedTensorVersioned, deleter) == 16 && offsetof(ManagedTensorVersioned, flags) == 24);
static_assert(offsetof(ManagedTensorVersioned, tensor) == 32);
static_assert(sizeof(ExchangeHeader) == 16 && sizeof(ExchangeAPI) == 56);
static_assert(offsetof(ExchangeAPI, allocate) == 16 && offsetof(ExchangeAPI, current_stream) == 48);

}  // namespace cukern::py::dlpack
