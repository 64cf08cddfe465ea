// matmul of torch.ops.cukern: read, view, check, make the result, launch.
#include "base/python.h"

#include "ops/product_views.h"
#include "torch/backend.h"
#include "torch/kernels.h"

namespace cukern::py {
namespace {

Status run(bool has_out, const GivenTensors &given, StackValue *stack) {
    Backend backend;
    CUKERN_TRY(ensure_torch_backend(&backend));
    TorchTensor a;
    TorchTensor b;
    TorchTensor out;
    CUKERN_TRY(read_tensor(given[0], "a", &a));
    CUKERN_TRY(read_tensor(given[1], "b", &b));
    if (has_out) CUKERN_TRY(read_tensor(given[2], "out", &out));
    Shape shape;
    CUKERN_TRY(product_shape(ProductForm::matmul, Shape(a.view.ndim, a.view.shape),
                             Shape(b.view.ndim, b.view.shape), &shape));
    TorchTensor *const inputs[] = {&a, &b};
    TorchPlace place;
    CUKERN_TRY(find_place(inputs, 2, has_out ? &out : nullptr, &place));
    TensorView expected;
    CUKERN_TRY(torch_result_type(inputs, 2, &expected.type));
    expected.ndim = shape.ndim;
    for (int d = 0; d < shape.ndim; ++d) expected.shape[d] = shape.lengths[d];

    OwnedTensor made;
    if (has_out) {
        if (out.view.type != expected.type)
            return fail(CUKERN_INVALID_ARGUMENT, "out has element type %s; expected %s", name_of(out.view.type),
                        name_of(expected.type));
        CUKERN_TRY(check_torch_out(out, expected, inputs, 2, false));
    } else {
        set_contiguous(expected);
        out.view = expected;
        CUKERN_TRY(make_tensor(place, &out, made.put()));
    }
    ProductViews views;
    make_product_views(ProductForm::matmul, a.view, b.view, out.view, &views);
    MatmulCall call;
    call.compute = product_type(expected.type);
    call.inputs[0] = &views.a;
    call.inputs[1] = &views.b;
    call.out = &views.out;
    Execution where;
    CUKERN_TRY(torch_execution(place, backend, &where));
    if (backend == Backend::cuda && prefers_cublas(call)) CUKERN_TRY(seek_torch_cublas());
    CUKERN_TRY(matmul(call, where));
    made.give(&stack[0]);
    return CUKERN_OK;
}

template <bool has_out>
void kernel(StackValue *stack, std::uint64_t, std::uint64_t) {
    const GivenTensors given(stack, has_out ? 3 : 2);
    if (has_out) begin_writing("matmul", given.handles(), given.count());
    if (run(has_out, given, stack) != CUKERN_OK) throw_torch_error("matmul");
}

}  // namespace

const TorchKernelRow kTorchProducts[] = {
    {"matmul", kernel<false>},
    {"matmul.out", kernel<true>},
    {nullptr, nullptr},
};

}  // namespace cukern::py
