// Reductions of torch.ops.cukern: read, check, make the result, launch.
#include "base/python.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "torch/backend.h"
#include "torch/kernels.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

// The dimensions of a call: an optional number or list, which a kernel owns as it does tensors.
struct GivenDims {
    bool all = true;
    std::int64_t dims[kMaxDims];
    std::uint64_t count = 0;
};

// What an optional argument holds; false: nothing.
bool take_optional(StackValue argument, StackValue *value) noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the stack has addresses as numbers
    auto *const held = reinterpret_cast<StackValue *>(argument);
    if (held == nullptr) return false;
    *value = *held;
    delete held;
    return true;
}

GivenDims take_dim(StackValue argument) noexcept {
    GivenDims given;
    StackValue value = 0;
    if (!take_optional(argument, &value)) return given;
    given.all = false;
    given.dims[given.count++] = static_cast<std::int64_t>(value);
    return given;
}

// An empty list, as in torch, is all dimensions.
GivenDims take_dims(StackValue argument) noexcept {
    GivenDims given;
    StackValue list = 0;
    if (!take_optional(argument, &list)) return given;
    const ListFunctions &lists = list_functions();
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the stack has handles as numbers
    auto *const handle = reinterpret_cast<void *>(list);
    lists.size(handle, &given.count);
    for (std::uint64_t i = 0; i < given.count && i < kMaxDims; ++i) {
        StackValue dim = 0;
        lists.get_item(handle, i, &dim);
        given.dims[i] = static_cast<std::int64_t>(dim);
    }
    lists.remove(handle);
    given.all = given.count == 0;
    return given;
}

// torch raises an IndexError of it.
void check_range(const char *operation, const GivenDims &given, int ndim) {
    const int most = ndim > 0 ? ndim : 1;
    for (std::uint64_t i = 0; !given.all && i < given.count && i < kMaxDims; ++i)
        if (given.dims[i] < -most || given.dims[i] >= most)
            throw std::out_of_range(full_name(operation) + ": dimension " + std::to_string(given.dims[i]) +
                                    " is out of range for a tensor of " + std::to_string(ndim) + " dimensions");
}

Status mark_reduced(const GivenDims &given, int ndim, bool *reduced) noexcept {
    for (int d = 0; d < ndim; ++d) reduced[d] = given.all;
    if (!given.all && given.count > static_cast<std::uint64_t>(ndim > 0 ? ndim : 1))
        return fail(CUKERN_INVALID_ARGUMENT, "a dimension is named twice");
    for (std::uint64_t i = 0; !given.all && ndim > 0 && i < given.count; ++i) {
        bool &own = reduced[given.dims[i] < 0 ? given.dims[i] + ndim : given.dims[i]];
        if (own) return fail(CUKERN_INVALID_ARGUMENT, "a dimension is named twice");
        own = true;
    }
    return CUKERN_OK;
}

// A result without the dimensions of length 1 that `keepdim` leaves.
TensorView without_reduced(const TensorView &view, int ndim, bool keepdim, const bool *reduced) noexcept {
    TensorView kept = view;
    if (!keepdim) return kept;
    kept.ndim = 0;
    for (int d = 0; d < ndim; ++d) {
        if (reduced[d]) continue;
        kept.shape[kept.ndim] = view.shape[d];
        kept.strides[kept.ndim++] = view.strides[d];
    }
    return kept;
}

// torch's element types: sums of integers are int64, means and variances of integers are refused.
Status find_type(Op op, ElementType type, ElementType *compute) noexcept {
    const ResultRule rule = info(op).rule;
    const bool is_inexact = kind_of(type) == 'f' || kind_of(type) == 'c';
    if ((rule == ResultRule::floating || rule == ResultRule::variance) && !is_inexact)
        return fail(CUKERN_NOT_SUPPORTED,
                    "not defined for element type %s; convert before, as by a.to(torch.float32)", name_of(type));
    *compute = rule == ResultRule::summed && !is_inexact ? ElementType::int64 : compute_type(op, type, type);
    return CUKERN_OK;
}

// The arguments behind the first.
struct Options {
    GivenDims dims;
    bool keepdim = false;
    double correction = 0;
};

// `out`: what the result is written to; null: it is made.
Status run(Op op, const TorchTensor &a, const Options &options, TorchTensor *out, StackValue *stack) {
    Backend backend;
    CUKERN_TRY(ensure_torch_backend(&backend));
    ReduceCall call;
    call.op = op;
    call.correction = options.correction;
    CUKERN_TRY(mark_reduced(options.dims, a.view.ndim, call.reduced));
    CUKERN_TRY(find_type(op, a.view.type, &call.compute));
    TensorView expected;
    expected.type = result_type(op, call.compute);
    std::int64_t count = 1;  // of the elements of one result
    for (int d = 0; d < a.view.ndim; ++d) {
        if (call.reduced[d]) count *= a.view.shape[d];
        if (!call.reduced[d] || options.keepdim)
            expected.shape[expected.ndim++] = call.reduced[d] ? 1 : a.view.shape[d];
    }
    if (count == 0 && !has_identity(op))
        return fail(CUKERN_INVALID_ARGUMENT, "there are no elements, of which there is no %s",
                    info(op).rule == ResultRule::index ? "index" : info(op).name);
    const TorchPlace place{a.on_gpu, a.device};
    TorchTensor result;
    OwnedTensor made;
    if (out != nullptr) {
        if (out->on_gpu != a.on_gpu || out->device != a.device)
            return fail(CUKERN_INVALID_ARGUMENT, "out is on another device than a");
        const TorchTensor *const inputs[] = {&a};
        CUKERN_TRY(check_torch_out(*out, expected, inputs, 1, false));
        result.view = out->view;
    } else {
        set_contiguous(expected);
        result.view = expected;
        CUKERN_TRY(make_tensor(place, &result, made.put()));
    }
    const TensorView kept = without_reduced(result.view, a.view.ndim, options.keepdim, call.reduced);
    call.inputs[0] = &a.view;
    call.out = &kept;
    Execution where;
    CUKERN_TRY(torch_execution(place, backend, &where));
    CUKERN_TRY(reduce(call, where));
    made.give(&stack[0]);
    return CUKERN_OK;
}

void call(Op op, bool has_out, StackValue *stack) {
    const bool has_correction = info(op).rule == ResultRule::variance;
    const StackValue handles[] = {stack[0], has_out ? stack[has_correction ? 4 : 3] : 0};
    const GivenTensors given(handles, has_out ? 2 : 1);
    Options options;
    options.dims = info(op).rule == ResultRule::index ? take_dim(stack[1]) : take_dims(stack[1]);
    options.keepdim = (stack[2] & 1) != 0;
    if (has_correction) std::memcpy(&options.correction, &stack[3], sizeof options.correction);
    TorchTensor a;
    TorchTensor out;
    Status status = read_tensor(given[0], "a", &a);
    if (status == CUKERN_OK && has_out) {
        begin_writing(info(op).name, given.handles(), 2);
        status = read_tensor(given[1], "out", &out);
    }
    if (status == CUKERN_OK) {
        check_range(info(op).name, options.dims, a.view.ndim);
        status = run(op, a, options, has_out ? &out : nullptr, stack);
    }
    if (status != CUKERN_OK) throw_torch_error(info(op).name);
}

template <Op op, bool has_out>
void kernel(StackValue *stack, std::uint64_t, std::uint64_t) {
    call(op, has_out, stack);
}

}  // namespace

#define CUKERN_KERNELS_unary(id)
#define CUKERN_KERNELS_binary(id)
#define CUKERN_KERNELS_choice(id)
#define CUKERN_KERNELS_scalar(id)
#define CUKERN_KERNELS_axpy(id)
#define CUKERN_KERNELS_reduction(id) {#id, kernel<Op::id, false>}, {#id ".out", kernel<Op::id, true>},

const TorchKernelRow kTorchReductions[] = {
#define CUKERN_OP(id, kind, types, rule, doc) CUKERN_KERNELS_##kind(id)
#include "cukern/ops.def"
#undef CUKERN_OP
    {nullptr, nullptr},
};

}  // namespace cukern::py
