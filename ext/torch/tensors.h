// torch's tensors as views, and torch's rules for results: element types, shapes, memory layout. No Python.
#pragma once

#include <utility>

#include "torch/shim.h"

#include "cukern/ops.h"
#include "cukern/status.h"
#include "cukern/tensor_view.h"

namespace cukern::py {

// The tensors that a kernel is given: their handles are given up at the end.
class GivenTensors {
public:
    GivenTensors(const StackValue *stack, int count) noexcept : count_(count) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): the stack has handles as numbers
        for (int i = 0; i < count; ++i) handles_[i] = reinterpret_cast<TensorHandle>(stack[i]);
    }
    ~GivenTensors() {
        for (int i = 0; i < count_; ++i) shim().delete_tensor_object(handles_[i]);
    }
    GivenTensors(const GivenTensors &) = delete;
    GivenTensors &operator=(const GivenTensors &) = delete;

    TensorHandle operator[](int i) const noexcept { return handles_[i]; }
    const TensorHandle *handles() const noexcept { return handles_; }
    int count() const noexcept { return count_; }

private:
    TensorHandle handles_[kMaxInputs + 1] = {};
    int count_;
};

// A tensor that a kernel makes; freed, in the order of torch's current stream, unless it is given on.
class OwnedTensor {
public:
    OwnedTensor() noexcept = default;
    ~OwnedTensor() {
        if (handle_ != nullptr) shim().delete_tensor_object(handle_);
    }
    OwnedTensor(const OwnedTensor &) = delete;
    OwnedTensor &operator=(const OwnedTensor &) = delete;

    TensorHandle *put() noexcept { return &handle_; }
    // As a result on the stack. Where there is none, nothing is put there.
    void give(StackValue *to) noexcept {
        if (handle_ != nullptr) *to = reinterpret_cast<StackValue>(std::exchange(handle_, nullptr));
    }

private:
    TensorHandle handle_ = nullptr;
};

struct TorchTensor {
    TensorView view;
    bool on_gpu = false;
    int device = 0;
};

// `name` is for messages.
Status read_tensor(TensorHandle handle, const char *name, TorchTensor *tensor) noexcept;

// Makes a tensor of no dimensions on the host an immediate value.
void make_immediate(TensorView *view) noexcept;

// Where a call's tensors are: on one GPU or on the host. Operands of no dimensions on the host beside a GPU's
// become immediate values.
struct TorchPlace {
    bool on_gpu = false;
    int device = 0;
};
Status find_place(TorchTensor *const *tensors, int count, const TorchTensor *out, TorchPlace *place) noexcept;

// torch.result_type of the operands: those of no dimensions count less than the others.
Status torch_result_type(const TorchTensor *const *tensors, int count, ElementType *type) noexcept;

// The element types that an operation computes in and returns; `promoted` is that of its operands.
Status torch_types(Op op, ElementType promoted, ElementType *compute, ElementType *result) noexcept;

// torch.broadcast_shapes.
Status broadcast_shapes(const TorchTensor *const *tensors, int count, TensorView *out) noexcept;

// The strides that torch gives a result of the shape in `out`: the operands' order of dimensions, without gaps.
void set_result_strides(const TorchTensor *const *tensors, int count, TensorView *out) noexcept;

// A new tensor of the shape, strides and type in tensor->view. It throws what torch throws for want of memory.
Status make_tensor(const TorchPlace &place, TorchTensor *tensor, TensorHandle *handle);

// Whether `out` may take a result: its shape, type and memory.
Status check_torch_out(const TorchTensor &out, const TensorView &expected, const TorchTensor *const *tensors,
                       int count, bool same_allowed) noexcept;

}  // namespace cukern::py
