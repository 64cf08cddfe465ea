// The loops that another library has handed over (cukern/host_loops.h).
#pragma once

#include <cstddef>

#include "cukern/host_loops.h"
#include "plan/launch.h"

namespace cukern::host {

// Of the operation whose inputs are all of a type; one without a function where there is none.
HostLoop loop_of(Op op, ElementType inputs) noexcept;

// Null where there is none.
HostIndexFunction index_function_of(ElementType type, bool finds_max) noexcept;

HostLoop product_of(ElementType type) noexcept;

// Whether NumPy takes one function for packed operands and another, of other bits, for those with strides. Such
// operands are packed, so that a value's result does not depend on where it lies.
constexpr bool bits_depend_on_strides(Op op, ElementType type) noexcept {
    return op == Op::pow || (op == Op::abs && kind_of(type) == 'c') ||
           (info(op).rule == ResultRule::sized && op != Op::sqrt && op != Op::copysign && op != Op::nextafter);
}

// What a loop goes over: inputs of one size with strides in elements, and packed results.
struct LoopRun {
    const char *inputs[kMaxInputs];
    const std::int64_t *strides;
    int num_inputs;
    std::size_t input_size;
    void *out;
    std::size_t out_size;
};
void call_loop(const HostLoop &loop, const LoopRun &run, std::int64_t n) noexcept;

}  // namespace cukern::host
