// What reductions do with elements, for host and device alike: an identity, what an element counts for, how two
// partial results join, and what is returned.
//
// T is what elements are loaded as, R what is returned. Partial results of any grouping and order join to the
// same, up to rounding; where it matters which element came first, they carry its index.
#pragma once

#include <limits>

#include "formulas/functors.cuh"

namespace cukern {

template <typename T>
struct Accumulator {  // 16-bit floats in float32, integers in 64 bits
    using type = std::conditional_t<std::is_integral_v<T>,
                                    std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>,
                                    arithmetic_t<T>>;
};
template <>
struct Accumulator<Bool> {
    using type = std::int64_t;
};
template <typename T>
using accumulator_t = typename Accumulator<T>::type;

template <typename A, typename T>
CUKERN_HD A accumulated(T element) {
    return static_cast<A>(to_arithmetic(element));
}

// From an accumulator to what is returned: wrapping, rounded once.
template <typename R, typename A>
CUKERN_HD R returned(A value) {
    return convert<R>(value);
}

template <Op op, typename T>
struct Reducer;

// `count` is that of the elements, for the mean.
template <typename T, bool divides>
struct SumReducer {
    using A = accumulator_t<T>;
    CUKERN_HD static A identity() { return A{}; }
    CUKERN_HD static A of(T element, std::int64_t) { return accumulated<A>(element); }
    CUKERN_HD static A join(A a, A b) { return Formula<Op::add>::template apply<A>(a, b); }
    template <typename R>
    CUKERN_HD static R result(A sum, std::int64_t count) {
        if constexpr (!divides)
            return returned<R>(sum);
        else if constexpr (is_complex<A>)
            return returned<R>(A{sum.real / static_cast<decltype(A::real)>(count),
                                 sum.imag / static_cast<decltype(A::real)>(count)});
        else
            return returned<R>(sum / static_cast<A>(count));
    }
};
template <typename T>
struct Reducer<Op::sum, T> : SumReducer<T, false> {};
template <typename T>
struct Reducer<Op::mean, T> : SumReducer<T, true> {};

template <typename T>
struct Reducer<Op::prod, T> {
    using A = accumulator_t<T>;
    CUKERN_HD static A identity() {
        if constexpr (is_complex<A>)
            return {1, 0};
        else
            return A{1};
    }
    CUKERN_HD static A of(T element, std::int64_t) { return accumulated<A>(element); }
    CUKERN_HD static A join(A a, A b) { return Formula<Op::multiply>::template apply<A>(a, b); }
    template <typename R>
    CUKERN_HD static R result(A product, std::int64_t) {
        return returned<R>(product);
    }
};

template <typename T>
inline constexpr T kLeastOf = std::numeric_limits<T>::min();
template <typename T>
inline constexpr T kLargestOf = std::numeric_limits<T>::max();

// The least value of a type, or the largest.
template <typename T, bool largest>
CUKERN_HD T extreme() {
    if constexpr (is_complex<T>) {
        using P = decltype(T::real);
        return {extreme<P, largest>(), extreme<P, largest>()};
    } else if constexpr (std::is_same_v<T, bool>) {
        return largest;
    } else if constexpr (std::is_floating_point_v<T>) {
        const T infinity = static_cast<T>(__builtin_huge_val());
        return largest ? infinity : -infinity;
    } else {
        return largest ? kLargestOf<T> : kLeastOf<T>;
    }
}

template <Op op, typename T, bool finds_max>
struct ExtremeReducer {
    using A = arithmetic_t<T>;
    CUKERN_HD static A identity() { return extreme<A, !finds_max>(); }
    CUKERN_HD static A of(T element, std::int64_t) { return to_arithmetic(element); }
    CUKERN_HD static A join(A a, A b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        // One instruction instead of three. Of float32 itself, ptxas then moves loads behind the first of them.
        if constexpr (std::is_same_v<A, float> && !std::is_same_v<T, float>) {
            float result;
            if constexpr (finds_max)
                asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
            else
                asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
            return result;
        }
#endif
        return Formula<op>::template apply<A>(a, b);
    }
    template <typename R>
    CUKERN_HD static R result(A value, std::int64_t) {
        return from_arithmetic<R>(value);
    }
};
template <typename T>
struct Reducer<Op::max, T> : ExtremeReducer<Op::maximum, T, true> {};
template <typename T>
struct Reducer<Op::min, T> : ExtremeReducer<Op::minimum, T, false> {};

// Propagates NaN; of equal elements the first one's index is kept. An index of -1: nothing yet.
template <typename T, bool finds_max, typename Index>
struct IndexReducer {
    struct A {
        arithmetic_t<T> value;
        Index index;
    };
    CUKERN_HD static A identity() { return {extreme<arithmetic_t<T>, !finds_max>(), -1}; }
    CUKERN_HD static A of(T element, std::int64_t index) {
        return {to_arithmetic(element), static_cast<Index>(index)};
    }
    CUKERN_HD static bool beyond(const arithmetic_t<T> &a, const arithmetic_t<T> &b) {
        if constexpr (std::is_floating_point_v<arithmetic_t<T>>)
            return !(finds_max ? a <= b : a >= b) && b == b;
        else if constexpr (is_complex<T>)
            return !is_nan(b) && (is_nan(a) || (finds_max ? is_less(b, a) : is_less(a, b)));
        else
            return finds_max ? a > b : a < b;
    }
    CUKERN_HD static A join(A a, A b) {
        if (b.index < 0) return a;
        if (a.index < 0 || beyond(b.value, a.value)) return b;
        return b.index < a.index && !beyond(a.value, b.value) ? b : a;
    }
    // The same where `b` comes after `a`, and is something.
    CUKERN_HD static A join_later(A a, A b) { return a.index < 0 || beyond(b.value, a.value) ? b : a; }
    // The same where `a` is something too.
    CUKERN_HD static A join_next(A a, A b) { return beyond(b.value, a.value) ? b : a; }
    template <typename R>
    CUKERN_HD static R result(A best, std::int64_t) {
        return static_cast<R>(best.index);
    }
};
template <typename T>
struct Reducer<Op::argmax, T> : IndexReducer<T, true, std::int64_t> {};
template <typename T>
struct Reducer<Op::argmin, T> : IndexReducer<T, false, std::int64_t> {};

// Of fewer than 2**31 elements, where indices are half as wide.
template <Op op, typename T>
struct ShortReducer : Reducer<op, T> {};
template <typename T>
struct ShortReducer<Op::argmax, T> : IndexReducer<T, true, std::int32_t> {};
template <typename T>
struct ShortReducer<Op::argmin, T> : IndexReducer<T, false, std::int32_t> {};

template <>
struct Reducer<Op::any, Bool> {
    using A = bool;
    CUKERN_HD static A identity() { return false; }
    CUKERN_HD static A of(Bool element, std::int64_t) { return element.byte != 0; }
    CUKERN_HD static A join(A a, A b) { return a || b; }
    template <typename R>
    CUKERN_HD static R result(A value, std::int64_t) {
        return from_arithmetic<R>(value);
    }
};
template <>
struct Reducer<Op::all, Bool> : Reducer<Op::any, Bool> {
    CUKERN_HD static A identity() { return true; }
    CUKERN_HD static A join(A a, A b) { return a && b; }
};

// Whether a reduction computes in a type: sums and means in no bool, means in no integers either.
constexpr bool reduces_in(Op op, ElementType type) {
    const bool is_bool = type == ElementType::bool_;
    switch (op) {
        case Op::any:
        case Op::all: return is_bool;
        case Op::sum:
        case Op::prod: return !is_bool;
        case Op::mean: return !is_bool && !is_integer(type);
        default: return is_reduction(op);
    }
}

// Whether there are kernels that load elements of a type as they are stored. Indices have them for the types that
// are searched most.
constexpr bool reduces_stored(Op op, ElementType type) {
    switch (op) {
        case Op::any:
        case Op::all:
        case Op::prod: return false;
        case Op::argmax:
        case Op::argmin: return kind_of(type) == 'f' || type == ElementType::int32 || type == ElementType::int64;
        case Op::max:
        case Op::min: return kind_of(type) != 'c' && kind_of(type) != 'b';
        default: return reduces_in(op, type) || op == Op::sum;
    }
}

// What a reduction returns that computes in a type, as it is stored.
template <Op op, typename T>
using reduced_t = std::conditional_t<op == Op::argmax || op == Op::argmin, std::int64_t,
                                     std::conditional_t<op == Op::any || op == Op::all, Bool, T>>;

}  // namespace cukern
