// The kernels of torch.ops.cukern that are registered through torch's C shim.
#pragma once

#include <string>

#include "torch/tensors.h"

#include "cukern/operations.h"
#include "cukern/status.h"

namespace cukern::py {

struct TorchKernelRow {
    const char *name;  // with its overload, as "add.out"
    TorchKernel kernel;
};

// Each ends in a row of nulls.
extern const TorchKernelRow kTorchElementwise[];
extern const TorchKernelRow kTorchProducts[];
extern const TorchKernelRow kTorchReductions[];  // they need list_functions()

// "cukern::add" of "add"; a name with a namespace as it is.
std::string full_name(const char *operation);

// The thread's last failure as the exception that torch makes a RuntimeError.
[[noreturn]] void throw_torch_error(const char *operation);

// Call it before the last of `tensors` is written to. As torch's own `out` forms it throws where one of them
// requires a gradient, and counts the last one's version up, so that a backward pass that saved the old elements
// fails.
void begin_writing(const char *operation, const TensorHandle *tensors, int count);

// Puts a packed copy of an element type in a tensor's place; its handle is the caller's.
Status copy_packed(ElementType type, const TorchPlace &place, const Execution &where, TorchTensor *tensor,
                   TensorHandle *handle);

}  // namespace cukern::py
