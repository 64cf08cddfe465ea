// Variances: of floats and complex numbers by batches, of short integers by exact sums.
#pragma once

#include <cmath>

#include "formulas/accumulator.cuh"

namespace cukern {

// Count, mean and squared distances from the mean, which join (Chan, Golub, LeVeque, "Updating formulae and a
// pairwise algorithm for computing sample variances", 1979). Means count from a pivot, one of the elements, so
// that what lies far from zero loses nothing. Complex numbers have two means, and the squares of both parts.
template <typename T>
struct VarianceReducer {
    using P = typename RealPart<accumulator_t<T>>::type;
    static constexpr int kParts = is_complex<T> ? 2 : 1;
    struct A {
        P count;
        P squares;
        P pivot[kParts];
        P mean[kParts];
    };
    CUKERN_HD static P part(const T &element, int i) {
        if constexpr (is_complex<T>)
            return i == 0 ? element.real : element.imag;
        else
            return to_arithmetic(element);
    }
    CUKERN_HD static A identity() { return {}; }
    CUKERN_HD static A of(T element, std::int64_t) {
        A one{1, 0, {}, {}};
        for (int k = 0; k < kParts; ++k) {
            one.pivot[k] = part(element, k);
            one.squares += one.pivot[k] - one.pivot[k];  // NaN of what is not finite
        }
        return one;
    }
    // Of several elements, of which the first is there: their mean, then the distances from it.
    template <int vector, int n, typename There>
    CUKERN_HD static A of_all(const T (&elements)[n], const There &is_there) {
        A all{};
        CUKERN_UNROLL
        for (int i = 0; i < n; ++i) all.count += is_there(i) ? P{1} : P{0};
        CUKERN_UNROLL
        for (int k = 0; k < kParts; ++k) {
            P distances[n];
            all.pivot[k] = part(elements[0], k);
            CUKERN_UNROLL
            for (int i = 0; i < n; ++i) {
                distances[i] = is_there(i) ? part(elements[i], k) - all.pivot[k] : P{0};
                all.mean[k] += distances[i];
            }
            all.mean[k] *= 1 / all.count;
            CUKERN_UNROLL
            for (int i = 0; i < n; ++i) {
                const P distance = is_there(i) ? distances[i] - all.mean[k] : P{0};
                all.squares += distance * distance;
            }
        }
        return all;
    }
    // To a unit or two, in a few instructions.
    CUKERN_HD static P quotient(P a, P b) {
#if defined(__CUDA_ARCH__)
        if constexpr (std::is_same_v<P, float>) {
            return __fdividef(a, b);
        } else {
            double inverse;
            asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(b));
            inverse = fma(inverse, fma(-b, inverse, 1.0), inverse);
            return a * fma(inverse, fma(-b, inverse, 1.0), inverse);
        }
#else
        return a / b;
#endif
    }
    CUKERN_HD CUKERN_NOINLINE static A join(A a, A b) {
        if (a.count == 0) return b;
        if (b.count == 0) return a;
        const P share = a.count == b.count ? P(0.5) : quotient(b.count, a.count + b.count);
        a.squares += b.squares;
        for (int k = 0; k < kParts; ++k) {
            const P distance = (b.pivot[k] - a.pivot[k]) + (b.mean[k] - a.mean[k]);
            a.mean[k] += distance * share;
            a.squares += distance * distance * (a.count * share);
        }
        a.count += b.count;
        return a;
    }
    template <typename R>
    CUKERN_HD static R result(const A &all, const Finish &finish) {
        const P variance = all.squares * static_cast<P>(finish.factor);
        return returned<R>(finish.root ? std::sqrt(variance) : variance);
    }
};
// Of integers of up to 32 bits, as many as ReduceLimits allows, without an error until the end: their sum, and
// that of their squares in 96 bits. Both give the squared distances from the integer next to the mean, without an
// error. The squared distances from the mean itself are less, by half of that at most.
struct IntegerVariance {
    struct A {
        std::int64_t sum;
        std::uint64_t squares;
        std::uint32_t upper_squares;  // times 2**64
    };
    bool is_signed;

    CUKERN_HD static A identity() { return {}; }
    CUKERN_HD A of(std::uint32_t element, std::int64_t) const {
        const std::int64_t value = is_signed ? std::int64_t{static_cast<std::int32_t>(element)} : element;
        return {value, static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(value), 0};
    }
    CUKERN_HD static A join(A a, A b) {
        a.sum += b.sum;
        a.squares += b.squares;
        a.upper_squares += b.upper_squares + (a.squares < b.squares ? 1U : 0U);
        return a;
    }
    template <typename R>
    CUKERN_HD static R result(A all, const Finish &finish) {
        const auto near = static_cast<std::int64_t>(std::rint(static_cast<double>(all.sum) / finish.divisor));
        const std::int64_t rest = all.sum - near * static_cast<std::int64_t>(finish.divisor);
        // Squares less near * (sum + rest), whose factors have the same sign.
        const auto factor = static_cast<std::uint32_t>(near < 0 ? -near : near);
        const auto other = static_cast<std::uint64_t>(near < 0 ? -(all.sum + rest) : all.sum + rest);
        const std::uint64_t upper = factor * (other >> 32);
        const std::uint64_t lower = factor * (other & 0xFFFFFFFFU);
        const std::uint64_t product = lower + (upper << 32);
        const auto upper_product = static_cast<std::uint32_t>(upper >> 32) + (product < lower ? 1U : 0U);
        const std::uint64_t low = all.squares - product;
        const std::uint32_t high = all.upper_squares - upper_product - (all.squares < product ? 1U : 0U);
        constexpr double kUpper = 18446744073709551616.0;  // 2**64
        const double squares = kUpper * high + static_cast<double>(low);
        const double of_rest = static_cast<double>(rest) * static_cast<double>(rest) / finish.divisor;
        const double variance = (squares - of_rest) * finish.factor;
        return static_cast<R>(finish.root ? std::sqrt(variance) : variance);
    }
};

}  // namespace cukern
