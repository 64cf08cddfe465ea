// The kernels of torch.ops.cukern that are registered through torch's C shim.
#pragma once

#include <stdexcept>
#include <string>

#include "torch/shim.h"

#include "cukern/status.h"

namespace cukern::py {

struct TorchKernelRow {
    const char *name;  // with its overload, as "add.out"
    TorchKernel kernel;
};

// Each ends in a row of nulls.
extern const TorchKernelRow kTorchElementwise[];
extern const TorchKernelRow kTorchProducts[];

// The thread's last failure as the exception that torch makes a RuntimeError.
[[noreturn]] inline void throw_torch_error(const char *operation) {
    throw std::runtime_error(std::string("cukern::") + operation + ": " + last_error().message);
}

}  // namespace cukern::py
