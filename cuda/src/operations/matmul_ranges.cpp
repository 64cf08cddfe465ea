// Idea: a product of long rows and columns is the sum of products over ranges of k. Each goes by panels, and the
// processor adds them, those of 16-bit floats in float32.
#include "operations/matmul_ranges.h"

#include <algorithm>

#include "context/context.h"
#include "operations/host_buffer.h"
#include "operations/matmul_panels.h"
#include "plan/launch.h"
#include "plan/layout.h"

namespace cukern {
namespace {

// The part of a matrix in [begin, end) of one of its dimensions.
TensorView range_of(const TensorView &view, int axis, std::int64_t begin, std::int64_t end) noexcept {
    TensorView part = view;
    part.data = static_cast<char *>(view.data) + begin * view.strides[axis] * size_of(view.type);
    part.shape[axis] = end - begin;
    return part;
}

Status add_to(Context &processor, const TensorView &sum, const TensorView &part) noexcept {
    ElementwiseCall add;
    add.op = Op::add;
    add.compute = sum.type;
    add.inputs[0] = &sum;
    add.inputs[1] = &part;
    add.out = &sum;
    ElementwiseLaunch launch;
    plan_elementwise(add, &launch);
    return processor.runtime.launch_elementwise(launch, nullptr);
}

}  // namespace

Status matmul_in_ranges(const MatmulCall &call, int device, std::int64_t longest) noexcept {
    Context *processor = nullptr;
    CUKERN_TRY(processor_context(&processor));
    const ElementType type = type_of_sums(call.compute);
    const std::int64_t bytes = count_of(*call.out) * size_of(type);
    HostBuffer memory[2];
    for (HostBuffer &own : memory) CUKERN_TRY(own.acquire(bytes));
    const TensorView sum = packed_like(*call.out, type, memory[0].data());
    const TensorView next = packed_like(*call.out, type, memory[1].data());
    const std::int64_t k = call.inputs[0]->shape[1];
    for (std::int64_t begin = 0; begin < k; begin += longest) {
        const std::int64_t end = std::min(begin + longest, k);
        const TensorView a = range_of(*call.inputs[0], 1, begin, end);
        const TensorView b = range_of(*call.inputs[1], 0, begin, end);
        MatmulCall part = call;
        part.inputs[0] = &a;
        part.inputs[1] = &b;
        part.out = begin == 0 ? &sum : &next;
        bool untouched = true;
        CUKERN_TRY(matmul_in_panels(part, device, &untouched));
        if (begin > 0) CUKERN_TRY(add_to(*processor, sum, next));
    }
    return processor->runtime.launch_elementwise(plan_copy(sum, *call.out), nullptr);
}

}  // namespace cukern
