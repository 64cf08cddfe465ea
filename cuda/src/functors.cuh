// The formulas of the elementwise operations, one a row of ops.def, for host and device alike.
#pragma once

#include <cstdint>
#include <type_traits>

#include "convert.cuh"
#include "cukern/ops.h"

namespace cukern {

// Integers wrap on overflow, as in NumPy: signed overflow is undefined in C++, so the arithmetic is unsigned.
template <typename T, bool = std::is_integral_v<T>>
struct Wrapping {
    using type = T;
};
template <typename T>
struct Wrapping<T, true> {
    using type = std::make_unsigned_t<T>;
};
template <typename T>
using wrapping_t = typename Wrapping<T>::type;

template <Op op>
struct Formula;

template <>
struct Formula<Op::copy> {
    template <typename T>
    CUKERN_HD static T apply(T a) {
        return a;
    }
};

template <>
struct Formula<Op::add> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        return static_cast<T>(static_cast<wrapping_t<T>>(a) + static_cast<wrapping_t<T>>(b));
    }
};

template <>
struct Formula<Op::subtract> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        return static_cast<T>(static_cast<wrapping_t<T>>(a) - static_cast<wrapping_t<T>>(b));
    }
};

template <>
struct Formula<Op::multiply> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        return static_cast<T>(static_cast<wrapping_t<T>>(a) * static_cast<wrapping_t<T>>(b));
    }
};

template <>
struct Formula<Op::divide> {
    template <typename T>
    CUKERN_HD static T apply(T a, T b) {
        return a / b;
    }
};

template <>
struct Formula<Op::scale> : Formula<Op::multiply> {};

}  // namespace cukern
