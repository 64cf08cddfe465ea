#include "torch/kernels.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace cukern::py {

std::string full_name(const char *operation) {
    return std::strstr(operation, "::") != nullptr ? operation : std::string("cukern::") + operation;
}

void throw_torch_error(const char *operation) {
    throw std::runtime_error(full_name(operation) + ": " + last_error().message);
}

void begin_writing(const char *operation, const TensorHandle *tensors, int count) {
    const Shim &torch = shim();
    for (int i = 0; torch.is_recording() && i < count; ++i)
        if (tensor_requires_grad(torch, tensors[i]))
            throw std::runtime_error(
                full_name(operation) +
                ": writing to a tensor records no gradient, and a tensor requires one; call it in "
                "torch.no_grad()");
    torch.bump_version(tensors[count - 1]);
}

Status copy_packed(ElementType type, const TorchPlace &place, const Execution &where, TorchTensor *tensor,
                   TensorHandle *handle) {
    TorchTensor copy;
    copy.view.type = type;
    copy.view.ndim = tensor->view.ndim;
    for (int d = 0; d < copy.view.ndim; ++d) copy.view.shape[d] = tensor->view.shape[d];
    set_contiguous(copy.view);
    CUKERN_TRY(make_tensor(place, &copy, handle));
    ElementwiseCall call;
    call.inputs[0] = &tensor->view;
    call.out = &copy.view;
    CUKERN_TRY(elementwise(call, where));
    *tensor = std::move(copy);
    return CUKERN_OK;
}

}  // namespace cukern::py
