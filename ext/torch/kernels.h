// The kernels of torch.ops.cukern that are registered through torch's C shim.
#pragma once

#include "torch/tensors.h"

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
[[noreturn]] void throw_torch_error(const char *operation);

// Before the last of the tensors is written to, as torch does it for its own `out`: throws where a gradient would
// have to be recorded, and has gradients that need what was there before fail.
void begin_writing(const char *operation, const GivenTensors &given);

}  // namespace cukern::py
