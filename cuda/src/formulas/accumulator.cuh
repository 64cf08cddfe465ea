// What reducers share: the types that elements are added up in, and what becomes of the joined value.
#pragma once

#include "formulas/functors.cuh"

#if defined(__CUDA_ARCH__)
#define CUKERN_UNROLL _Pragma("unroll")
#define CUKERN_NOINLINE __noinline__
#else
#define CUKERN_UNROLL
#define CUKERN_NOINLINE
#endif

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

// What becomes of the joined value of all elements.
struct Finish {
    double divisor = 0;  // of a mean and a variance: the number of elements; else 0
    double factor = 1;   // of a variance: the squares' part that it is
    bool root = false;   // of a variance
    bool product = false;
    bool all = false;        // whether all elements are nonzero, instead of any
    bool wide = false;       // results are of the type that 16-bit floats are added up in
    bool is_signed = false;  // of a mean or a variance of integers
};

}  // namespace cukern
