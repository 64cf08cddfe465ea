// The formulas of the elementwise operations, one a row of ops.def, for host and device alike.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "convert.cuh"
#include "cukern/ops.h"

namespace cukern {

// What an element type computes in: 16-bit floats in float32, rounded once; bool in C++'s own.
template <typename T>
struct Arithmetic {
    using type = T;
};
template <>
struct Arithmetic<Float16> {
    using type = float;
};
template <>
struct Arithmetic<BFloat16> {
    using type = float;
};
template <>
struct Arithmetic<Bool> {
    using type = bool;
};
template <typename T>
using arithmetic_t = typename Arithmetic<T>::type;

template <typename T>
CUKERN_HD arithmetic_t<T> to_arithmetic(T value) {
    if constexpr (is_storage_float<T>)
        return to_float(value);
    else if constexpr (std::is_same_v<T, Bool>)
        return value.byte != 0;
    else
        return value;
}

template <typename T>
CUKERN_HD T from_arithmetic(arithmetic_t<T> value) {
    if constexpr (std::is_same_v<T, Bool>)
        return {static_cast<std::uint8_t>(value)};
    else
        return convert<T>(value);
}

// Integers wrap on overflow, as in NumPy: signed overflow is undefined in C++, so the arithmetic is unsigned, and
// not narrower than int, to which C++ would promote it.
template <typename T, bool = std::is_integral_v<T>>
struct Wrapping {
    using type = T;
};
template <typename T>
struct Wrapping<T, true> {
    using type = std::conditional_t<sizeof(T) < 4, std::uint32_t, std::make_unsigned_t<T>>;
};
template <typename T>
using wrapping_t = typename Wrapping<T>::type;

// A product that is rounded by itself and not fused with the sum around it, so that both back-ends give the same.
template <typename T>
CUKERN_HD T rounded_product(T a, T b) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(T) == 4)
        return __fmul_rn(a, b);
    else
        return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

template <typename T>
CUKERN_HD T complex_product(T a, T b) {
    return {rounded_product(a.real, b.real) - rounded_product(a.imag, b.imag),
            rounded_product(a.real, b.imag) + rounded_product(a.imag, b.real)};
}

// Smith's method (R. L. Smith, Algorithm 116, 1962), as NumPy: no overflow where the quotient has none.
template <typename T>
CUKERN_HD T complex_quotient(T a, T b) {
    using R = decltype(T::real);
    const R real = std::abs(b.real);
    const R imag = std::abs(b.imag);
    if (real >= imag) {
        if (real == 0 && imag == 0) return {a.real / real, a.imag / real};
        const R ratio = b.imag / b.real;
        const R scale = 1 / (b.real + rounded_product(b.imag, ratio));
        return {(a.real + rounded_product(a.imag, ratio)) * scale,
                (a.imag - rounded_product(a.real, ratio)) * scale};
    }
    const R ratio = b.real / b.imag;
    const R scale = 1 / (b.imag + rounded_product(b.real, ratio));
    return {(rounded_product(a.real, ratio) + a.imag) * scale, (rounded_product(a.imag, ratio) - a.real) * scale};
}

template <Op op>
struct Formula;

template <>
struct Formula<Op::add> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        if constexpr (std::is_same_v<T, bool>)
            return a || b;
        else if constexpr (is_complex<T>)
            return {a.real + b.real, a.imag + b.imag};
        else
            return static_cast<T>(static_cast<wrapping_t<T>>(a) + static_cast<wrapping_t<T>>(b));
    }
};

template <>
struct Formula<Op::subtract> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        if constexpr (is_complex<T>)
            return {a.real - b.real, a.imag - b.imag};
        else
            return static_cast<T>(static_cast<wrapping_t<T>>(a) - static_cast<wrapping_t<T>>(b));
    }
};

template <>
struct Formula<Op::multiply> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        if constexpr (std::is_same_v<T, bool>)
            return a && b;
        else if constexpr (is_complex<T>)
            return complex_product(a, b);
        else
            return static_cast<T>(static_cast<wrapping_t<T>>(a) * static_cast<wrapping_t<T>>(b));
    }
};

template <>
struct Formula<Op::divide> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        if constexpr (is_complex<T>)
            return complex_quotient(a, b);
        else
            return a / b;
    }
};

template <>
struct Formula<Op::scale> : Formula<Op::multiply> {};

// Comparisons. Complex numbers compare by their real parts, then by the imaginary ones, as in NumPy.
template <typename T>
CUKERN_HD bool is_equal(T a, T b) {
    if constexpr (is_complex<T>)
        return a.real == b.real && a.imag == b.imag;
    else
        return a == b;
}

template <typename T>
CUKERN_HD bool is_less(T a, T b) {
    if constexpr (is_complex<T>)
        return (a.real < b.real && a.imag == a.imag && b.imag == b.imag) || (a.real == b.real && a.imag < b.imag);
    else
        return a < b;
}

template <typename T>
CUKERN_HD bool is_at_most(T a, T b) {
    if constexpr (is_complex<T>)
        return (a.real < b.real && a.imag == a.imag && b.imag == b.imag) || (a.real == b.real && a.imag <= b.imag);
    else
        return a <= b;
}

template <>
struct Formula<Op::equal> {
    template <typename T>
    CUKERN_HD static bool apply(T a, T b) {
        return is_equal(a, b);
    }
};

template <>
struct Formula<Op::not_equal> {
    template <typename T>
    CUKERN_HD static bool apply(T a, T b) {
        return !is_equal(a, b);
    }
};

template <>
struct Formula<Op::less> {
    template <typename T>
    CUKERN_HD static bool apply(T a, T b) {
        return is_less(a, b);
    }
};

template <>
struct Formula<Op::less_equal> {
    template <typename T>
    CUKERN_HD static bool apply(T a, T b) {
        return is_at_most(a, b);
    }
};

template <>
struct Formula<Op::greater> {
    template <typename T>
    CUKERN_HD static bool apply(T a, T b) {
        return is_less(b, a);
    }
};

template <>
struct Formula<Op::greater_equal> {
    template <typename T>
    CUKERN_HD static bool apply(T a, T b) {
        return is_at_most(b, a);
    }
};

// What an operation that computes in T returns, as it is stored.
template <Op op, typename T>
using result_t = std::conditional_t<is_comparison(op), Bool, T>;

// An operation on elements as they are stored.
template <Op op, typename T, typename... Others>
CUKERN_HD result_t<op, T> evaluate(T a, Others... others) {
    if constexpr (op == Op::copy)
        return a;
    else
        return from_arithmetic<result_t<op, T>>(
            Formula<op>::template apply<arithmetic_t<T>>(to_arithmetic(a), to_arithmetic(others)...));
}

// No type holds both int64 and uint64, whose comparisons NumPy makes exact all the same. They are computed in
// complex128, as the upper and the lower half, which compare in that order; no complex operand is among them then.
template <Op op, typename T>
inline constexpr bool may_split = is_comparison(op) && std::is_same_v<T, Complex128>;

template <typename T>
CUKERN_HD Complex128 halves(T value) {
    return {static_cast<double>(value >> 32), static_cast<double>(value & 0xFFFFFFFF)};
}

template <Op op, typename T>
CUKERN_HD T load_operand(const void *data, ElementType type, std::int64_t index, bool split) {
    if constexpr (may_split<op, T>) {
        if (split)
            return type == ElementType::uint64 ? halves(load_as<std::uint64_t>(data, type, index))
                                               : halves(load_as<std::int64_t>(data, type, index));
    }
    return load_as<T>(data, type, index);
}

}  // namespace cukern
