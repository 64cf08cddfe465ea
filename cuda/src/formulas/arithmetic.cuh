// What formulas are made of: the type that an element type computes in, products and quotients, comparisons.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "formulas/convert.cuh"

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
struct RealPart {
    using type = T;
};
template <>
struct RealPart<Complex64> {
    using type = float;
};
template <>
struct RealPart<Complex128> {
    using type = double;
};

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

// Smith's method (R. L. Smith, Algorithm 116, 1962), as NumPy: no overflow where the quotient has none. One path
// for both cases, which neighbouring threads mix.
template <typename T>
CUKERN_HD T complex_quotient(T a, T b) {
    using R = decltype(T::real);
    const R real = std::abs(b.real);
    const R imag = std::abs(b.imag);
    if (real == 0 && imag == 0) return {a.real / real, a.imag / real};
    const bool is_real_larger = real >= imag;
    const R large = is_real_larger ? b.real : b.imag;
    const R small = is_real_larger ? b.imag : b.real;
    const R p = is_real_larger ? a.real : a.imag;
    const R q = is_real_larger ? a.imag : a.real;
    const R ratio = small / large;
    const R scale = 1 / (large + rounded_product(small, ratio));
    const R product = rounded_product(p, ratio);
    return {(p + rounded_product(q, ratio)) * scale, (is_real_larger ? q - product : product - q) * scale};
}

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

template <typename T>
CUKERN_HD bool is_nan(T value) {
    if constexpr (is_complex<T>)
        return value.real != value.real || value.imag != value.imag;
    else
        return value != value;
}

}  // namespace cukern
