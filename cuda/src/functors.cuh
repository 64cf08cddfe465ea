// The formulas of the elementwise operations, one a row of ops.def, for host and device alike.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cukern/ops.h"

#ifdef __CUDACC__
#define CUKERN_HD __host__ __device__ __forceinline__
#else
#define CUKERN_HD inline
#endif

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

// A type-erased load and store: the element at `index` of an array of `type`, converted to or from T. The
// conversions that occur are those of promotion and of same_kind casting; a float never becomes an integer.
template <typename T, typename From>
CUKERN_HD T convert(From value) {
    if constexpr (std::is_integral_v<T> && !std::is_integral_v<From>)
        return T{};  // excluded by can_cast_same_kind
    else
        return static_cast<T>(value);
}

template <typename T>
CUKERN_HD T load_as(const void *data, ElementType type, std::int64_t index) {
    switch (type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy) \
    case ElementType::id: return convert<T>(static_cast<const ctype *>(data)[index]);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return T{};
}

template <typename T>
CUKERN_HD void store_as(void *data, ElementType type, std::int64_t index, T value) {
    switch (type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy) \
    case ElementType::id: static_cast<ctype *>(data)[index] = convert<ctype>(value); break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
}

}  // namespace cukern
