#include "plan/launch.h"

#include <algorithm>

#include <cstring>

#include "formulas/evaluate.cuh"
#include "plan/layout.h"

namespace cukern {
namespace {

template <typename T>
Immediate converted_to(const TensorView &view) noexcept {
    const T value = load_as<T>(view.value.bytes, view.type, 0);
    Immediate out{};
    std::memcpy(out.bytes, &value, sizeof value);
    return out;
}

}  // namespace

Immediate value_as(const TensorView &view, ElementType type) noexcept {
    switch (type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: return converted_to<ctype>(view);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return {};
}

namespace {

// A copy without conversion moves bits; any other computes in the type that it comes from.
ElementType copying_type(const ElementwiseCall &call) noexcept {
    const TensorView &input = *call.inputs[0];
    return input.immediate || input.type == call.out->type ? bits_of(call.out->type) : input.type;
}

bool is_split(const ElementwiseCall &call) noexcept {
    return is_comparison(call.op) && call.compute == ElementType::complex128 && is_integer(call.inputs[0]->type) &&
           is_integer(call.inputs[1]->type);
}

Immediate split(const TensorView &view) noexcept {
    const Complex128 value = load_operand<Op::less, Complex128>(view.value.bytes, view.type, 0, true, 0);
    Immediate out{};
    std::memcpy(out.bytes, &value, sizeof value);
    return out;
}

// An operand given by value, in the type that the operation computes in.
Immediate value_of(const TensorView &input, const ElementwiseLaunch &launch, int operand) noexcept {
    if (launch.split) return split(input);
    if (launch.op != Op::where || operand != 1) return value_as(input, launch.compute);
    TensorView condition = input;  // by its truth
    condition.type = ElementType::bool_;
    condition.value = value_as(input, ElementType::bool_);
    return value_as(condition, launch.compute);
}

// All arrays lie in C order without gaps and have as many elements as out.
bool are_packed(const ElementwiseCall &call, int inputs, std::int64_t count) noexcept {
    if (!is_packed(*call.out)) return false;
    for (int i = 0; i < inputs; ++i) {
        const TensorView &input = *call.inputs[i];
        if (!input.immediate && (count_of(input) != count || !is_packed(input))) return false;
    }
    return true;
}

void set_one_dimension(std::int64_t length, ElementwiseLaunch *launch) noexcept {
    launch->ndim = 1;
    launch->shape[0] = length;
    for (int i = 0; i < launch->num_operands; ++i) launch->strides[i][0] = 1;
}

void make_strides_positive(ElementwiseLaunch *launch, int ndim) noexcept {  // out always walks forward
    for (int d = 0; d < ndim; ++d) {
        if (launch->strides[0][d] >= 0) continue;
        for (int i = 0; i < launch->num_operands; ++i) {
            if (launch->immediate[i]) continue;
            launch->data[i] = static_cast<char *>(launch->data[i]) +
                              (launch->shape[d] - 1) * launch->strides[i][d] * size_of(launch->types[i]);
            launch->strides[i][d] = -launch->strides[i][d];
        }
    }
}

void lay_out(const ElementwiseCall &call, ElementwiseLaunch *launch) noexcept {
    if (are_packed(call, launch->num_operands - 1, launch->count)) {
        set_one_dimension(launch->count, launch);
        return;
    }
    const TensorView &out = *call.out;
    for (int d = 0; d < out.ndim; ++d) {
        launch->shape[d] = out.shape[d];
        launch->strides[0][d] = out.strides[d];
    }
    for (int i = 1; i < launch->num_operands; ++i) {
        const TensorView &input = *call.inputs[i - 1];
        const int lead = out.ndim - input.ndim;
        for (int d = 0; d < out.ndim; ++d)
            launch->strides[i][d] = d < lead || input.shape[d - lead] == 1 ? 0 : input.strides[d - lead];
    }
    make_strides_positive(launch, out.ndim);
    std::int64_t *strides[kMaxOperands];
    for (int i = 0; i < launch->num_operands; ++i) strides[i] = launch->strides[i];
    launch->ndim = coalesce_dimensions(launch->shape, strides, launch->num_operands, out.ndim);
    if (launch->ndim == 0) set_one_dimension(1, launch);
}

// Where all operands are of the type that is computed in, but for a condition, which is looked at in its own.
void use_kernel_type(ElementwiseLaunch *launch) noexcept {
    const ElementType type = kernel_type(launch->op, launch->compute);
    if (type == launch->compute || launch->types[0] != launch->result) return;
    const int first = launch->op == Op::where ? 2 : 1;
    for (int i = first; i < launch->num_operands; ++i)
        if (!launch->immediate[i] && launch->types[i] != launch->compute) return;
    for (int i = first; i < launch->num_operands; ++i) launch->types[i] = type;
    launch->compute = type;
    launch->types[0] = launch->result = result_type(launch->op, type);
}

// Of logic whose arrays all have one type: that type, or one that is zero where it is.
void use_logical_type(ElementwiseLaunch *launch) noexcept {
    if (!is_logical(launch->op) || launch->types[0] != launch->result) return;
    ElementType type = ElementType::bool_;
    for (int i = 1; i < launch->num_operands; ++i) {
        if (launch->immediate[i]) continue;
        if (type != ElementType::bool_ && launch->types[i] != type) return;
        type = launch->types[i];
        if (type == ElementType::bool_) return;
    }
    launch->compute = logical_type(type);
    for (int i = 1; i < launch->num_operands && launch->compute != ElementType::bool_; ++i)
        launch->types[i] = launch->compute;
}

// Whether this is a test such as isnan, or signbit, on integers or bool, whose answer needs no floats, or asks
// real numbers for their imaginary part.
bool needs_no_formula(const ElementwiseCall &call) noexcept {
    if (call.op == Op::imag) return kind_of(call.inputs[0]->type) != 'c';
    const ResultRule rule = info(call.op).rule;
    if (rule != ResultRule::test && rule != ResultRule::sign) return false;
    return kind_of(call.inputs[0]->type) == 'b' || is_integer(call.inputs[0]->type);
}

// What such a question comes to: a comparison with 0, or one answer for all elements.
void plan_answer(const ElementwiseCall &call, ElementwiseLaunch *launch) noexcept {
    const TensorView &input = *call.inputs[0];
    TensorView value;
    value.immediate = true;
    value.value = {};
    ElementwiseCall own = call;
    if (call.op == Op::signbit && kind_of(input.type) == 'i') {
        own.op = Op::less;
        own.compute = value.type = input.type;
        own.inputs[1] = &value;
    } else {
        own.op = Op::copy;
        value.type = call.op == Op::imag ? call.compute : ElementType::bool_;
        value.value.bytes[0] = call.op == Op::isfinite ? 1 : 0;
        own.inputs[0] = &value;
    }
    plan_elementwise(own, launch);
}

// A power of truths is 0 where the first is false and the second is true: a comparison of them.
void plan_power_of_truths(const ElementwiseCall &call, ElementwiseLaunch *launch) noexcept {
    TensorView out = *call.out;
    if (is_integer(out.type) && size_of(out.type) == 1) out.type = ElementType::bool_;  // the same bytes
    ElementwiseCall own = call;
    own.op = Op::greater_equal;
    own.compute = ElementType::bool_;
    own.out = &out;
    plan_elementwise(own, launch);
}

}  // namespace

void plan_elementwise(const ElementwiseCall &call, ElementwiseLaunch *launch) noexcept {
    if (call.inputs[1] == nullptr && needs_no_formula(call)) {
        plan_answer(call, launch);
        return;
    }
    if (call.op == Op::pow && call.inputs[0]->type == ElementType::bool_ &&
        call.inputs[1]->type == ElementType::bool_) {
        plan_power_of_truths(call, launch);
        return;
    }
    const TensorView &out = *call.out;
    const Op op = is_identity(call.op, call.compute) ? Op::copy : call.op;
    launch->op = op;
    launch->compute = op == Op::copy ? copying_type(call) : call.compute;
    launch->split = is_split(call);
    launch->num_operands = 1 + arity(op);
    launch->count = count_of(out);
    launch->data[0] = out.data;
    launch->types[0] = out.type;
    launch->immediate[0] = false;
    for (int i = 1; i < launch->num_operands; ++i) {
        const TensorView &input = *call.inputs[i - 1];
        launch->data[i] = input.data;
        launch->types[i] = input.type;
        launch->immediate[i] = input.immediate;
        if (input.immediate)
            launch->values[i] = op == Op::copy ? value_as(input, out.type) : value_of(input, *launch, i);
    }
    lay_out(call, launch);
    if (op == Op::copy && launch->compute == bits_of(out.type) &&
        (launch->immediate[1] || launch->types[1] == out.type))
        launch->types[0] = launch->types[1] = launch->compute;
    launch->result = result_type(op, launch->compute);
    use_kernel_type(launch);
    use_logical_type(launch);
}

ElementwiseLaunch plan_copy(const TensorView &source, const TensorView &destination) noexcept {
    ElementwiseCall call;
    call.op = Op::copy;
    call.inputs[0] = &source;
    call.out = &destination;
    ElementwiseLaunch plan;
    plan_elementwise(call, &plan);
    return plan;
}

bool does_nothing(const ElementwiseLaunch &launch) noexcept {
    if (launch.count == 0) return true;
    if (launch.op != Op::copy || launch.immediate[1] || launch.data[0] != launch.data[1] ||
        launch.types[0] != launch.types[1])
        return false;
    return std::equal(launch.strides[0], launch.strides[0] + launch.ndim, launch.strides[1]);
}

bool is_repeated(const ElementwiseLaunch &launch, int operand) noexcept {
    return operand > 0 && (launch.immediate[operand] || (launch.ndim == 1 && launch.strides[operand][0] == 0));
}

bool is_contiguous(const ElementwiseLaunch &launch, bool may_repeat) noexcept {
    if (launch.ndim != 1) return false;
    for (int i = 0; i < launch.num_operands; ++i) {
        if (launch.immediate[i]) continue;
        const bool has_type = launch.types[i] == (i == 0 ? launch.result : launch.compute);
        const bool is_packed = launch.strides[i][0] == 1 || (may_repeat && is_repeated(launch, i));
        if (!has_type || !is_packed) return false;
    }
    return true;
}

}  // namespace cukern
