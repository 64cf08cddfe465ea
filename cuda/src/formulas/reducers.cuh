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

// What becomes of the joined value of all elements.
struct Finish {
    std::int64_t divisor = 0;  // of a mean: the number of elements; 0: of a sum
    bool all = false;          // whether all elements are nonzero, instead of any
    bool wide = false;         // results are of the type that 16-bit floats are added up in
};

template <typename T>
struct SumReducer {
    using A = accumulator_t<T>;
    CUKERN_HD static A identity() { return A{}; }
    CUKERN_HD static A of(T element, std::int64_t) { return accumulated<A>(element); }
    CUKERN_HD static A join(A a, A b) { return Formula<Op::add>::template apply<A>(a, b); }
    template <typename R>
    CUKERN_HD static R result(A sum, const Finish &finish) {
        if constexpr (is_complex<A>) {
            using P = decltype(A::real);
            if (finish.divisor != 0)
                sum = {sum.real / static_cast<P>(finish.divisor), sum.imag / static_cast<P>(finish.divisor)};
        } else if constexpr (std::is_floating_point_v<A>) {
            if (finish.divisor != 0) sum /= static_cast<A>(finish.divisor);
        } else if constexpr (sizeof(R) == sizeof(double)) {  // of integers: the bits of a float64
            if (finish.divisor != 0)
                return bit_cast<R>(static_cast<double>(sum) / static_cast<double>(finish.divisor));
        }
        return returned<R>(sum);
    }
};
template <typename T>
struct Reducer<Op::sum, T> : SumReducer<T> {};
template <typename T>
struct Reducer<Op::mean, T> : SumReducer<T> {};

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
    CUKERN_HD static R result(A product, const Finish &) {
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
    CUKERN_HD static R result(A value, const Finish &) {
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
    CUKERN_HD static R result(A best, const Finish &) {
        return static_cast<R>(best.index);
    }
};
template <typename T>
struct Reducer<Op::argmax, T> : IndexReducer<T, true, std::int64_t> {};
template <typename T>
struct Reducer<Op::argmin, T> : IndexReducer<T, false, std::int64_t> {};

// Of fewer than 2**31 elements, where indices are half as wide.
template <Op op, typename T>
using ShortReducer =
    std::conditional_t<op == Op::argmax, IndexReducer<T, true, std::int32_t>,
                       std::conditional_t<op == Op::argmin, IndexReducer<T, false, std::int32_t>, Reducer<op, T>>>;

// Which kinds of elements there were: a bit for nonzero ones, and one for zeros.
template <typename T>
struct Reducer<Op::any, T> {
    using A = std::uint8_t;
    static constexpr A kNonzero = 1;
    static constexpr A kZero = 2;
    CUKERN_HD static A identity() { return 0; }
    CUKERN_HD static A of(T element, std::int64_t) { return convert<Bool>(element).byte != 0 ? kNonzero : kZero; }
    CUKERN_HD static A join(A a, A b) { return a | b; }
    template <typename R>
    CUKERN_HD static R result(A value, const Finish &finish) {
        return from_arithmetic<R>(finish.all ? (value & kZero) == 0 : (value & kNonzero) != 0);
    }
};
template <typename T>
struct Reducer<Op::all, T> : Reducer<Op::any, T> {};

// Whether a reduction computes in a type: sums and products of integers in 64 bits, means in none of them; of
// bool, the largest element is any and the smallest all of them.
constexpr bool reduces_in(Op op, ElementType type) {
    const bool is_bool = type == ElementType::bool_;
    switch (op) {
        case Op::any:
        case Op::all: return is_bool;
        case Op::max:
        case Op::min: return !is_bool;
        case Op::sum:
        case Op::prod: return !is_bool && (!is_integer(type) || size_of(type) == 8);
        case Op::mean: return !is_bool && !is_integer(type);
        default: return is_reduction(op);
    }
}

// Of the elements of one result.
constexpr Finish finish_of(Op op, std::int64_t elements, bool wide = false) {
    return {op == Op::mean ? elements : 0, op == Op::all, wide};
}

// What a reduction returns that computes in a type, as it is stored.
template <Op op, typename T>
using reduced_t = std::conditional_t<op == Op::argmax || op == Op::argmin, std::int64_t,
                                     std::conditional_t<op == Op::any || op == Op::all, Bool, T>>;

}  // namespace cukern
