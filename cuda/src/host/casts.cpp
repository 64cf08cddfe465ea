#include "host/casts.h"

#include <algorithm>
#include <limits>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "formulas/convert.cuh"

namespace cukern::host {
namespace {

#if defined(__x86_64__)
__m128i vector_of(const float *from) noexcept { return _mm_cvttps_epi32(_mm_loadu_ps(from)); }
__m128i vector_of(const double *from) noexcept {
    return _mm_unpacklo_epi64(_mm_cvttpd_epi32(_mm_loadu_pd(from)), _mm_cvttpd_epi32(_mm_loadu_pd(from + 2)));
}

// Floats as 32-bit integers by the processor's vectors, which give the least integer for what none holds. False
// where that is among them.
template <typename From>
bool to_int32(const From *from, std::int32_t *to, std::int64_t n) noexcept {
    constexpr From kTop = static_cast<From>(2147483648.0);  // 2**31
    const __m128i least = _mm_set1_epi32(std::numeric_limits<std::int32_t>::min());
    __m128i none = _mm_setzero_si128();
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const __m128i vector = vector_of(from + i);
        none = _mm_or_si128(none, _mm_cmpeq_epi32(vector, least));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(to + i), vector);
    }
    for (; i < n; ++i) {
        if (!(from[i] > -kTop && from[i] < kTop)) return false;
        to[i] = static_cast<std::int32_t>(from[i]);
    }
    return _mm_movemask_epi8(none) == 0;
}
#else
template <typename From>
bool to_int32(const From *, std::int32_t *, std::int64_t) noexcept {
    return false;
}
#endif

// Floats as integers of fewer than 64 bits: what 32 bits hold needs no way by 64.
template <typename From, typename To>
void cast_to_short(const From *source, To *target, std::int64_t n) noexcept {
    constexpr std::int64_t kBlock = 256;
    std::int32_t block[kBlock];
    for (std::int64_t at = 0; at < n; at += kBlock) {
        const std::int64_t part = std::min(kBlock, n - at);
        if (to_int32(source + at, block, part))  // not into the target, which may be the source's memory
            for (std::int64_t i = 0; i < part; ++i) target[at + i] = static_cast<To>(block[i]);
        else
            for (std::int64_t i = at; i < at + part; ++i) target[i] = convert<To>(source[i]);
    }
}

// An integer of a byte, which float16 holds exactly: the bits of a float, moved, so that loops vectorise.
template <typename From>
Float16 byte_as_float16(From value) noexcept {
    const auto number = static_cast<float>(convert<std::int32_t>(value));
    const auto bits = bit_cast<std::uint32_t>(number);
    const std::uint32_t moved = (bits >> 13 & 0x3FFFFU) - (112U << 10);  // the exponent's bias is 15, not 127
    const std::uint32_t is_set = 0U - static_cast<std::uint32_t>(number != 0);
    return {static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | (moved & is_set))};
}

// A 64-bit integer, by halves that take the place of mantissas, so that loops vectorise: both differences are
// exact, and their sum is rounded once.
template <typename From>
double long_as_double(From value) noexcept {
    constexpr std::uint64_t kSign = std::is_signed_v<From> ? std::uint64_t{1} << 31 : 0;
    constexpr double kHigh = 0x1p84 + 0x1p52 + (std::is_signed_v<From> ? 0x1p63 : 0.0);
    const auto bits = static_cast<std::uint64_t>(value);
    const auto high = bit_cast<double>((bits >> 32) ^ (0x4530000000000000U | kSign));  // times 2**32, and 2**84
    const auto low = bit_cast<double>((bits & 0xFFFFFFFFU) | 0x4330000000000000U);     // and 2**52
    return high - kHigh + low;
}

template <typename To, typename From>
To converted(From value) noexcept {
    if constexpr (sizeof(From) == 1 && std::is_same_v<To, Float16>)
        return byte_as_float16(value);
    else if constexpr (std::is_integral_v<From> && sizeof(From) == 8 && std::is_same_v<To, double>)
        return long_as_double(value);
    else
        return convert<To>(value);
}

template <typename From, typename To>
constexpr bool is_to_short = std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 8;

template <typename From, typename To>
void cast(const void *from, std::int64_t from_stride, void *to, std::int64_t to_stride, std::int64_t n) noexcept {
    const auto *source = static_cast<const From *>(from);
    auto *target = static_cast<To *>(to);
    if constexpr (is_to_short<From, To>)
        if (from_stride == 1 && to_stride == 1) return cast_to_short(source, target, n);
    if (from_stride == 1 && to_stride == 1)
        for (std::int64_t i = 0; i < n; ++i) target[i] = converted<To>(source[i]);
    else
        for (std::int64_t i = 0; i < n; ++i) target[i * to_stride] = converted<To>(source[i * from_stride]);
}

template <typename From>
constexpr Cast kCastsFrom[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) cast<From, ctype>,
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
};

constexpr const Cast *kCasts[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) kCastsFrom<ctype>,
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
};

}  // namespace

Cast cast_of(ElementType from, ElementType to) noexcept {
    return kCasts[static_cast<int>(from)][static_cast<int>(to)];
}

}  // namespace cukern::host
