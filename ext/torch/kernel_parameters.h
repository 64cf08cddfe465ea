// The parameters of a user's kernel from an operation's arguments: checked against their types, without Python.
#pragma once

#include "torch/tensors.h"

#include "cukern/user_kernels.h"

namespace cukern::py {

class KernelParameters {
public:
    explicit KernelParameters(const UserKernel &kernel) noexcept : kernel_(kernel) {}

    Status check_count(int count) const noexcept;

    // The next parameter's value.
    Status add_tensor(const TorchTensor &tensor) noexcept;
    Status add_int(std::int64_t number) noexcept;
    Status add_float(double number) noexcept;

    const void *bytes() const noexcept { return bytes_; }

private:
    const KernelParameter &next() noexcept { return kernel_.parameter(num_added_++); }
    Status refuse_tensor(const KernelParameter &parameter, ElementType type) const noexcept;
    Status refuse(const KernelParameter &parameter, const char *got, const char *takes) const noexcept;

    static constexpr std::size_t kMostBytes = 1024;

    const UserKernel &kernel_;
    int num_added_ = 0;
    alignas(16) unsigned char bytes_[kMostBytes];
};

}  // namespace cukern::py
