#include "host/casts.h"

#include <algorithm>
#include <cstring>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "formulas/convert.cuh"
#include "host/cache_line.h"
#include "host/half_casts.h"
#include "host/versions.h"

namespace cukern::host {
namespace {

constexpr std::int64_t kBlock = 256;  // elements that are converted in two steps at a time

#if defined(__x86_64__)
__m128i vector_of(const float *from) noexcept { return _mm_cvttps_epi32(_mm_loadu_ps(from)); }
__m128i vector_of(const double *from) noexcept {
    return _mm_unpacklo_epi64(_mm_cvttpd_epi32(_mm_loadu_pd(from)), _mm_cvttpd_epi32(_mm_loadu_pd(from + 2)));
}
[[gnu::target("avx2")]] __m256i long_vector_of(const float *from) noexcept {
    return _mm256_cvttps_epi32(_mm256_loadu_ps(from));
}
[[gnu::target("avx2")]] __m256i long_vector_of(const double *from) noexcept {
    return _mm256_set_m128i(_mm256_cvttpd_epi32(_mm256_loadu_pd(from + 4)),
                            _mm256_cvttpd_epi32(_mm256_loadu_pd(from)));
}

constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();

// As many of a block as fill vectors; their number, or -1 if a result may stand for a value that int32 does not
// hold.
template <typename From>
[[gnu::target("avx2")]] std::int64_t to_int32_by_avx2(const From *from, std::int32_t *to,
                                                      std::int64_t n) noexcept {
    __m256i misfits = _mm256_setzero_si256();
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i vector = long_vector_of(from + i);
        misfits = _mm256_or_si256(misfits, _mm256_cmpeq_epi32(vector, _mm256_set1_epi32(kLeast)));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + i), vector);
    }
    return _mm256_movemask_epi8(misfits) == 0 ? i : -1;
}

template <typename From>
std::int64_t to_int32_by_sse2(const From *from, std::int32_t *to, std::int64_t n) noexcept {
    __m128i misfits = _mm_setzero_si128();
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const __m128i vector = vector_of(from + i);
        misfits = _mm_or_si128(misfits, _mm_cmpeq_epi32(vector, _mm_set1_epi32(kLeast)));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(to + i), vector);
    }
    return _mm_movemask_epi8(misfits) == 0 ? i : -1;
}

// Floats as 32-bit integers by the processor's vectors, which give the least integer for values out of range.
// False where that is among the results.
template <typename From>
[[gnu::noinline]] bool to_int32(const From *from, std::int32_t *to, std::int64_t n) noexcept {
    constexpr From kTop = static_cast<From>(2147483648.0);  // 2**31
    const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
    std::int64_t i = has_avx2 ? to_int32_by_avx2(from, to, n) : to_int32_by_sse2(from, to, n);
    if (i < 0) return false;
    for (; i < n; ++i) {
        if (!(from[i] > -kTop && from[i] < kTop)) return false;
        to[i] = static_cast<std::int32_t>(from[i]);
    }
    return true;
}

// Eight 32-bit integers, of which shorter ones keep the bytes that `mask` leaves; notes those that may not hold.
template <typename From>
[[gnu::target("avx2")]] __m256i masked_vector_of(const From *from, __m256i mask, __m256i *misfits) noexcept {
    const __m256i vector = long_vector_of(from);
    *misfits = _mm256_or_si256(*misfits, _mm256_cmpeq_epi32(vector, _mm256_set1_epi32(kLeast)));
    return _mm256_and_si256(vector, mask);
}

// Of whole vectors; their number, or -1 as above.
template <typename From, typename To>
[[gnu::target("avx2")]] std::int64_t to_short_by_avx2(const From *from, To *to, std::int64_t n) noexcept {
    __m256i misfits = _mm256_setzero_si256();
    const __m256i mask = _mm256_set1_epi32(sizeof(To) == 1 ? 0xFF : 0xFFFF);
    constexpr int kStep = 32 / sizeof(To);
    std::int64_t i = 0;
    for (; i + kStep <= n; i += kStep) {
        const From *const at = from + i;
        const __m256i first =
            _mm256_packus_epi32(masked_vector_of(at, mask, &misfits), masked_vector_of(at + 8, mask, &misfits));
        __m256i packed;
        if constexpr (sizeof(To) == 2) {
            packed = _mm256_permute4x64_epi64(first, 0xD8);
        } else {
            const __m256i second = _mm256_packus_epi32(masked_vector_of(at + 16, mask, &misfits),
                                                       masked_vector_of(at + 24, mask, &misfits));
            const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), order);
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + i), packed);
    }
    return _mm256_movemask_epi8(misfits) == 0 ? i : -1;
}

// Floats as integers of one or two bytes; false where a result may stand for a value that int32 does not hold.
template <typename From, typename To>
[[gnu::noinline]] bool to_short(const From *from, To *to, std::int64_t n) noexcept {
    constexpr From kTop = static_cast<From>(2147483648.0);  // 2**31
    std::int64_t i = to_short_by_avx2(from, to, n);
    if (i < 0) return false;
    for (; i < n; ++i) {
        if (!(from[i] > -kTop && from[i] < kTop)) return false;
        to[i] = static_cast<To>(static_cast<std::int32_t>(from[i]));
    }
    return true;
}
bool has_short_vectors() noexcept { return __builtin_cpu_supports("avx2") != 0; }

// The processor's own conversion gives the least integer for values out of range, as convert() does.
std::int64_t as_int64(float value) noexcept { return _mm_cvttss_si64(_mm_set_ss(value)); }
std::int64_t as_int64(double value) noexcept { return _mm_cvttsd_si64(_mm_set_sd(value)); }
#else
template <typename From>
bool to_int32(const From *, std::int32_t *, std::int64_t) noexcept {
    return false;
}
template <typename From, typename To>
bool to_short(const From *, To *, std::int64_t) noexcept {
    return false;
}
bool has_short_vectors() noexcept { return false; }
template <typename From>
std::int64_t as_int64(From value) noexcept {
    return convert<std::int64_t>(value);
}
#endif

// Floats, or the real parts of complex numbers, as integers of fewer than 64 bits: what 32 bits hold needs no way
// by 64.
template <typename From, typename To>
void cast_to_short(const From *source, To *target, std::int64_t n) noexcept {
    const bool is_in_place = static_cast<const void *>(source) == target;
    const bool is_direct = !is_in_place && sizeof(To) < 4 && has_short_vectors();
    std::int32_t block[kBlock];
    for (std::int64_t at = 0; at < n; at += kBlock) {
        const std::int64_t part = std::min(kBlock, n - at);
        bool has_all = false;
        if constexpr (is_complex<From>) {
            decltype(From::real) reals[kBlock];
            for (std::int64_t i = 0; i < part; ++i) reals[i] = source[at + i].real;
            if constexpr (sizeof(To) < 4)
                if (is_direct && to_short(reals, target + at, part)) continue;
            has_all = to_int32(reals, block, part);
        } else if (sizeof(To) == 4 && !is_in_place) {
            // Directly into the target; not in place, since a block that fails is read again.
            if (to_int32(source + at, reinterpret_cast<std::int32_t *>(target + at), part)) continue;
        } else {
            if constexpr (sizeof(To) < 4)
                if (is_direct && to_short(source + at, target + at, part)) continue;
            has_all = to_int32(source + at, block, part);
        }
        if (has_all)
            for (std::int64_t i = 0; i < part; ++i) target[at + i] = static_cast<To>(block[i]);
        else
            for (std::int64_t i = at; i < at + part; ++i) target[i] = convert<To>(source[i]);
    }
}

template <typename From>
std::uint64_t as_uint64(From value) noexcept {
    constexpr From kTop = static_cast<From>(9223372036854775808.0);  // 2**63
    if (value < kTop) return static_cast<std::uint64_t>(as_int64(value));
    return (value < 2 * kTop ? static_cast<std::uint64_t>(as_int64(value - kTop)) : 0) + (std::uint64_t{1} << 63);
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
    if constexpr (std::is_same_v<From, Bool>)  // loops over a minimum vectorise
        return converted<To>(std::min<std::uint8_t>(value.byte, 1));
    else if constexpr (sizeof(From) == 1 && std::is_same_v<To, Float16>)
        return byte_as_float16(value);
    else if constexpr (std::is_integral_v<From> && sizeof(From) == 8 && std::is_same_v<To, double>)
        return long_as_double(value);
    else if constexpr (is_complex<From> && std::is_integral_v<To>)
        return converted<To>(value.real);
    else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, std::int64_t>)
        return as_int64(value);
    else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, std::uint64_t>)
        return as_uint64(value);
    else
        return convert<To>(value);
}

template <typename From, typename To>
constexpr bool is_to_short =
    (std::is_floating_point_v<From> || is_complex<From>) && std::is_integral_v<To> && sizeof(To) < 8;

// In two steps, each of which vectorises.
template <typename From, typename To>
void cast_to_complex(const From *source, To *target, std::int64_t n) noexcept {
    using Part = decltype(To::real);
    Part block[kBlock];
    for (std::int64_t at = 0; at < n; at += kBlock) {
        const std::int64_t part = std::min(kBlock, n - at);
        for (std::int64_t i = 0; i < part; ++i) block[i] = converted<Part>(source[at + i]);
        for (std::int64_t i = 0; i < part; ++i) target[at + i] = {block[i], 0};
    }
}

// Elements a stride apart, several at a time: of a loop of a few instructions its place in memory decides how fast
// it is. Bools as they are.
template <typename T>
[[gnu::noinline]] void move_apart(const T *from, std::int64_t from_stride, T *to, std::int64_t to_stride,
                                  std::int64_t n) noexcept {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
}

template <typename To>
constexpr bool is_single = std::is_same_v<To, float> || std::is_same_v<To, Complex64>;

// What float16 is made of: see half_casts.h. Bytes have loops that vectorise.
template <typename From>
float as_float_for_half(From value) noexcept {
    if constexpr (is_complex<From>)
        return as_float_for_half(value.real);
    else if constexpr (std::is_same_v<From, double>)
        return rounded_to_odd(value);
    else
        return converted<float>(value);
}

template <typename From, typename To>
constexpr bool is_by_float = (std::is_same_v<To, Float16> && sizeof(From) > 1 && !std::is_same_v<From, Float16>) ||
                             (std::is_same_v<From, Float16> && !std::is_same_v<To, Float16>);

template <typename From, typename To>
void cast_packed(const From *source, To *target, std::int64_t n) noexcept;

template <typename From, typename To>
void cast_by_float(const From *source, To *target, std::int64_t n) noexcept {
    if constexpr (std::is_same_v<From, float>) return floats_to_halves(source, target, n);
    if constexpr (std::is_same_v<To, float>) return halves_to_floats(source, target, n);
    float block[kBlock];
    for (std::int64_t at = 0; at < n; at += kBlock) {
        const std::int64_t part = std::min(kBlock, n - at);
        if constexpr (std::is_same_v<To, Float16>) {
            run_by_vectors<256>([&block, from = source + at, part] {
                for (std::int64_t i = 0; i < part; ++i) block[i] = as_float_for_half(from[i]);
            });
            floats_to_halves(block, target + at, part);
        } else {
            halves_to_floats(source + at, block, part);
            cast_packed(block, target + at, part);
        }
    }
}

constexpr std::int64_t kLeastAligned = 256;  // elements for which it pays to begin at a cache line

template <typename From, typename To>
void cast_packed(const From *source, To *target, std::int64_t n) noexcept {
    if constexpr (std::is_same_v<From, To> && !std::is_same_v<From, Bool>) {
        std::memmove(target, source, static_cast<std::size_t>(n) * sizeof(To));
        return;
    }
    if constexpr (is_by_float<From, To>)
        if (has_half_conversions()) return cast_by_float(source, target, n);
    // Vectors of 512 bits gain little, and there are 225 casts; but AVX2 lacks these, or has slow ones only.
    constexpr bool kNarrows = std::is_integral_v<To> && sizeof(To) <= 4;
    constexpr bool needs_avx512 = std::is_integral_v<From> && sizeof(From) == 8 && (is_single<To> || kNarrows);
    const auto run = [](const From *from, To *to, std::int64_t count) {
        run_by_vectors<needs_avx512 ? 512 : 256>([from, to, count] {
            if constexpr (is_to_short<From, To>)
                cast_to_short(from, to, count);
            else if constexpr (std::is_integral_v<From> && sizeof(From) == 8 && is_complex<To>)
                cast_to_complex(from, to, count);
            else
                for (std::int64_t i = 0; i < count; ++i) to[i] = converted<To>(from[i]);
        });
    };
    // Vectors that lie across two cache lines take longer to store: what comes before the first line is apart.
    // Not in place, which is told by equal addresses.
    std::int64_t head = 0;
    if constexpr (!is_complex<To>)
        if (n >= kLeastAligned && static_cast<const void *>(source) != target)
            head = bytes_to_line(target) / static_cast<std::int64_t>(sizeof(To));
    if (head > 0) run(source, target, head);
    run(source + head, target + head, n - head);
}

// Whether one element is converted by an instruction or two, so that vectors save less than packing costs.
template <typename From, typename To>
constexpr bool is_quick =
    std::is_arithmetic_v<From> && std::is_floating_point_v<To> && !std::is_same_v<From, std::uint64_t>;

// The same of integers that become long ones: even packed ones gain little.
template <typename From, typename To>
constexpr bool is_widening = std::is_integral_v<From> && std::is_integral_v<To> && sizeof(To) == 8;

// Elements that are not packed are packed by blocks, since packed ones are converted by vectors; not where that
// takes two copies of what is quick, or where the processor has no vectors for float16.
template <typename From, typename To>
void cast(const void *from, std::int64_t from_stride, void *to, std::int64_t to_stride, std::int64_t n) noexcept {
    const auto *source = static_cast<const From *>(from);
    auto *target = static_cast<To *>(to);
    if (from_stride == 1 && to_stride == 1) return cast_packed(source, target, n);
    if (from_stride == 0 && to_stride == 1) {
        std::fill_n(target, n, converted<To>(*source));
        return;
    }
    if constexpr (std::is_same_v<From, To> && !std::is_same_v<From, Bool>)
        return move_apart(source, from_stride, target, to_stride, n);
    const bool is_packed_twice = from_stride != 1 && to_stride != 1;
    const bool has_vectors = !std::is_same_v<From, Float16> || has_half_conversions();
    if (!has_vectors || is_widening<From, To> || (is_quick<From, To> && is_packed_twice)) {
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < n; ++i) target[i * to_stride] = converted<To>(source[i * from_stride]);
        return;
    }
    From sources[kBlock];
    To targets[kBlock];
    for (std::int64_t at = 0; at < n; at += kBlock) {
        const std::int64_t part = std::min(kBlock, n - at);
        const From *packed = source + at;
        if (from_stride != 1) {
            move_apart(source + at * from_stride, from_stride, sources, 1, part);
            packed = sources;
        }
        if (to_stride == 1) {
            cast_packed(packed, target + at, part);
        } else {
            cast_packed(packed, targets, part);
            move_apart(targets, 1, target + at * to_stride, to_stride, part);
        }
    }
}

// Signed integers have the casts of unsigned ones where these give the same bits: as targets, but for floats that
// become 64 bits, and as sources of targets that are no longer than they are.
template <typename T, bool is_unsigned>
struct MaybeUnsigned {
    using type = T;
};
template <typename T>
struct MaybeUnsigned<T, true> {
    using type = std::make_unsigned_t<T>;
};

template <typename From, typename To>
constexpr Cast shared_cast() {
    constexpr bool kFromInteger = std::is_integral_v<From> || std::is_same_v<From, Bool>;
    constexpr bool kToInteger = std::is_integral_v<To>;
    using OwnTo = typename MaybeUnsigned<To, kToInteger && (sizeof(To) < 8 || kFromInteger)>::type;
    constexpr bool kFromBits = std::is_integral_v<From> && kToInteger && sizeof(To) <= sizeof(From);
    return cast<typename MaybeUnsigned<From, kFromBits>::type, OwnTo>;
}

template <typename From>
constexpr Cast kCastsFrom[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) shared_cast<From, ctype>(),
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
