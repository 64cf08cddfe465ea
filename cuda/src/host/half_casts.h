// float16 by the processor's own conversions (F16C), eight at a time.
//
// Idea: all values go by float32. Float16 numbers are float32 numbers; integers beyond 2**24, which are not, are
// infinite as float16; a double is rounded to odd, so that what its last bits were still decides where float16
// lies between two numbers (S. Boldo and G. Melquiond, Emulation of FMA and correctly rounded sums: proved
// algorithms using rounding to odd, IEEE Transactions on Computers 57, 2008).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "formulas/convert.cuh"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cukern::host {

#if defined(__x86_64__)
inline bool has_half_conversions() noexcept { return __builtin_cpu_supports("f16c") != 0; }

[[gnu::target("avx,f16c"), gnu::noinline]] inline void floats_to_halves(const float *from, Float16 *to,
                                                                        std::int64_t n) noexcept {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i *>(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), kNearest));
    if (i == n) return;
    float rest[8] = {};
    Float16 halves[8];
    std::copy(from + i, from + n, rest);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(halves), _mm256_cvtps_ph(_mm256_loadu_ps(rest), kNearest));
    std::copy_n(halves, n - i, to + i);
}

[[gnu::target("avx,f16c"), gnu::noinline]] inline void halves_to_floats(const Float16 *from, float *to,
                                                                        std::int64_t n) noexcept {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from + i))));
    if (i == n) return;
    Float16 rest[8] = {};
    float floats[8];
    std::copy(from + i, from + n, rest);
    _mm256_storeu_ps(floats, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(rest))));
    std::copy_n(floats, n - i, to + i);
}
#else
inline bool has_half_conversions() noexcept { return false; }
inline void floats_to_halves(const float *, Float16 *, std::int64_t) noexcept {}
inline void halves_to_floats(const Float16 *, float *, std::int64_t) noexcept {}
#endif

// A float32 that float16 rounds as it would `value`: the nearest one towards zero, odd unless it is exact.
inline float rounded_to_odd(double value) noexcept {
    const auto nearest = static_cast<float>(value);
    const auto exact = static_cast<double>(nearest);
    const std::uint32_t is_inexact = exact != value && value == value ? 1 : 0;
    const std::uint32_t is_beyond = std::abs(exact) > std::abs(value) ? 1 : 0;
    return bit_cast<float>((bit_cast<std::uint32_t>(nearest) - is_beyond) | is_inexact);
}

}  // namespace cukern::host
