// Functions in kernels that have one function: most elements in place without a branch, the rest by a call.
//
// Idea: a thread asks once whether all elements that it computes together are ordinary. Then no branch lies
// between them, and the compiler interleaves their instructions. With a branch for each element, one would wait
// for the other. Kernels that call the whole function get the same bits.
#pragma once

#include "formulas/functors.cuh"

namespace cukern {

// `A`: the type that is computed in.
template <Op op, typename A>
struct InPlace {
    static constexpr bool kExists = false;
};

#define CUKERN_UNARY(id, A, exists, condition, value)        \
    template <>                                              \
    struct InPlace<Op::id, A> {                              \
        static constexpr bool kExists = exists;              \
        CUKERN_HD static bool serves([[maybe_unused]] A x) { \
            using namespace complex_math;                    \
            return condition;                                \
        }                                                    \
        CUKERN_HD static A apply(A x) {                      \
            using namespace complex_math;                    \
            return value;                                    \
        }                                                    \
    };
#define CUKERN_COMPLEX(id, condition, value)            \
    CUKERN_UNARY(id, Complex64, true, condition, value) \
    CUKERN_UNARY(id, Complex128, true, condition, value)
CUKERN_COMPLEX(exp, is_ordinary(x), ordinary_exp(x))
CUKERN_COMPLEX(expm1, is_ordinary_for_expm1(x), ordinary_expm1(x))
CUKERN_COMPLEX(log, has_squares(x), ordinary_log(x))
CUKERN_COMPLEX(log2, has_squares(x), scaled(ordinary_log(x), kLog2E))
CUKERN_COMPLEX(log10, has_squares(x), scaled(ordinary_log(x), kLog10E))
CUKERN_COMPLEX(tanh, is_ordinary_for_tanh(x), ordinary_tanh(x))
CUKERN_COMPLEX(tan, is_ordinary_for_tanh(plus_i(x)), minus_i(ordinary_tanh(plus_i(x))))
CUKERN_COMPLEX(sign, true, sign(x))
CUKERN_COMPLEX(reciprocal, true, ordinary_reciprocal(x))
#undef CUKERN_COMPLEX
// Of complex128 these are fast enough by a call.
#define CUKERN_COMPLEX64(id, condition, value) CUKERN_UNARY(id, Complex64, true, condition, value)
CUKERN_COMPLEX64(sinh, is_ordinary(x), ordinary_sinh(x))
CUKERN_COMPLEX64(cosh, is_ordinary(x), ordinary_cosh(x))
CUKERN_COMPLEX64(sin, is_ordinary(plus_i(x)), minus_i(ordinary_sinh(plus_i(x))))
CUKERN_COMPLEX64(cos, is_ordinary(plus_i(x)), ordinary_cosh(plus_i(x)))
#undef CUKERN_COMPLEX64

// Of float64, of float32, and of 16-bit floats where they have no form of their own. The host has none of these
// functions.
#define CUKERN_REAL(id, A, condition, value) CUKERN_UNARY(id, A, real_math::has_own<float>, condition, value)
CUKERN_REAL(tan, float, std::fabs(x) < float_math::kFewTurns, float_math::near_tan(x))
CUKERN_REAL(asinh, float, std::fabs(x) < float_math::kInfinity, float_math::finite_asinh(x))
CUKERN_REAL(acosh, float, x >= 1 && x < float_math::kInfinity, float_math::finite_acosh(x))
CUKERN_REAL(atanh, float, std::fabs(x) < 1, float_math::finite_atanh(x))
CUKERN_REAL(asinh, double, std::fabs(x) < double_math::kInfinity, double_math::finite_asinh(x))
CUKERN_REAL(acosh, double, x >= 1 && x < double_math::kInfinity, double_math::finite_acosh(x))
CUKERN_REAL(atanh, double, std::fabs(x) < 1, double_math::finite_atanh(x))
CUKERN_REAL(log1p, double, double_math::has_near_log1p(x), double_math::near_log1p(x))
#undef CUKERN_REAL
#undef CUKERN_UNARY

// Of two operands, where a GPU has a function of its own.
#define CUKERN_BINARY(id, A, condition, value)                       \
    template <>                                                      \
    struct InPlace<Op::id, A> {                                      \
        static constexpr bool kExists = real_math::has_own<float>;   \
        CUKERN_HD static bool serves(A x, A y) { return condition; } \
        CUKERN_HD static A apply(A x, A y) { return value; }         \
    };
CUKERN_BINARY(hypot, float, float_math::are_finite(x, y), float_math::finite_hypot(x, y))
CUKERN_BINARY(atan2, float, float_math::are_finite(x, y), float_math::finite_atan2(x, y))
CUKERN_BINARY(atan2, double, double_math::has_near_atan2(x, y), double_math::near_atan2(x, y))
CUKERN_BINARY(logaddexp, float, float_math::are_finite(x, y), float_math::finite_log_of_sum(x, y))
CUKERN_BINARY(pow, double, double_math::has_positive_power(x, y) && !may_have_two_digits(y),
              double_math::positive_power(x, y))
CUKERN_BINARY(pow, float, float_math::has_normal_power(x, y) && !may_have_two_digits(y),
              float_math::normal_power(x, y))
#undef CUKERN_BINARY

}  // namespace cukern
