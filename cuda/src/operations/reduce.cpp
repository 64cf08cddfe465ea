// Reductions over either back-end: dimensions sorted into kept and reduced ones, memory for partial results,
// launch.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "context/scratch_buffer.h"
#include "formulas/reducers.cuh"
#include "operations/device_budget.h"
#include "operations/execute.h"
#include "operations/reduce_chunks.h"
#include "plan/layout.h"

namespace cukern {
namespace {

// Merges neighbours without changing their order, by which elements are counted.
int merge_in_order(std::int64_t *shape, std::int64_t *strides, int ndim) noexcept {
    int left = 0;
    for (int i = 0; i < ndim; ++i) {
        if (shape[i] == 1) continue;
        if (left > 0 && strides[left - 1] == strides[i] * shape[i]) {
            shape[left - 1] *= shape[i];
            strides[left - 1] = strides[i];
        } else {
            shape[left] = shape[i];
            strides[left++] = strides[i];
        }
    }
    return left;
}

struct Dimensions {
    int count = 0;
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxDims];
};

// False: there are more dimensions than a launch takes.
bool plan_reduction(const ReduceCall &call, void *out, ReduceLaunch *launch) noexcept {
    const TensorView &input = *call.inputs[0];
    Dimensions kept;
    Dimensions reduced;
    auto *data = static_cast<char *>(input.data);
    for (int d = 0; d < input.ndim; ++d) {
        std::int64_t stride = input.strides[d];
        if (call.reduced[d] && stride < 0 && !gives_index(call.op)) {
            data += (input.shape[d] - 1) * stride * size_of(input.type);
            stride = -stride;
        }
        Dimensions &list = call.reduced[d] ? reduced : kept;
        list.shape[list.count] = input.shape[d];
        list.strides[list.count++] = stride;
    }
    launch->kept = launch->reduced = 1;
    for (int i = 0; i < kept.count; ++i) launch->kept *= kept.shape[i];
    for (int i = 0; i < reduced.count; ++i) launch->reduced *= reduced.shape[i];
    std::int64_t *const strides[] = {reduced.strides};
    kept.count = merge_in_order(kept.shape, kept.strides, kept.count);
    reduced.count = gives_index(call.op) ? merge_in_order(reduced.shape, reduced.strides, reduced.count)
                                         : coalesce_dimensions(reduced.shape, strides, 1, reduced.count);
    if (kept.count > kMaxReduceDims || reduced.count > kMaxReduceDims) return false;
    const bool is_bool = call.compute == ElementType::bool_;
    launch->op = is_bool && call.op == Op::max ? Op::any : is_bool && call.op == Op::min ? Op::all : call.op;
    launch->correction = call.correction;
    launch->type = input.type;
    launch->compute = call.compute;
    launch->in = data;
    launch->out = out;
    launch->num_kept = kept.count;
    launch->num_reduced = reduced.count;
    if (reduced.count == 0) {  // of one element each
        launch->num_reduced = 1;
        reduced.shape[0] = reduced.strides[0] = reduced.count = 1;
    }
    std::copy_n(kept.shape, kept.count, launch->kept_shape);
    std::copy_n(kept.strides, kept.count, launch->kept_strides);
    std::copy_n(reduced.shape, reduced.count, launch->reduced_shape);
    std::copy_n(reduced.strides, reduced.count, launch->reduced_strides);
    launch->scratch = nullptr;
    launch->scratch_bytes = 0;
    return true;
}

// The kept dimensions first, then the reduced ones: packed in this order, each list is one dimension.
TensorView sorted(const ReduceCall &call, ReduceCall *packed) noexcept {
    TensorView view = *call.inputs[0];
    view.ndim = 0;
    *packed = call;
    for (const bool reduced : {false, true})
        for (int d = 0; d < call.inputs[0]->ndim; ++d) {
            if (call.reduced[d] != reduced) continue;
            view.shape[view.ndim] = call.inputs[0]->shape[d];
            view.strides[view.ndim] = call.inputs[0]->strides[d];
            packed->reduced[view.ndim++] = reduced;
        }
    return view;
}

}  // namespace

TensorView number(ElementType type, Complex128 value) noexcept {
    TensorView view;
    view.type = ElementType::complex128;  // which converts to all others
    view.immediate = true;
    view.value = {};
    std::memcpy(view.value.bytes, &value, sizeof value);
    view.value = value_as(view, type);
    view.type = type;
    return view;
}

namespace {

// Of no elements: the identity, or NaN for a mean or variance. What has none is refused by the caller.
TensorView value_of_nothing(const ReduceCall &call) noexcept {
    if (call.op == Op::mean || is_variance(call.op))
        return number(ElementType::complex128, {__builtin_nan(""), __builtin_nan("")});
    return number(ElementType::complex128, {call.op == Op::prod || call.op == Op::all ? 1.0 : 0.0, 0});
}

// Nothing, or NaN where the element is not finite.
TensorView variance_of_one(const ReduceCall &call) noexcept {
    const Immediate value = value_as(*call.inputs[0], ElementType::complex128);
    Complex128 element;
    std::memcpy(&element, value.bytes, sizeof element);
    const double squares = (element.real - element.real) + (element.imag - element.imag);
    return number(ElementType::complex128, {squares * finish_of(call.op, 1, call.correction).factor, 0});
}

// Complex numbers that begin at a part of one, such as x.view(float32)[1:].view(complex64): vectors of them are
// not aligned, so that they are packed first.
bool begins_at_a_part(const TensorView &view) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    return kind_of(view.type) == 'c' && address % static_cast<std::uintptr_t>(size_of(view.type)) != 0;
}

}  // namespace

// Sums and products of integers are computed in 64 bits; what is asked for is the same without the upper ones, or
// as another sign has it. So are sums of shorter integers and bool of which floats that hold them are asked for.
ElementType widened(const ReduceCall &call) noexcept {
    const ElementType input = call.inputs[0]->type;
    const bool is_short = (is_integer(input) && size_of(input) < 8) || kind_of(input) == 'b';
    const bool holds = promote(input, call.compute) == call.compute &&
                       (call.compute != ElementType::bfloat16 || size_of(input) == 1);
    if (call.op == Op::sum && is_short && holds) return compute_type(call.op, input, input);
    if ((call.op != Op::sum && call.op != Op::prod) || !is_integer(call.compute)) return call.compute;
    if (is_integer(input) || kind_of(input) == 'b') return compute_type(call.op, input, input);
    return kind_of(call.compute) == 'u' ? ElementType::uint64 : ElementType::int64;
}

namespace {

// Whether all reduced dimensions have length 1; `kept` is the input without them.
bool joins_nothing(const ReduceCall &call, TensorView *kept) noexcept {
    const TensorView &input = *call.inputs[0];
    *kept = input;
    kept->ndim = 0;
    for (int d = 0; d < input.ndim; ++d) {
        if (call.reduced[d] && input.shape[d] != 1) return false;
        if (call.reduced[d]) continue;
        kept->shape[kept->ndim] = input.shape[d];
        kept->strides[kept->ndim++] = input.strides[d];
    }
    return true;
}

}  // namespace

Status convert_by(Context &context, const TensorView &view, ElementType type, const TensorView &out,
                  const StreamRef &stream) noexcept {
    if (view.type == type || out.type == type)
        return context.runtime.launch_elementwise(plan_copy(view, out), stream.handle);
    ScratchBuffer memory;
    CUKERN_TRY(memory.acquire(context, static_cast<std::size_t>(count_of(out) * size_of(type)), stream));
    const TensorView converted = packed_like(out, type, memory.data());
    CUKERN_TRY(context.runtime.launch_elementwise(plan_copy(view, converted), stream.handle));
    return context.runtime.launch_elementwise(plan_copy(converted, out), stream.handle);
}

namespace {

// Whether dimensions are from the slowest to the fastest; those that repeat elements may be anywhere.
class OrderCheck {
public:
    bool follows(std::int64_t length, std::int64_t stride) noexcept {
        if (length == 1 || stride == 0) return true;
        if (std::abs(stride) > least_) return false;
        least_ = std::abs(stride);
        return true;
    }

private:
    std::int64_t least_ = INT64_MAX;
};

bool are_kept_in_order(const ReduceCall &call) noexcept {
    OrderCheck check;
    for (int d = 0; d < call.inputs[0]->ndim; ++d)
        if (!call.reduced[d] && !check.follows(call.inputs[0]->shape[d], call.inputs[0]->strides[d])) return false;
    return true;
}

bool is_in_order(const TensorView &view) noexcept {
    OrderCheck check;
    for (int d = 0; d < view.ndim; ++d)
        if (!check.follows(view.shape[d], view.strides[d])) return false;
    return true;
}

// A call whose kept dimensions are in the order of memory, by which results are stored one after the other.
class KeptInOrder {
public:
    // In the order of the input, which is read in it, where `by_input`, else in that of out.
    KeptInOrder(const ReduceCall &call, bool by_input) noexcept
        : call_(call), input_(*call.inputs[0]), out_(*call.out) {
        const TensorView &input = *call.inputs[0];
        int of_input[kMaxDims];
        std::int64_t strides[kMaxDims] = {};
        int kept = 0;
        for (int d = 0; d < input.ndim; ++d)
            if (!call.reduced[d]) {
                of_input[kept] = d;
                strides[kept] = by_input ? input.strides[d] : call.out->strides[kept];
                ++kept;
            }
        int order[kMaxDims];
        order_of_memory(strides, kept, order);
        int ndim = 0;
        const auto put = [&](int d) {
            input_.shape[ndim] = input.shape[d];
            input_.strides[ndim] = input.strides[d];
            call_.reduced[ndim++] = call.reduced[d];
        };
        for (int k = 0; k < kept; ++k) {
            out_.shape[k] = call.out->shape[order[k]];
            out_.strides[k] = call.out->strides[order[k]];
            put(of_input[order[k]]);
        }
        for (int d = 0; d < input.ndim; ++d)
            if (call.reduced[d]) put(d);
        call_.inputs[0] = &input_;
        call_.out = &out_;
    }
    KeptInOrder(const KeptInOrder &) = delete;
    KeptInOrder &operator=(const KeptInOrder &) = delete;

    const ReduceCall &call() const noexcept { return call_; }

private:
    ReduceCall call_;
    TensorView input_;
    TensorView out_;
};

// Whether results in the order of the input, which then are brought to that of out by a copy, take less time than
// stores far from each other. A GPU's stores hardly count where many elements are reduced, and a launch more does
// where few are.
bool pays_to_copy_results(const ReduceCall &call, Backend backend) noexcept {
    constexpr std::int64_t kManyElements = 1 << 20;
    constexpr std::int64_t kLongReduction = 64;
    if (backend == Backend::host) return true;
    const std::int64_t count = count_of(*call.inputs[0]);
    return count >= kManyElements && count < kLongReduction * count_of(*call.out);
}

// Results go to `out` in the order of the kept dimensions. `asked`: the type of results before that of out.
Status launch_reduction(Context &context, const ReduceCall &call, ElementType asked,
                        const StreamRef &stream) noexcept {
    const TensorView &out = *call.out;
    const ElementType type = result_type(call.op, call.compute);
    ReduceLaunch launch;
    ScratchBuffer copy;
    if (begins_at_a_part(*call.inputs[0]) || !plan_reduction(call, out.data, &launch)) {
        ReduceCall simple;
        const TensorView view = sorted(call, &simple);
        CUKERN_TRY(copy.acquire(context, static_cast<std::size_t>(bytes_of(view)), stream));
        const TensorView dense = packed_like(view, view.type, copy.data());
        CUKERN_TRY(context.runtime.launch_elementwise(plan_copy(view, dense), stream.handle));
        simple.inputs[0] = &dense;
        plan_reduction(simple, out.data, &launch);
    }
    ScratchBuffer packed;
    const bool direct = out.type == type && is_packed(out);
    if (!direct) {
        CUKERN_TRY(packed.acquire(context, static_cast<std::size_t>(count_of(out) * size_of(type)), stream));
        launch.out = packed.data();
    }
    ScratchBuffer scratch;
    if (const std::int64_t bytes = context.runtime.reduction_scratch(launch); bytes > 0) {
        CUKERN_TRY(scratch.acquire(context, static_cast<std::size_t>(bytes), stream));
        launch.scratch = scratch.data();
        launch.scratch_bytes = bytes;
    }
    CUKERN_TRY(context.runtime.launch_reduction(launch, stream.handle));
    if (direct) return CUKERN_OK;
    return convert_by(context, packed_like(out, type, packed.data()), asked, out, stream);
}

}  // namespace

Status run_reduction(Context &context, const ReduceCall &asked, const StreamRef &stream) noexcept {
    ReduceCall call = asked;
    call.compute = widened(asked);
    const TensorView &out = *call.out;
    if (count_of(*call.inputs[0]) == 0)
        return context.runtime.launch_elementwise(plan_copy(value_of_nothing(call), out), stream.handle);
    const ElementType asked_type = result_type(call.op, asked.compute);  // `out` may have a third one
    if (call.inputs[0]->immediate && is_variance(call.op))
        return context.runtime.launch_elementwise(plan_copy(variance_of_one(call), out), stream.handle);
    if (call.inputs[0]->immediate) {  // one element: what is stored of it depends on no other
        TensorView input = *call.inputs[0];
        input.value = gives_index(call.op) ? Immediate{} : value_as(input, asked_type);
        input.type = asked_type;
        return context.runtime.launch_elementwise(plan_copy(input, out), stream.handle);
    }
    TensorView kept;
    if (!is_variance(call.op) && joins_nothing(call, &kept)) {
        if (gives_index(call.op)) kept = number(asked_type, {});
        return convert_by(context, kept, asked_type, out, stream);
    }
    if (is_in_order(out) && are_kept_in_order(call)) return launch_reduction(context, call, asked_type, stream);
    const KeptInOrder by_out(call, false);
    if (!are_kept_in_order(by_out.call()) && pays_to_copy_results(call, context.runtime.backend()))
        return launch_reduction(context, KeptInOrder(call, true).call(), asked_type, stream);
    return launch_reduction(context, by_out.call(), asked_type, stream);
}

Status reduce(const ReduceCall &call, const Execution &where) noexcept {
    const auto staged = [](const ReduceCall &own, int device, const auto &launch) {
        const bool is_whole =
            own.inputs[0]->immediate || count_of(*own.inputs[0]) == 0 || fits_on_device(own, device);
        return is_whole ? execute_staged(own, device, Staging::Uses::once, launch) : reduce_in_chunks(own, device);
    };
    return execute(call, where, run_reduction, staged);
}

}  // namespace cukern
