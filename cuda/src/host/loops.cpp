#include "host/loops.h"

#include "host/placed_loops.h"

namespace cukern {
namespace {

constexpr int kNumOps = static_cast<int>(Op::clip) + 1;
HostLoop loops[kNumOps][kNumElementTypes];
HostIndexFunction index_functions[2][kNumElementTypes];
HostLoop products[kNumElementTypes];

}  // namespace

void set_host_loop(Op op, ElementType inputs, const HostLoop &loop) noexcept {
    loops[static_cast<int>(op)][static_cast<int>(inputs)] = placed_loop(op, inputs, loop);
}

void set_host_index_function(ElementType type, bool finds_max, HostIndexFunction function) noexcept {
    index_functions[finds_max ? 1 : 0][static_cast<int>(type)] = function;
}

void set_host_product(ElementType type, const HostLoop &loop) noexcept { products[static_cast<int>(type)] = loop; }

HostLoop host::product_of(ElementType type) noexcept { return products[static_cast<int>(type)]; }

HostIndexFunction host::index_function_of(ElementType type, bool finds_max) noexcept {
    return index_functions[finds_max ? 1 : 0][static_cast<int>(type)];
}

HostLoop host::loop_of(Op op, ElementType inputs) noexcept {
    return loops[static_cast<int>(op)][static_cast<int>(inputs)];
}

void host::call_loop(const HostLoop &loop, const LoopRun &run, std::int64_t n) noexcept {
    char *data[kMaxOperands];
    std::intptr_t strides[kMaxOperands];
    for (int i = 0; i < run.num_inputs; ++i) {
        data[i] = const_cast<char *>(run.inputs[i]);
        strides[i] = static_cast<std::intptr_t>(run.strides[i]) * static_cast<std::intptr_t>(run.input_size);
    }
    data[run.num_inputs] = static_cast<char *>(run.out);
    strides[run.num_inputs] = static_cast<std::intptr_t>(run.out_size);
    const auto count = static_cast<std::intptr_t>(n);
    loop.function(data, &count, strides, loop.context);
}

}  // namespace cukern
