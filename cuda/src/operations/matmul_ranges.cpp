// Idea: a product of long rows and columns is the sum of products over ranges of k. Each goes by panels, and the
// processor adds them, those of 16-bit floats in float32.
#include "operations/matmul_ranges.h"

#include <algorithm>

#include "operations/matmul_panels.h"
#include "operations/partial_results.h"
#include "plan/layout.h"

namespace cukern {
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
        const TensorView a = part_along(*call.inputs[0], 1, begin, end);
        const TensorView b = part_along(*call.inputs[1], 0, begin, end);
        MatmulCall part = call;
        part.inputs[0] = &a;
        part.inputs[1] = &b;
        part.out = begin == 0 ? &sum : &next;
        bool untouched = true;
        CUKERN_TRY(matmul_in_panels(part, device, &untouched));
        if (begin > 0) CUKERN_TRY(change_on(*processor, Op::add, sum, next));
    }
    return processor->runtime.launch_elementwise(plan_copy(sum, *call.out), nullptr);
}

}  // namespace cukern
