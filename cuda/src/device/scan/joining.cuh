// What running results join elements by.
#pragma once

#include "formulas/reducers.cuh"

namespace cukern::cuda {

// What elements are joined by: as Reducer, but that an identity changes nothing at all, and that products of parts
// of a line neither overflow nor vanish, though what comes before them would have kept them in bounds.
template <Op op, typename T, bool is_scaled = op == Op::prod && !std::is_integral_v<T>>
struct Joining : Reducer<op, T> {
    using A = typename Reducer<op, T>::A;
    CUKERN_HD static A identity() {
        if constexpr (op == Op::sum && is_complex<T>)
            return {-0.0, -0.0};
        else if constexpr (op == Op::sum && !std::is_integral_v<T>)
            return static_cast<A>(-0.0);
        else
            return Reducer<op, T>::identity();
    }
    CUKERN_HD static A normal(const A &a) { return a; }
    // Of a thread's elements that follow each other, before others come in.
    using Own = A;
    CUKERN_HD static Own own(T element) { return Reducer<op, T>::of(element, 0); }
    CUKERN_HD static Own join_own(const Own &a, const Own &b) { return Reducer<op, T>::join(a, b); }
    CUKERN_HD static A of_own(const Own &a) { return a; }
    // What comes before a thread's elements, as it joins each of them; and the results.
    using Before = A;
    CUKERN_HD static Before before(const A &a) { return a; }
    template <typename R>
    CUKERN_HD static R result_after(const Before &before, const Own &own) {
        return Reducer<op, T>::template result<R>(Reducer<op, T>::join(before, own), {});
    }
};

// Significands of float64 have room: those of all joins between two calls of normal() stay finite. Of 32 values in
// a warp, 8 warps of a block and three levels of tiles each is below 2 or 2**32, and products of the elements of a
// vector of up to four floats of 32 bits or less, or of two complex numbers of these, lie within 2**600 both ways;
// longer elements are made normal.
template <typename T>
struct Joining<Op::prod, T, true> {
    using M = std::conditional_t<is_complex<T>, Complex128, double>;
    struct A {  // significand * 2**exponent
        M significand;
        std::int64_t exponent;
    };
    static constexpr int kBias = 1023;
    static constexpr int kDigits = 52;
    CUKERN_HD static M unit() {
        if constexpr (is_complex<T>)
            return {1, 0};
        else
            return 1;
    }
    CUKERN_HD static A identity() { return {unit(), 0}; }
    // Of complex products: (1 + 0i) times an infinity is none.
    CUKERN_HD static bool is_unit(const M &value) { return value.real == 1 && value.imag == 0; }
    CUKERN_HD static bool is_identity(const A &a) { return a.exponent == 0 && is_unit(a.significand); }
    CUKERN_HD static M scaled(const M &value, int by) {
        constexpr int kMost = 1000;
        if (by >= -kMost && by <= kMost) return times_power(value, by);
        if constexpr (is_complex<T>)
            return {scalbn(value.real, by), scalbn(value.imag, by)};
        else
            return scalbn(value, by);
    }
    // The exponent is that of a normal number.
    CUKERN_HD static M times_power(const M &value, int exponent) {
        if constexpr (is_complex<T>)
            return {value.real * power_of_two(exponent), value.imag * power_of_two(exponent)};
        else
            return value * power_of_two(exponent);
    }
    CUKERN_HD static double power_of_two(int exponent) {
        return bit_cast<double>(static_cast<std::int64_t>(kBias + exponent) << kDigits);
    }
    // To a size of 1 to 2; zeros, infinities and NaN stay.
    CUKERN_HD static A normal(const A &a) {
        const M &value = a.significand;
        double size;
        if constexpr (is_complex<T>)
            size = fmax(fabs(value.real), fabs(value.imag));
        else
            size = fabs(value);
        const auto biased = static_cast<int>(bit_cast<std::int64_t>(size) >> kDigits);
        if (biased > 0 && biased < 2 * kBias)
            return {times_power(value, kBias - biased), a.exponent + biased - kBias};
        return size > 0 && biased <= 2 * kBias ? normal_of_extreme(a, size) : a;
    }
    CUKERN_LONG_FUNCTION static A normal_of_extreme(const A a, double size) {
        const int by = ilogb(size);
        return {scaled(a.significand, -by), a.exponent + by};
    }
    CUKERN_HD static A of(T element, std::int64_t) {
        const A a{convert<M>(element), 0};
        return sizeof(T) > 4 ? normal(a) : a;
    }
    // Products of a vector of floats of 32 bits or less, or of two complex numbers of such, need no exponent.
    static constexpr bool kIsShort = sizeof(T) <= 4 || std::is_same_v<T, Complex64>;
    using Own = std::conditional_t<kIsShort, M, A>;
    CUKERN_HD static Own own(T element) {
        if constexpr (kIsShort)
            return convert<M>(element);
        else
            return of(element, 0);
    }
    CUKERN_HD static Own join_own(const Own &a, const Own &b) {
        if constexpr (!kIsShort)
            return join(a, b);
        else if constexpr (is_complex<T>)
            return is_unit(a) ? b : is_unit(b) ? a : Formula<Op::multiply>::template apply<M>(a, b);
        else
            return a * b;
    }
    CUKERN_HD static A of_own(const Own &a) {
        if constexpr (kIsShort)
            return {a, 0};
        else
            return a;
    }
    CUKERN_HD static A join(const A &a, const A &b) {
        if constexpr (is_complex<T>)
            return complex_product(a, b);
        else
            return {a.significand * b.significand, a.exponent + b.exponent};
    }
    // A function: kernels join often, and it is long.
    CUKERN_LONG_FUNCTION static A complex_product(const A a, const A b) {
        if (is_identity(a)) return b;
        if (is_identity(b)) return a;
        return normal(
            {Formula<Op::multiply>::template apply<M>(a.significand, b.significand), a.exponent + b.exponent});
    }
    // Two factors, whose product need not be a float64. Beyond 2**2000 results are zero or infinite whatever the
    // significand; the first product is normal, so that there is one rounding.
    struct Scale {
        double first;
        double second;
        CUKERN_HD explicit Scale(std::int64_t exponent) {
            constexpr int kMost = 2000;
            const auto by = static_cast<int>(exponent > kMost ? kMost : exponent < -kMost ? -kMost : exponent);
            first = power_of_two(by / 2);
            second = power_of_two(by - by / 2);
        }
        CUKERN_HD M of(const M &value) const {
            if constexpr (is_complex<T>)
                return {value.real * first * second, value.imag * first * second};
            else
                return value * first * second;
        }
    };
    template <typename R>
    CUKERN_HD static R result(const A &a, std::int64_t) {
        return convert<R>(Scale(a.exponent).of(a.significand));
    }
    // Of elements without exponents the scale is that of what comes before them. Where it is small, it is a part
    // of the significand: products of the two are normal numbers.
    struct ScaledBefore {
        M significand;
        Scale scale;
        bool is_scaled;
    };
    using Before = std::conditional_t<kIsShort, ScaledBefore, A>;
    CUKERN_HD static Before before(const A &a) {
        constexpr int kMost = is_complex<T> ? 0 : 300;
        if constexpr (!kIsShort)
            return a;
        else if (a.exponent >= -kMost && a.exponent <= kMost)
            return {is_complex<T> ? a.significand : times_power(a.significand, static_cast<int>(a.exponent)),
                    Scale(0), false};
        else if (!is_complex<T>)
            return {a.significand, Scale(a.exponent), true};
        else  // no significand of 1, which join_own would take for the identity
            return {times_power(a.significand, 1), Scale(a.exponent - 1), true};
    }
    CUKERN_HD static M scaled_result(const ScaledBefore &before, const M &own) {
        const M result = join_own(before.significand, own);
        return before.is_scaled ? before.scale.of(result) : result;
    }
    template <typename R>
    CUKERN_HD static R result_after(const Before &before, const Own &own) {
        if constexpr (kIsShort)
            return convert<R>(scaled_result(before, own));
        else
            return result<R>(join(before, own), 0);
    }
};

}  // namespace cukern::cuda
