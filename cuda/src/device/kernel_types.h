// Which kernels there are, by operation and element type.
#pragma once

#include <cstdint>

#include "cukern/ops.h"

namespace cukern::cuda {

// Whether the kernels of a type serve an operation.
constexpr bool has_kernel(Op op, ElementType type) {
    return computes_in(op, type) || (is_logical(op) && logical_type(type) == type);
}

// Whether an operation is long: its packed kernels are of it alone, but for complex numbers, and strided_kernel
// calls it.
constexpr bool is_function(Op op, ElementType type) {
    switch (op) {
        case Op::divide:
        case Op::floor_divide:
        case Op::remainder:
        case Op::pow:
        case Op::reciprocal: return true;
        case Op::sign: return kind_of(type) == 'c';
        case Op::copysign: return false;
        default: return info(op).rule == ResultRule::sized;
    }
}

// The type whose kernels serve operands of any strides: integers and floats of less than 32 bits compute in 32,
// and are narrowed.
constexpr ElementType wide_type(ElementType type) {
    if (size_of(type) >= 4) return type;
    return is_floating(type) ? ElementType::float32 : ElementType::int32;
}
// Most arrays reduce to few dimensions, and span at most 2**31 elements of each operand; others are launched in
// parts. With a type: one part, as planned.
constexpr int kStridedDims = 8;
constexpr std::int64_t kStridedReach = (std::int64_t{1} << 31) - 1;
// Elements of a thread at most, where results of so many bytes are computed. With four of 8 bytes, which leave
// registers for half of the threads that a multiprocessor holds, functions of float64 took up to a fifth longer.
constexpr int strided_elements(int size) { return size < 8 ? 4 : 2; }

// The type whose kernels load the elements of a reduction as they are stored: one for all types of which only the
// bits count, and the signed one for extremes of integers, which flip bits anyway.
constexpr ElementType stored_type(Op op, ElementType type) {
    switch (op) {
        case Op::sum:
        case Op::mean:
        case Op::prod: return type == ElementType::int64 ? ElementType::uint64 : type;
        case Op::var:
        case Op::std: return type == ElementType::int32 ? ElementType::uint32 : type;
        case Op::any:
        case Op::all: return type == ElementType::complex128 ? type : type_of('u', size_of(type));
        case Op::max:
        case Op::min:
        case Op::argmax:
        case Op::argmin: return kind_of(type) == 'u' ? type_of('i', size_of(type)) : type;
        default: return type;
    }
}
constexpr bool has_stored_kernel(Op op, ElementType type) {
    if (info(op).rule == ResultRule::variance)
        return is_floating(type) || kind_of(type) == 'c' || type == ElementType::uint32;
    if (op == Op::mean) return type == ElementType::uint64;  // others are sums, divided at the end
    return stored_type(op, type) == type && (type != ElementType::bool_ || op != Op::max);
}

}  // namespace cukern::cuda
