// What reductions do with elements, for host and device alike: an identity, what an element counts for, how two
// partial results join, and what is returned.
//
// T is what elements are loaded as, R what is returned. Partial results of any grouping and order join to the
// same, up to rounding; where it matters which element came first, they carry its index.
#pragma once

#include <limits>

#include "formulas/accumulator.cuh"
#include "formulas/variance.cuh"

namespace cukern {

template <Op op, typename T>
struct Reducer;

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
            if (finish.divisor != 0) return bit_cast<R>(static_cast<double>(sum) / finish.divisor);
        }
        return returned<R>(sum);
    }
};
// Means of integers whose sum 64 bits may not hold: in float64, whose bits an R has.
struct WideMean {
    using A = double;
    bool is_signed;

    CUKERN_HD static A identity() { return 0; }
    CUKERN_HD A of(std::uint64_t element, std::int64_t) const {
        return is_signed ? static_cast<A>(static_cast<std::int64_t>(element)) : static_cast<A>(element);
    }
    CUKERN_HD static A join(A a, A b) { return a + b; }
    template <typename R>
    CUKERN_HD static R result(A sum, const Finish &finish) {
        return bit_cast<R>(sum / finish.divisor);
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

// Sums and products by one kernel, since what they differ in is a small part of it.
template <typename T>
struct SumOrProduct : SumReducer<T> {
    using A = accumulator_t<T>;
    bool product;

    CUKERN_HD A identity() const { return product ? Reducer<Op::prod, T>::identity() : A{}; }
    CUKERN_HD A join(A a, A b) const {
        return product ? Reducer<Op::prod, T>::join(a, b) : SumReducer<T>::join(a, b);
    }
    // Of the elements that are there; those of each vector in order, and vectors in pairs.
    template <int vector, int n, typename There>
    CUKERN_HD A of_all(const T (&elements)[n], const There &is_there) const {
        if (!product) return joined<vector>(SumReducer<T>{}, elements, is_there);
        if constexpr (vector == 1 || sizeof(T) > 2 || is_storage_float<T>) {
            return joined<vector>(Reducer<Op::prod, T>{}, elements, is_there);
        } else {
            Batch<n> batch;
            CUKERN_UNROLL
            for (int i = 0; i < n; ++i) batch.values[i] = is_there(i) ? elements[i] : convert<T>(std::int32_t{1});
            return product_of(batch);
        }
    }

private:
    template <int n>
    struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Batch {
        T values[n];
    };
    // Of short integers, whose many products of 64 bits are long: one copy for all kernels.
    template <int n>
    CUKERN_HD CUKERN_NOINLINE static A product_of(const Batch<n> batch) {
        A result = accumulated<A>(batch.values[0]);
        CUKERN_UNROLL
        for (int i = 1; i < n; ++i) result = Reducer<Op::prod, T>::join(result, accumulated<A>(batch.values[i]));
        return result;
    }
    template <int vector, typename F, int n, typename There>
    CUKERN_HD static A joined(const F &f, const T (&elements)[n], const There &is_there) {
        A values[n / vector];
        CUKERN_UNROLL
        for (int j = 0; j < n / vector; ++j) {
            values[j] = is_there(j * vector) ? f.of(elements[j * vector], 0) : f.identity();
            CUKERN_UNROLL
            for (int i = j * vector + 1; i < (j + 1) * vector; ++i)
                if (is_there(i)) values[j] = f.join(values[j], f.of(elements[i], 0));
        }
        CUKERN_UNROLL
        for (int by = 1; by < n / vector; by *= 2) {
            CUKERN_UNROLL
            for (int j = 0; j + by < n / vector; j += 2 * by) values[j] = f.join(values[j], values[j + by]);
        }
        return values[0];
    }
};

template <typename T>
struct Reducer<Op::var, T> : VarianceReducer<T> {};
template <typename T>
struct Reducer<Op::std, T> : VarianceReducer<T> {};

template <typename T>
inline constexpr T kLeastOf = std::numeric_limits<T>::min();
template <typename T>
inline constexpr T kLargestOf = std::numeric_limits<T>::max();

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The least value of a type, or the largest.
template <typename T, bool largest>
CUKERN_HD T extreme() {
    if constexpr (is_complex<T>) {
        using P = decltype(T::real);
        return {extreme<P, largest>(), extreme<P, largest>()};
    } else if constexpr (std::is_same_v<T, bool>) {
        return largest;
    } else if constexpr (std::is_floating_point_v<T>) {
        const T infinity = static_cast<T>(kInfinity);
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

// What kernels reduce by: sums and products by one, means of integers of 64 bits, variances of those of 32 bits,
// and of fewer than 2**31 elements indices half as wide.
template <Op op, typename T>
struct InKernel {
    using type = Reducer<op, T>;
};
template <typename T>
struct InKernel<Op::sum, T> {
    using type = SumOrProduct<T>;
};
template <>
struct InKernel<Op::mean, std::uint64_t> {
    using type = WideMean;
};
template <>
struct InKernel<Op::var, std::uint32_t> {
    using type = IntegerVariance;
};
template <typename T>
struct InKernel<Op::argmax, T> {
    using type = IndexReducer<T, true, std::int32_t>;
};
template <Op op, typename T>
using KernelReducer = typename InKernel<op, T>::type;

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
        case Op::mean:
        case Op::var:
        case Op::std: return !is_bool && !is_integer(type);
        default: return is_reduction(op);
    }
}

// Of the elements of one result.
inline Finish finish_of(Op op, std::int64_t elements, double correction, bool wide = false) {
    const auto count = static_cast<double>(elements);
    Finish finish;
    const bool is_variance = op == Op::var || op == Op::std;
    if (op == Op::mean || is_variance) finish.divisor = count;
    if (is_variance) finish.factor = 1 / (count < correction ? 0 : count - correction);
    finish.root = op == Op::std;
    finish.product = op == Op::prod;
    finish.all = op == Op::all;
    finish.wide = wide;
    return finish;
}

// What a reduction returns that computes in a type, as it is stored.
template <Op op, typename T>
using reduced_t = std::conditional_t<
    op == Op::argmax || op == Op::argmin, std::int64_t,
    std::conditional_t<op == Op::any || op == Op::all, Bool,
                       std::conditional_t<op == Op::var || op == Op::std, typename RealPart<T>::type, T>>>;

}  // namespace cukern
