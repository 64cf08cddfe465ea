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

// Whether NumPy's loop takes packed operands by vectors and others one by one, so slowly that packing pays
// (measured with NumPy 2.4: 0.45 to 5 ns an element; packing one takes 0.2 to 0.3).
constexpr bool prefers_packed(Op op, ElementType type) noexcept {
    if (type == ElementType::float16) return false;
    switch (op) {
        case Op::maximum:
        case Op::minimum: return size_of(type) <= 2 || type == ElementType::float32;
        case Op::bitwise_left_shift:
        case Op::bitwise_right_shift: return size_of(type) <= 4;
        case Op::multiply: return size_of(type) <= 4 && !is_floating(type);
        case Op::add:
        case Op::subtract:
        case Op::bitwise_and:
        case Op::bitwise_or:
        case Op::bitwise_xor:
        case Op::bitwise_invert:
        case Op::abs:
        case Op::sign:
        case Op::square: return size_of(type) <= 2;
        default: return (is_comparison(op) && size_of(type) <= 4) || (is_logical(op) && is_integer(type));
    }
}

// The same of an operand that is one value for all elements.
constexpr bool prefers_packed_values(Op op, ElementType type) noexcept {
    if (op == Op::maximum || op == Op::minimum) return !(is_integer(type) && size_of(type) == 8);
    return type == ElementType::bool_ && (op == Op::add || op == Op::multiply || op == Op::logical_and ||
                                          op == Op::logical_or || op == Op::bitwise_and || op == Op::bitwise_or);
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
