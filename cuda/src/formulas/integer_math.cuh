// Integer functions with NumPy's values where C++ has none: division by zero, overflow, wide shifts.
#pragma once

#include <cstdint>
#include <type_traits>

#include "formulas/convert.cuh"
#include "formulas/rough_math.cuh"

namespace cukern {

template <typename T>
CUKERN_HD bool is_negative(T value) {
    if constexpr (std::is_unsigned_v<T>)
        return false;
    else
        return value < T{0};
}

// floor_quotient of integers of up to 16 bits, by one of floats, which takes half of the instructions. With b
// above 0, (a + 1/2) / b is at least 1 / (2 b) away from an integer. The quotient is off by two units in the last
// place, 2**-22 of at most 2**16 / b.
CUKERN_HD std::int32_t short_floor_quotient(std::int32_t a, std::int32_t b) {
    if (b == 0) return 0;
    const float middle = static_cast<float>(b < 0 ? -a : a) + 0.5F;
    return static_cast<std::int32_t>(
        std::floor(float_math::rough_quotient(middle, static_cast<float>(b < 0 ? -b : b))));
}

CUKERN_HD std::int32_t short_floor_remainder(std::int32_t a, std::int32_t b) {
    return b == 0 ? 0 : a - short_floor_quotient(a, b) * b;
}

// Rounded down; 0 where the divisor is. The least integer by -1 wraps to itself.
template <typename T>
CUKERN_HD T floor_quotient(T a, T b) {
    if constexpr (sizeof(T) <= 2) return static_cast<T>(short_floor_quotient(a, b));
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
        if (b == -1) return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(a));
        const T quotient = static_cast<T>(a / b);
        return static_cast<T>(quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
    } else {
        return static_cast<T>(a / b);
    }
}

// With the sign of the divisor; 0 where the divisor is.
template <typename T>
CUKERN_HD T floor_remainder(T a, T b) {
    if constexpr (sizeof(T) <= 2) return static_cast<T>(short_floor_remainder(a, b));
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
        const T rest = static_cast<T>(a % b);
        return static_cast<T>(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    } else {
        return static_cast<T>(a % b);
    }
}

// By repeated squaring, wrapping; on the host 1 is done without it. A negative power gives 0, of 1 and -1 what
// their reciprocals give.
template <typename T>
CUKERN_HD T integer_power(T base, T exponent) {
#ifndef __CUDA_ARCH__
    if (base == 1) return base;
#endif
    if constexpr (std::is_signed_v<T>) {
        if (exponent < 0) return static_cast<T>(base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0);
    }
    // In 32 bits, whose product is faster, where that holds the type.
    using U = std::conditional_t<sizeof(T) <= 4, std::uint32_t, std::uint64_t>;
    auto factor = static_cast<U>(base);
    auto rest = static_cast<U>(exponent);
    U result = (rest & 1U) != 0 ? factor : 1;
    while ((rest >>= 1U) != 0) {
        factor *= factor;
        result *= (rest & 1U) != 0 ? factor : 1;  // a choice costs less than a branch that nobody can foresee
    }
    return static_cast<T>(result);
}

template <typename T>
CUKERN_HD bool is_wide_shift(T by) {
    return static_cast<std::make_unsigned_t<T>>(by) >= 8 * sizeof(T);  // a negative one too
}

#ifdef __CUDA_ARCH__
// The processor's own shifts, by which wide ones shift all bits out; of C++ they are undefined.
__device__ inline std::uint32_t any_shift_left(std::uint32_t value, std::uint32_t by) {
    std::uint32_t result;
    asm("shl.b32 %0, %1, %2;" : "=r"(result) : "r"(value), "r"(by));
    return result;
}
__device__ inline std::uint32_t any_shift_right(std::uint32_t value, std::uint32_t by) {
    std::uint32_t result;
    asm("shr.u32 %0, %1, %2;" : "=r"(result) : "r"(value), "r"(by));
    return result;
}
__device__ inline std::int32_t any_shift_right(std::int32_t value, std::uint32_t by) {
    std::int32_t result;
    asm("shr.s32 %0, %1, %2;" : "=r"(result) : "r"(value), "r"(by));
    return result;
}
#endif

template <typename T>
CUKERN_HD T shifted_left(T value, T by) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(T) <= 4)
        return static_cast<T>(any_shift_left(static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(by)));
#endif
    return is_wide_shift(by) ? T{0}
                             : static_cast<T>(static_cast<std::uint64_t>(value) << static_cast<unsigned>(by));
}

template <typename T>
CUKERN_HD T shifted_right(T value, T by) {
#ifdef __CUDA_ARCH__
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>;
    if constexpr (sizeof(T) <= 4)
        return static_cast<T>(any_shift_right(static_cast<Wide>(value), static_cast<std::uint32_t>(by)));
#endif
    if (is_wide_shift(by)) return static_cast<T>(is_negative(value) ? -1 : 0);
    return static_cast<T>(value >> static_cast<unsigned>(by));
}

// 1 / x; of 0 what x86 makes of an infinity, as NumPy gives it.
template <typename T>
CUKERN_HD T integer_reciprocal(T value) {
    if (value == 0) {
        constexpr auto kLeast = static_cast<T>(std::uint64_t{1} << (8 * sizeof(T) - 1));
        return std::is_signed_v<T> && sizeof(T) >= 4 ? kLeast : T{0};
    }
    return static_cast<T>(1 / value);
}

}  // namespace cukern
