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
CUKERN_COMPLEX(sinh, is_ordinary(x), ordinary_sinh(x))
CUKERN_COMPLEX(cosh, is_ordinary(x), ordinary_cosh(x))
CUKERN_COMPLEX(tanh, is_ordinary_for_tanh(x), ordinary_tanh(x))
CUKERN_COMPLEX(sin, is_ordinary(plus_i(x)), minus_i(ordinary_sinh(plus_i(x))))
CUKERN_COMPLEX(cos, is_ordinary(plus_i(x)), ordinary_cosh(plus_i(x)))
CUKERN_COMPLEX(tan, is_ordinary_for_tanh(plus_i(x)), minus_i(ordinary_tanh(plus_i(x))))
CUKERN_COMPLEX(sign, true, sign(x))
CUKERN_COMPLEX(reciprocal, true, ordinary_reciprocal(x))
#undef CUKERN_COMPLEX

// Of float32, and 16-bit floats where they have no form of their own. The host computes these in float64.
#define CUKERN_FLOAT(id, condition, value) CUKERN_UNARY(id, float, real_math::has_own<float>, condition, value)
CUKERN_FLOAT(tan, std::fabs(x) < float_math::kFewTurns, float_math::near_tan(x))
CUKERN_FLOAT(asinh, std::fabs(x) < float_math::kInfinity, float_math::finite_asinh(x))
CUKERN_FLOAT(acosh, x >= 1 && x < float_math::kInfinity, float_math::finite_acosh(x))
CUKERN_FLOAT(atanh, std::fabs(x) < 1, float_math::finite_atanh(x))
#undef CUKERN_FLOAT
#undef CUKERN_UNARY

#define CUKERN_BINARY(id, condition, value)                                  \
    template <>                                                              \
    struct InPlace<Op::id, float> {                                          \
        static constexpr bool kExists = real_math::has_own<float>;           \
        CUKERN_HD static bool serves(float x, float y) { return condition; } \
        CUKERN_HD static float apply(float x, float y) { return value; }     \
    };
CUKERN_BINARY(hypot, float_math::are_finite(x, y), float_math::finite_hypot(x, y))
CUKERN_BINARY(atan2, float_math::are_finite(x, y), float_math::finite_atan2(x, y))
CUKERN_BINARY(logaddexp, float_math::are_finite(x, y), float_math::finite_log_of_sum(x, y))
CUKERN_BINARY(pow, float_math::has_positive_power(x, y) && !may_have_two_digits(y),
              float_math::positive_power(x, y))
#undef CUKERN_BINARY

}  // namespace cukern
