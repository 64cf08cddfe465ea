// A row's formula on elements as they are stored, and operands as the computing type.
#pragma once

#include "formulas/functors.cuh"

namespace cukern {

// What an operation that computes in T returns, as it is stored.
template <Op op, typename T>
using result_t =
    std::conditional_t<returns_bool(info(op).rule), Bool,
                       std::conditional_t<info(op).rule == ResultRule::component, typename RealPart<T>::type, T>>;

template <typename F, typename = void>
inline constexpr bool is_on_stored = false;
template <typename F>
inline constexpr bool is_on_stored<F, std::void_t<decltype(F::kStored)>> = true;

// Whether there is a form for results of 16 bits.
template <typename F, typename = void>
inline constexpr bool has_coarse = false;
template <typename F>
inline constexpr bool has_coarse<F, std::void_t<decltype(&F::apply_coarse)>> = true;

// What a function computes with. It makes a NaN of its own of any NaN, so that the sign of one need not be kept,
// which takes two instructions.
template <Op op, typename T>
inline constexpr bool makes_own_nan = info(op).types == TypeSet::inexact && std::is_same_v<T, Float16>;

template <Op op, typename T>
CUKERN_HD arithmetic_t<T> operand_of(T value) {
#ifdef __CUDA_ARCH__
    if constexpr (makes_own_nan<op, T>) return __half2float(bit_cast<__half>(value.bits));
#endif
    return to_arithmetic(value);
}

// An operation on elements as they are stored.
template <Op op, typename T, typename... Others>
CUKERN_HD result_t<op, T> evaluate(T a, Others... others) {
    using R = result_t<op, T>;
    if constexpr (op == Op::copy) {
        return a;
    } else if constexpr (is_on_stored<Formula<op>>) {
        if constexpr (std::is_same_v<decltype(Formula<op>::apply(a, others...)), R>)
            return Formula<op>::apply(a, others...);
        else
            return from_arithmetic<R>(Formula<op>::apply(a, others...));
    } else if constexpr (is_storage_float<T> && has_coarse<Formula<op>>) {
        return from_arithmetic<R>(Formula<op>::apply_coarse(operand_of<op>(a), operand_of<op>(others)...));
    } else {
        return from_arithmetic<R>(Formula<op>::apply(operand_of<op>(a), operand_of<op>(others)...));
    }
}

// No type holds both int64 and uint64, whose comparisons NumPy makes exact all the same. They are computed in
// complex128, as the upper and the lower half, which compare in that order; no complex operand is among them then.
template <Op op, typename T>
inline constexpr bool may_split = is_comparison(op) && std::is_same_v<T, Complex128>;

template <typename T>
CUKERN_HD Complex128 halves(T value) {
    return {static_cast<double>(value >> 32), static_cast<double>(value & 0xFFFFFFFF)};
}

// A condition is looked at in its own type: what is small there may be zero in T.
template <Op op, typename T>
CUKERN_HD T load_operand(const void *data, ElementType type, std::int64_t index, bool split, int input) {
    if constexpr (op == Op::where) {
        if (input == 0) return convert<T>(load_as<Bool>(data, type, index));
    }
    if constexpr (may_split<op, T>) {
        if (split)
            return type == ElementType::uint64 ? halves(load_as<std::uint64_t>(data, type, index))
                                               : halves(load_as<std::int64_t>(data, type, index));
    }
    return load_as<T>(data, type, index);
}

}  // namespace cukern
