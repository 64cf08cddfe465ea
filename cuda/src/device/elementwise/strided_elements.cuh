// A thread's elements of operands of any strides and types: how they are loaded, stored, and held in the type T
// that is computed in.
#pragma once

#include "device/elementwise/operands.cuh"
#include "device/kernel_types.h"
#include "formulas/evaluate.cuh"

namespace cukern::cuda {

template <typename T>
inline constexpr int kStridedElements = strided_elements(sizeof(T));
template <typename T>
using Some = Elements<T, kStridedElements<T>>;

// Of long elements, the last one is loaded in the place of each that is not there: under conditions ptxas asks for
// one after the other.
template <typename T>
inline constexpr bool kLoadsAll = sizeof(T) >= 8;
template <typename T>
__device__ bool is_loaded_at(int k, int count) {
    return kLoadsAll<T> || k < count;
}

// Distances of a thread's elements from an operand's first.
template <typename T>
struct Places {
    std::int32_t at[kStridedElements<T>];
};

// Whether T's kernels serve a narrower type, and any.
template <typename Narrow, typename T>
inline constexpr bool is_narrow =
    !std::is_same_v<Narrow, T> && wide_type(ElementTypeOf<Narrow>::value) == ElementTypeOf<T>::value;
template <typename T>
inline constexpr bool is_wide = std::is_same_v<T, std::int32_t> || std::is_same_v<T, float>;

// Whether operands of a type are ever beside what T's kernels serve: types are promoted. bfloat16 takes integers
// of any size, and a third operand, a Python complex number, makes complex64 of it.
constexpr bool may_be_beside(ElementType from, ElementType wide, int inputs) {
    if (wide == ElementType::complex64 && inputs == 3 && is_integer(from)) return true;
    for (int type = 0; type < kNumElementTypes; ++type)
        if (wide_type(static_cast<ElementType>(type)) == wide &&
            promote(from, static_cast<ElementType>(type)) == static_cast<ElementType>(type))
            return true;
    return false;
}
template <typename From, typename T, int inputs>
inline constexpr bool is_loaded = may_be_beside(ElementTypeOf<From>::value, ElementTypeOf<T>::value, inputs);

// How elements become T, as the host finds it once. What is loaded as bits is loaded before any is converted.
enum class Loading : std::int8_t {
    value,  // given by value
    bits_of_t,
    bits_of_bfloat16,
    bits_of_float16,
    bits_of_short_integer,
    bits_of_integer,
    bits_of_other,
    bits_of_truth,
    t,
    other,
    truth,
    split,  // a part of a number of 64 bits
};

// An element in T, or its truth, which is looked at in its own type: what is small there may be zero in T.
template <typename T, bool truth, typename From>
__device__ T loaded_as(From value) {
    if constexpr (truth)
        return convert<T>(convert<Bool>(value));
    else
        return convert<T>(value);
}

// Complex numbers may begin at any of their parts. Those that begin at a whole one are loaded and stored whole, by
// half of the requests, unless one part is enough.
template <typename T>
using Whole = Elements<T, 1>;
template <typename T>
__device__ bool are_whole(const void *data) {
    return is_complex<T> && reinterpret_cast<std::uintptr_t>(data) % sizeof(T) == 0;
}

template <typename T, bool truth, typename From>
__device__ Some<T> load_each(const void *data, const Places<T> &places, int count) {
    constexpr int kCount = kStridedElements<T>;
    From x[kCount] = {};
    if (truth && are_whole<From>(data)) {  // others come as bits
#pragma unroll
        for (int k = 0; k < kCount; ++k)
            if (is_loaded_at<T>(k, count)) x[k] = static_cast<const Whole<From> *>(data)[places.at[k]].values[0];
    } else {
#pragma unroll
        for (int k = 0; k < kCount; ++k)
            if (is_loaded_at<T>(k, count)) x[k] = static_cast<const From *>(data)[places.at[k]];
    }
    Some<T> converted;
#pragma unroll
    for (int k = 0; k < kCount; ++k) converted.values[k] = loaded_as<T, truth>(x[k]);
    return converted;
}

// Elements as bits, which are loaded before any is converted.
template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                std::conditional_t<sizeof(T) == 8, std::uint64_t, Elements<std::uint64_t, 2>>>;
template <typename T>
using LowBits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
template <typename T>
using BitsOf = CTypeOf<bits_of(ElementTypeOf<T>::value)>;
template <typename T>
using SomeBits = Elements<Bits<T>, kStridedElements<T>>;

template <typename To>
__device__ To low_bits(const Elements<std::uint64_t, 2> &bits) {
    return static_cast<To>(bits.values[0]);
}
template <typename To, typename From>
__device__ To low_bits(From bits) {
    return static_cast<To>(bits);
}
template <typename From, typename T>
__device__ From from_bits(const Bits<T> &bits) {
    if constexpr (sizeof(From) == sizeof(T))
        return bit_cast<From>(bits);
    else if constexpr (sizeof(From) == 8)
        return bit_cast<From>(low_bits<std::uint64_t>(bits));
    else
        return bit_cast<From>(low_bits<BitsOf<From>>(bits));
}

template <typename T, typename As>
__device__ SomeBits<T> load_bits_as(const void *data, const Places<T> &places, int count) {
    SomeBits<T> bits{};
#pragma unroll
    for (int k = 0; k < kStridedElements<T>; ++k) {
        if (!is_loaded_at<T>(k, count)) continue;
        const As loaded = static_cast<const As *>(data)[places.at[k]];
        if constexpr (sizeof(As) < 16 && sizeof(T) == 16)
            bits.values[k] = {{loaded, 0}};
        else
            bits.values[k] = loaded;
    }
    return bits;
}

// What is returned at the end never is: else ptxas puts the loads of the last two sizes under conditions, all of
// which a thread then passes, and conversions took up to 1.16 of the time.
template <typename T>
__device__ SomeBits<T> load_bits(const void *data, int size, const Places<T> &places, int count) {
    if (size == sizeof(T)) return load_bits_as<T, Bits<T>>(data, places, count);
    if (size == 1) return load_bits_as<T, std::uint8_t>(data, places, count);
    if (size == 2) return load_bits_as<T, std::uint16_t>(data, places, count);
    if constexpr (sizeof(T) >= 8) {
        if (size == 4) return load_bits_as<T, std::uint32_t>(data, places, count);
    }
    if constexpr (sizeof(T) == 16) {
        if (size == 8) return load_bits_as<T, std::uint64_t>(data, places, count);
    }
    return {};
}

// What is loaded as bits: alike for all of a size but for the conversion. Complex numbers are where they begin at
// whole ones.
template <typename From, typename T>
inline constexpr bool has_bits = sizeof(From) <= sizeof(T) && (is_complex<T> || !is_complex<From>);

// Integers that int64 holds are loaded alike by types of 64 bits: what differs is how many bits repeat the sign.
template <typename T>
inline constexpr bool loads_integers = sizeof(T) == 8 && !is_complex<T>;
constexpr bool is_within_int64(ElementType type) { return is_integer(type) && type != ElementType::uint64; }
template <typename From, typename T>
inline constexpr bool is_loaded_as_integer = loads_integers<T> && is_within_int64(ElementTypeOf<From>::value);

template <typename T, int inputs>
__device__ __noinline__ Some<T> converted_bits(ElementType type, SomeBits<T> bits) {
    Some<T> x{};
    switch (type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)                                     \
    case ElementType::id:                                                                                     \
        if constexpr (has_bits<ctype, T> && is_loaded<ctype, T, inputs> && !is_loaded_as_integer<ctype, T>) { \
            for (int k = 0; k < kStridedElements<T>; ++k)                                                     \
                x.values[k] = convert<T>(from_bits<ctype, T>(bits.values[k]));                                \
        }                                                                                                     \
        break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return x;
}

// Short integers and truths from their low bits: what differs by type are numbers, so that all share the code.
struct ShortInteger {
    std::uint32_t mask;
    std::uint32_t sign;
    std::int32_t most;
};

CUKERN_HD constexpr bool is_short_integer(ElementType type) {
    return type == ElementType::bool_ || type == ElementType::int8 || type == ElementType::int16 ||
           type == ElementType::uint8 || type == ElementType::uint16;
}

CUKERN_HD constexpr ShortInteger short_integer(ElementType type) {
    const bool is_short = type == ElementType::int16 || type == ElementType::uint16;
    return {is_short ? 0xFFFFU : 0xFFU,
            type == ElementType::int8    ? 0x80U
            : type == ElementType::int16 ? 0x8000U
                                         : 0U,
            type == ElementType::bool_ ? 1 : INT32_MAX};
}

template <typename T>
__device__ Some<T> from_short_integers(const ShortInteger &integer, const SomeBits<T> &bits) {
    Some<T> x;
#pragma unroll
    for (int k = 0; k < kStridedElements<T>; ++k)
        x.values[k] = static_cast<T>(
            min(static_cast<std::int32_t>(((bits.values[k] & integer.mask) ^ integer.sign) - integer.sign),
                integer.most));
    return x;
}

// The same of longer ones.
template <typename T>
__device__ Some<T> from_integers(int spare_bits, const SomeBits<T> &bits) {
    Some<T> x;
#pragma unroll
    for (int k = 0; k < kStridedElements<T>; ++k)
        x.values[k] = static_cast<T>(static_cast<std::int64_t>(bits.values[k] << spare_bits) >> spare_bits);
    return x;
}

// Of what is not loaded as bits.
template <typename T, bool truth, int inputs>
__device__ __noinline__ Some<T> load_converted(const void *data, ElementType type, const Places<T> places,
                                               int count) {
    switch (type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)                                   \
    case ElementType::id:                                                                                   \
        if constexpr ((!has_bits<ctype, T> || is_complex<ctype>) && (truth || is_loaded<ctype, T, inputs>)) \
            return load_each<T, truth, ctype>(data, places, count);                                         \
        break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return {};
}

// From T to a type of out. The sign of a NaN is kept, which conversions of floats to 16 bits lose.
template <typename To, typename T>
__device__ To stored_as(T value) {
    To result = convert<To>(value);
    if constexpr (is_storage_float<To> && std::is_same_v<T, float>)
        result.bits =
            static_cast<std::uint16_t>((result.bits & 0x7FFFU) | (bit_cast<std::uint32_t>(value) >> 16 & 0x8000U));
    return result;
}

template <typename T, typename To>
__device__ void store_each(void *data, const Places<T> &places, const Some<T> &values, int count) {
    if (are_whole<To>(data)) {
#pragma unroll
        for (int k = 0; k < kStridedElements<T>; ++k)
            if (k < count) static_cast<Whole<To> *>(data)[places.at[k]] = {{stored_as<To>(values.values[k])}};
    } else {
#pragma unroll
        for (int k = 0; k < kStridedElements<T>; ++k)
            if (k < count) static_cast<To *>(data)[places.at[k]] = stored_as<To>(values.values[k]);
    }
}

// Conversions that are long, or rare.
template <typename T>
__device__ __noinline__ void store_converted_each(void *data, ElementType type, Places<T> places, Some<T> values,
                                                  int count) {
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
        store_as<T>(data, type, places.at[0], values.values[0]);
#pragma unroll
        for (int i = 0; i + 1 < kStridedElements<T>; ++i) {
            places.at[i] = places.at[i + 1];
            values.values[i] = values.values[i + 1];
        }
    }
}

// Results have T, or a type that T serves; only copies, of one input, convert to another.
template <typename T, int inputs>
__device__ void store_some(void *data, ElementType type, const Places<T> &places, const Some<T> &values,
                           int count) {
    constexpr bool kConverts = inputs == 1;
    const auto store = [&](auto as) { store_each<T, decltype(as)>(data, places, values, count); };
    if (type == ElementTypeOf<T>::value) return store(T{});
    if (type == ElementType::bool_) return store(Bool{});
    if constexpr (std::is_same_v<T, float>) {
        if (type == ElementType::float16) return store(Float16{});
        if (type == ElementType::bfloat16) return store(BFloat16{});
        if (kConverts && type == ElementType::float64) return store(double{});
    } else if constexpr (std::is_integral_v<T> && (kConverts || is_wide<T>)) {
        if (type == ElementType::int8 || type == ElementType::uint8) return store(std::uint8_t{});
        if (type == ElementType::int16 || type == ElementType::uint16) return store(std::uint16_t{});
        using Other = std::conditional_t<sizeof(T) == 8, std::uint32_t,
                                         std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
        constexpr bool kIsLong = sizeof(Other) == 8;
        if (kConverts && (type == (kIsLong ? ElementType::int64 : ElementType::int32) ||
                          type == (kIsLong ? ElementType::uint64 : ElementType::uint32)))
            return store(Other{});
    } else if constexpr (kConverts && std::is_same_v<T, double>) {
        if (type == ElementType::float32) return store(float{});
    } else if constexpr (kConverts && is_complex<T>) {
        constexpr bool kIsShort = std::is_same_v<T, Complex64>;
        using Other = std::conditional_t<kIsShort, Complex128, Complex64>;
        if (type == (kIsShort ? ElementType::complex128 : ElementType::complex64)) return store(Other{});
    }
    store_converted_each<T>(data, type, places, values, count);
}

// Values as a narrower type holds them.
template <typename T>
__device__ __noinline__ Some<T> narrowed_to(ElementType type, Some<T> values) {
    if constexpr (std::is_same_v<T, float>) {
        const bool is_half = type == ElementType::float16;
#pragma unroll
        for (T &value : values.values)
            value = is_half ? to_float(stored_as<Float16>(value)) : to_float(stored_as<BFloat16>(value));
        return values;
    } else {
        return from_short_integers<T>(short_integer(type), bit_cast<SomeBits<T>>(values));
    }
}

}  // namespace cukern::cuda
