// Elementwise operations of torch.ops.cukern: read, check, make the result, launch.
#include "base/python.h"

#include "torch/backend.h"
#include "torch/kernels.h"

namespace cukern::py {
namespace {

constexpr const char *kInputNames[][kMaxInputs] = {{"a"}, {"a", "b"}, {"condition", "a", "b"}, {"a", "x", "y"}};
const char *const *input_names(Op op) noexcept { return kInputNames[op == Op::axpy ? 3 : arity(op) - 1]; }

Status find_types(Op op, TorchTensor *const *inputs, int count, ElementType *compute,
                  ElementType *result) noexcept {
    const int first = op == Op::where ? 1 : 0;  // the types do not depend on a condition
    ElementType promoted;
    CUKERN_TRY(torch_result_type(inputs + first, count - first, &promoted));
    return torch_types(op, promoted, compute, result);
}

// A factor is a value: torch's conversion of numbers makes it a tensor of no dimensions on the host.
Status make_factor(TorchTensor *factor) noexcept {
    if (factor->view.immediate) return CUKERN_OK;
    if (factor->on_gpu || factor->view.ndim != 0)
        return fail(CUKERN_INVALID_ARGUMENT, "a is one number, or a tensor of no dimensions on the host");
    make_immediate(&factor->view);
    return CUKERN_OK;
}

// Whether kernels of the GPU that compute in one type read operands of another: all but what only torch's
// promotion puts beside each other, tensors of no dimensions of a larger type, and integers beside complex64.
bool is_read_beside(ElementType type, ElementType compute) noexcept {
    return compute == ElementType::bool_ || promote(type, compute) == compute ||
           (kind_of(compute) == 'f' && is_integer(type));
}

Status run(Op op, bool has_out, const GivenTensors &given, StackValue *stack) {
    const int count = arity(op);
    Backend backend;
    CUKERN_TRY(ensure_torch_backend(&backend));
    TorchTensor tensors[kMaxInputs];
    TorchTensor *inputs[kMaxInputs];
    for (int i = 0; i < count; ++i) {
        inputs[i] = &tensors[i];
        CUKERN_TRY(read_tensor(given[i], input_names(op)[i], inputs[i]));
    }
    TorchTensor out;
    if (has_out) CUKERN_TRY(read_tensor(given[count], "out", &out));
    TorchPlace place;
    CUKERN_TRY(find_place(inputs, count, has_out ? &out : nullptr, &place));
    ElementType compute;
    TensorView expected;
    CUKERN_TRY(find_types(op, inputs, count, &compute, &expected.type));
    CUKERN_TRY(broadcast_shapes(inputs, count, &expected));
    if (op == Op::axpy) CUKERN_TRY(make_factor(inputs[0]));

    OwnedTensor made;
    if (has_out) {
        CUKERN_TRY(check_torch_out(out, expected, inputs, count, true));
    } else {
        out.view = expected;
        set_result_strides(inputs, count, &out.view);
        CUKERN_TRY(make_tensor(place, &out, made.put()));
    }
    Execution where;
    CUKERN_TRY(torch_execution(place, backend, &where));
    OwnedTensor converted[kMaxInputs];
    for (int i = op == Op::where ? 1 : 0; i < count && backend == Backend::cuda; ++i)
        if (!inputs[i]->view.immediate && !is_read_beside(inputs[i]->view.type, compute))
            CUKERN_TRY(copy_packed(compute, place, where, inputs[i], converted[i].put()));
    ElementwiseCall call;
    call.op = op;
    call.compute = compute;
    for (int i = 0; i < count; ++i) call.inputs[i] = &inputs[i]->view;
    call.out = &out.view;
    CUKERN_TRY(elementwise(call, where));
    made.give(&stack[0]);
    return CUKERN_OK;
}

void call(Op op, bool has_out, StackValue *stack) {
    const GivenTensors given(stack, arity(op) + (has_out ? 1 : 0));
    if (has_out) begin_writing(info(op).name, given.handles(), given.count());
    if (run(op, has_out, given, stack) != CUKERN_OK) throw_torch_error(info(op).name);
}

template <Op op, bool has_out>
void kernel(StackValue *stack, std::uint64_t, std::uint64_t) {
    call(op, has_out, stack);
}

}  // namespace

#define CUKERN_KERNELS_unary(id) {#id, kernel<Op::id, false>}, {#id ".out", kernel<Op::id, true>},
#define CUKERN_KERNELS_binary CUKERN_KERNELS_unary
#define CUKERN_KERNELS_choice CUKERN_KERNELS_unary
#define CUKERN_KERNELS_scalar(id)  // decomposed: see _operations.py
#define CUKERN_KERNELS_axpy(id) {#id ".Tensor", kernel<Op::id, false>}, {#id ".Tensor_out", kernel<Op::id, true>},
#define CUKERN_KERNELS_reduction(id)  // by Python

const TorchKernelRow kTorchElementwise[] = {
#define CUKERN_OP(id, kind, types, rule, doc) CUKERN_KERNELS_##kind(id)
#include "cukern/ops.def"
#undef CUKERN_OP
    {nullptr, nullptr},
};

}  // namespace cukern::py
