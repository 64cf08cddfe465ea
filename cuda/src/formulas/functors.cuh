// The formulas of the elementwise operations, one a row of ops.def, for host and device alike.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cukern/ops.h"
#include "formulas/arithmetic.cuh"
#include "formulas/complex_power.cuh"
#include "formulas/integer_math.cuh"
#include "formulas/real_math.cuh"

namespace cukern {

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

#define CUKERN_COMPARISON(id, test)             \
    template <>                                 \
    struct Formula<Op::id> {                    \
        template <typename T>                   \
        CUKERN_HD static bool apply(T a, T b) { \
            return test;                        \
        }                                       \
    };
CUKERN_COMPARISON(equal, is_equal(a, b))
CUKERN_COMPARISON(not_equal, !is_equal(a, b))
CUKERN_COMPARISON(less, is_less(a, b))
CUKERN_COMPARISON(less_equal, is_at_most(a, b))
CUKERN_COMPARISON(greater, is_less(b, a))
CUKERN_COMPARISON(greater_equal, is_at_most(b, a))
#undef CUKERN_COMPARISON

template <>
struct Formula<Op::floor_divide> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return floor_quotient(a, b);
        else
            return floor_quotient_of(a, b);
    }
};

template <>
struct Formula<Op::remainder> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return floor_remainder(a, b);
        else
            return floor_remainder_of(a, b);
    }
};

template <>
struct Formula<Op::pow> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        if constexpr (is_complex<T>)
            return complex_math::pow(a, b);
        else if constexpr (std::is_integral_v<T>)
            return integer_power(a, b);
        else
            return real_power(a, b, real_math::pow<T, T>);
    }
    CUKERN_HD static float apply_coarse(float a, float b) {
        return real_power(a, b, coarse_math::pow<float, float>);
    }
};

template <>
struct Formula<Op::maximum> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        return is_at_most(b, a) || is_nan(a) ? a : b;
    }
};

template <>
struct Formula<Op::minimum> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        return is_at_most(a, b) || is_nan(a) ? a : b;
    }
};

template <>
struct Formula<Op::hypot> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        return real_math::hypot(a, b);
    }
};

#define CUKERN_COARSE_FUNCTION_OF_TWO(id, function)                                                   \
    template <>                                                                                       \
    struct Formula<Op::id> {                                                                          \
        template <typename T>                                                                         \
        CUKERN_HD static T apply(T a, T b) {                                                          \
            return real_math::function(a, b);                                                         \
        }                                                                                             \
        CUKERN_HD static float apply_coarse(float a, float b) { return coarse_math::function(a, b); } \
    };
CUKERN_COARSE_FUNCTION_OF_TWO(atan2, atan2)
CUKERN_COARSE_FUNCTION_OF_TWO(logaddexp, log_of_sum)
#undef CUKERN_COARSE_FUNCTION_OF_TWO

// On elements as they are stored.
template <>
struct Formula<Op::copysign> {  // conversions lose the signs of NaNs
    static constexpr bool kStored = true;
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        if constexpr (is_storage_float<T>)
            return {static_cast<std::uint16_t>((a.bits & 0x7FFFU) | (b.bits & 0x8000U))};
        else
            return std::copysign(a, b);
    }
};

template <>
struct Formula<Op::nextafter> {
    static constexpr bool kStored = true;
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        if constexpr (is_storage_float<T>)
            return stored_neighbour(a, b);
        else
            return std::nextafter(a, b);
    }
};

template <>
struct Formula<Op::signbit> {
    static constexpr bool kStored = true;
    template <typename T>
    CUKERN_HD static bool apply(T a) {
        if constexpr (is_storage_float<T>)
            return (a.bits & 0x8000U) != 0;
        else
            return std::signbit(a);
    }
};

// Formulas of one expression, for integers, floats and bool, and for complex numbers where they differ.
#define CUKERN_FORMULA(id, expression)         \
    template <>                                \
    struct Formula<Op::id> {                   \
        template <typename T>                  \
        CUKERN_HD static T apply(T a, T b) {   \
            return static_cast<T>(expression); \
        }                                      \
    };
CUKERN_FORMULA(logical_and, a &&b)
CUKERN_FORMULA(logical_or, a || b)
CUKERN_FORMULA(logical_xor, !a != !b)
CUKERN_FORMULA(bitwise_and, a &b)
CUKERN_FORMULA(bitwise_or, a | b)
CUKERN_FORMULA(bitwise_xor, a ^ b)
CUKERN_FORMULA(bitwise_left_shift, shifted_left(a, b))
CUKERN_FORMULA(bitwise_right_shift, shifted_right(a, b))
#undef CUKERN_FORMULA

template <>
struct Formula<Op::logical_not> {
    template <typename T>
    CUKERN_HD static bool apply(T a) {
        return !a;
    }
};

template <>
struct Formula<Op::bitwise_invert> {
    template <typename T>
    CUKERN_HD static T apply(T a) {
        if constexpr (std::is_same_v<T, bool>)
            return !a;
        else
            return static_cast<T>(~a);
    }
};

template <>
struct Formula<Op::negative> {
    template <typename T>
    CUKERN_HD static T apply(T a) {
        if constexpr (is_complex<T>)
            return {-a.real, -a.imag};
        else if constexpr (std::is_integral_v<T>)
            return static_cast<T>(wrapping_t<T>{0} - static_cast<wrapping_t<T>>(a));
        else
            return -a;
    }
};

template <>
struct Formula<Op::abs> {
    template <typename T>
    CUKERN_HD static auto apply(T a) {
        if constexpr (is_complex<T>)
            return real_math::hypot(a.real, a.imag);
        else if constexpr (std::is_integral_v<T>)
            return is_negative(a) ? Formula<Op::negative>::apply(a) : a;
        else
            return std::fabs(a);
    }
};

template <>
struct Formula<Op::sign> {
    template <typename T>
    CUKERN_HD static T apply(T a) {
        if constexpr (is_complex<T>)
            return complex_math::sign(a);
        else
            return a > T{0} ? T{1} : is_negative(a) ? static_cast<T>(-1) : a == T{0} ? T{0} : a;
    }
};

template <>
struct Formula<Op::square> {
    template <typename T>
    CUKERN_HD static T apply(T a) {
        if constexpr (is_complex<T>)
            return {rounded_product(a.real - a.imag, a.real + a.imag), 2 * rounded_product(a.real, a.imag)};
        else
            return Formula<Op::multiply>::apply(a, a);
    }
};

template <>
struct Formula<Op::reciprocal> {
    template <typename T>
    CUKERN_HD static T apply(T a) {
        if constexpr (is_complex<T>)
            return complex_math::reciprocal(a);
        else if constexpr (std::is_integral_v<T>)
            return integer_reciprocal(a);
        else
            return 1 / a;
    }
};

#define CUKERN_ROUNDING(id, function)                        \
    template <>                                              \
    struct Formula<Op::id> {                                 \
        template <typename T>                                \
        CUKERN_HD static T apply(T a) {                      \
            if constexpr (is_complex<T>)                     \
                return {function(a.real), function(a.imag)}; \
            else                                             \
                return function(a);                          \
        }                                                    \
    };
CUKERN_ROUNDING(floor, std::floor)
CUKERN_ROUNDING(ceil, std::ceil)
CUKERN_ROUNDING(trunc, std::trunc)
CUKERN_ROUNDING(round, std::rint)
#undef CUKERN_ROUNDING

#define CUKERN_TEST(id, test, combine, exact)               \
    template <>                                             \
    struct Formula<Op::id> {                                \
        template <typename T>                               \
        CUKERN_HD static bool apply(T a) {                  \
            if constexpr (is_complex<T>)                    \
                return test(a.real) combine test(a.imag);   \
            else if constexpr (std::is_floating_point_v<T>) \
                return test(a);                             \
            else                                            \
                return exact;                               \
        }                                                   \
    };
CUKERN_TEST(isfinite, std::isfinite, &&, true)
CUKERN_TEST(isinf, std::isinf, ||, false)
CUKERN_TEST(isnan, std::isnan, ||, false)
#undef CUKERN_TEST

template <>
struct Formula<Op::real> {
    template <typename T>
    CUKERN_HD static auto apply(T a) {
        return a.real;
    }
};

template <>
struct Formula<Op::imag> {
    template <typename T>
    CUKERN_HD static auto apply(T a) {
        if constexpr (is_complex<T>)
            return a.imag;
        else
            return T{0};
    }
};

template <>
struct Formula<Op::conj> {
    template <typename T>
    CUKERN_HD static T apply(T a) {
        return {a.real, -a.imag};
    }
};

// Functions of real and complex floats: what a real `a` gives, and a complex one.
#define CUKERN_REAL_OR_COMPLEX(real, complex) \
    template <typename T>                     \
    CUKERN_HD static T apply(T a) {           \
        if constexpr (is_complex<T>)          \
            return complex;                   \
        else                                  \
            return static_cast<T>(real);      \
    }
#define CUKERN_FORMULA(id, real, complex)     \
    template <>                               \
    struct Formula<Op::id> {                  \
        CUKERN_REAL_OR_COMPLEX(real, complex) \
    };
#define CUKERN_COARSE_FORMULA(id, complex)                                          \
    template <>                                                                     \
    struct Formula<Op::id> {                                                        \
        CUKERN_REAL_OR_COMPLEX(real_math::id(a), complex)                           \
        CUKERN_HD static float apply_coarse(float a) { return coarse_math::id(a); } \
    };
#define CUKERN_FUNCTION(id, real) CUKERN_FORMULA(id, real, complex_math::id(a))
#define CUKERN_OWN_FUNCTION(id) CUKERN_COARSE_FORMULA(id, complex_math::id(a))
CUKERN_FUNCTION(sqrt, std::sqrt(a))
CUKERN_FUNCTION(exp, std::exp(a))
CUKERN_FUNCTION(expm1, std::expm1(a))
CUKERN_FUNCTION(log, std::log(a))
CUKERN_FUNCTION(log1p, real_math::log1p(a))
CUKERN_FUNCTION(log2, std::log2(a))
CUKERN_FUNCTION(log10, std::log10(a))
CUKERN_FUNCTION(sin, std::sin(a))
CUKERN_FUNCTION(cos, std::cos(a))
CUKERN_OWN_FUNCTION(tan)
CUKERN_FUNCTION(asin, real_math::asin(a))
CUKERN_FUNCTION(acos, real_math::acos(a))
CUKERN_FUNCTION(atan, std::atan(a))
CUKERN_OWN_FUNCTION(sinh)
CUKERN_FUNCTION(cosh, std::cosh(a))
CUKERN_FUNCTION(tanh, std::tanh(a))
CUKERN_OWN_FUNCTION(asinh)
CUKERN_OWN_FUNCTION(acosh)
CUKERN_OWN_FUNCTION(atanh)
#undef CUKERN_OWN_FUNCTION
#undef CUKERN_FUNCTION
#undef CUKERN_COARSE_FORMULA
#undef CUKERN_FORMULA
#undef CUKERN_REAL_OR_COMPLEX

template <>
struct Formula<Op::where> {
    static constexpr bool kStored = true;
    template <typename T>
    CUKERN_HD static T apply(T condition, T a, T b) {
        return convert<Bool>(condition).byte != 0 ? a : b;
    }
};

// Where both bounds cannot be, the upper one.
template <>
struct Formula<Op::clip> {
    template <typename T>
    CUKERN_HD static T apply(T a, T least, T most) {
        return Formula<Op::minimum>::apply<T>(Formula<Op::maximum>::apply<T>(a, least), most);
    }
};

// The product is rounded by itself, as NumPy's a * x + y.
template <>
struct Formula<Op::axpy> {
    template <typename T>
    CUKERN_HD static T apply(T a, T x, T y) {
        if constexpr (std::is_floating_point_v<T>)
            return rounded_product(a, x) + y;
        else
            return Formula<Op::add>::apply<T>(Formula<Op::multiply>::apply<T>(a, x), y);
    }
};

}  // namespace cukern
