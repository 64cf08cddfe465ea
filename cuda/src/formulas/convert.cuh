// Conversions between element types, for host and device alike: C++'s own, rounding to nearest even where a type
// is narrower, as NumPy's astype does.
//
// A float that no integer can hold (NaN, infinity, out of range) gives what the processor gives; NumPy leaves it
// open too. Complex to real drops the imaginary part; anything to bool asks whether it is not zero.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define CUKERN_HD __host__ __device__ __forceinline__
// One copy in device code for all kernels of a file: for what is long, beside which a call costs little.
#define CUKERN_LONG_FUNCTION __host__ __device__ __noinline__ inline
#else
#define CUKERN_HD inline
#define CUKERN_LONG_FUNCTION inline
#endif

#include "cukern/element_type.h"

namespace cukern {

template <typename To, typename From>
CUKERN_HD To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// --- float16: 1 sign, 5 exponent, 10 mantissa bits ---

CUKERN_HD float to_float(Float16 value) {
#ifdef __CUDA_ARCH__
    // The conversion drops a NaN's sign.
    const auto sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
    return bit_cast<float>(bit_cast<std::uint32_t>(__half2float(bit_cast<__half>(value.bits))) | sign);
#else
    const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
    const std::uint32_t magnitude = value.bits & 0x7FFFU;
    if (magnitude >= 0x7C00U) return bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
    if (magnitude >= 0x400U) return bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
    const float small = static_cast<float>(magnitude) * 5.9604644775390625e-8F;  // 2**-24: subnormals
    return bit_cast<float>(sign | bit_cast<std::uint32_t>(small));
#endif
}

// From a double rounded once; a float is a double without rounding.
CUKERN_HD Float16 to_float16(double value) {
#ifdef __CUDA_ARCH__
    return {bit_cast<std::uint16_t>(__double2half(value))};
#else
    const auto bits = bit_cast<std::uint64_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 48 & 0x8000U);
    const std::uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFU;
    if (magnitude > 0x7FF0000000000000U)  // NaN: quiet, with the upper bits of its payload
        return {static_cast<std::uint16_t>(sign | 0x7E00U | (magnitude >> 42 & 0x1FFU))};
    constexpr std::uint64_t kOverflow = 0x40EFFE0000000000U;  // 65520, which rounds to infinity
    if (magnitude >= kOverflow) return {static_cast<std::uint16_t>(sign | 0x7C00U)};
    const auto exponent = static_cast<int>(magnitude >> 52) - 1023;
    if (exponent < -25) return {sign};  // at most half of the smallest subnormal, 2**-24
    const std::uint64_t mantissa = (magnitude & 0xFFFFFFFFFFFFFU) | 0x10000000000000U;
    const int dropped = exponent >= -14 ? 42 : 42 + (-14 - exponent);
    std::uint64_t kept = mantissa >> dropped;
    const std::uint64_t rest = mantissa & ((std::uint64_t{1} << dropped) - 1);
    const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
    if (rest > half || (rest == half && (kept & 1U) != 0)) ++kept;  // a carry moves into the exponent, rightly
    if (exponent >= -14) kept += static_cast<std::uint64_t>(exponent + 14) << 10;
    return {static_cast<std::uint16_t>(sign | kept)};
#endif
}

CUKERN_HD Float16 to_float16(float value) {
#ifdef __CUDA_ARCH__
    return {bit_cast<std::uint16_t>(__float2half_rn(value))};
#else
    return to_float16(static_cast<double>(value));
#endif
}

// --- bfloat16: the upper half of a float ---

CUKERN_HD float to_float(BFloat16 value) { return bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

CUKERN_HD BFloat16 to_bfloat16(float value) {
#ifdef __CUDA_ARCH__
    return {bit_cast<std::uint16_t>(__float2bfloat16_rn(value))};
#else
    const auto bits = bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>(bits >> 16 | 0x40U)};
    return {static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16)};
#endif
}

// --- any to any ---

template <typename T>
inline constexpr bool is_storage_float = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <typename T>
inline constexpr bool is_complex = std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>;
template <typename T>
inline constexpr bool is_real_number = std::is_arithmetic_v<T>;

template <typename To, typename From>
CUKERN_HD To convert(From value) {
    if constexpr (std::is_same_v<To, From> && !std::is_same_v<To, Bool>) {
        return value;
    } else if constexpr (std::is_same_v<From, Bool>) {
        if constexpr (std::is_same_v<To, Bool>)
            return {static_cast<std::uint8_t>(value.byte != 0)};
        else
            return convert<To>(static_cast<std::uint8_t>(value.byte != 0));
    } else if constexpr (is_storage_float<From>) {
        return convert<To>(to_float(value));
    } else if constexpr (is_complex<From>) {
        if constexpr (is_complex<To>)
            return {static_cast<decltype(To::real)>(value.real), static_cast<decltype(To::real)>(value.imag)};
        else if constexpr (std::is_same_v<To, Bool>)
            return {static_cast<std::uint8_t>(value.real != 0 || value.imag != 0)};
        else
            return convert<To>(value.real);
    } else if constexpr (std::is_same_v<To, Bool>) {
        return {static_cast<std::uint8_t>(value != 0)};
    } else if constexpr (std::is_same_v<To, Float16>) {
        if constexpr (std::is_integral_v<From>)
            return to_float16(static_cast<float>(value));  // as NumPy: through float32
        else
            return to_float16(value);
    } else if constexpr (std::is_same_v<To, BFloat16>) {
        return to_bfloat16(static_cast<float>(value));
    } else if constexpr (is_complex<To>) {
        return {static_cast<decltype(To::real)>(value), 0};
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 8) {
        // By way of int64 whatever the processor, so that wrapping is the same everywhere; uint32 needs it too.
        return static_cast<To>(convert<std::int64_t>(value));
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        constexpr From kTop = static_cast<From>(9223372036854775808.0);  // 2**63
        if constexpr (std::is_unsigned_v<To>)
            if (value >= kTop)
                return value < 2 * kTop ? static_cast<To>(value - kTop) + (To{1} << 63) : To{1} << 63;
        // Out of range is undefined in C++: the least integer, as x86 gives.
        if (!(value >= -kTop && value < kTop)) return static_cast<To>(std::uint64_t{1} << 63);
        return static_cast<To>(static_cast<std::int64_t>(value));
    } else {
        return static_cast<To>(value);
    }
}

// A type-erased load and store: the element at `index` of an array of `type`, converted to or from T.
template <typename T>
CUKERN_HD T load_as(const void *data, ElementType type, std::int64_t index) {
    switch (type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: return convert<T>(static_cast<const ctype *>(data)[index]);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return T{};
}

template <typename T>
CUKERN_HD void store_as(void *data, ElementType type, std::int64_t index, T value) {
    // Shorter integers are the low bits of an int64: one conversion for all of them keeps kernels short.
    const auto whole = convert<std::int64_t>(value);
    switch (type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)  \
    case ElementType::id:                                                  \
        if constexpr (std::is_integral_v<ctype> && sizeof(ctype) < 8)      \
            static_cast<ctype *>(data)[index] = static_cast<ctype>(whole); \
        else                                                               \
            static_cast<ctype *>(data)[index] = convert<ctype>(value);     \
        break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
}

}  // namespace cukern
