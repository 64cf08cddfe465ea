// The largest or least of packed complex numbers, which are ordered by their real parts first.
//
// Idea: the largest real part is found by vectors, and whether any part is a NaN. Only blocks with that real part
// are joined element by element.
#pragma once

#include <cstdint>

#include "formulas/convert.cuh"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cukern::host {

constexpr std::int64_t kComplexBlock = 64;

#if defined(__x86_64__)
inline __m128 vector_at(const float *from) noexcept { return _mm_loadu_ps(from); }
inline __m128d vector_at(const double *from) noexcept { return _mm_loadu_pd(from); }
template <bool is_least>
__m128 farther(__m128 a, __m128 b) noexcept {
    return is_least ? _mm_min_ps(a, b) : _mm_max_ps(a, b);
}
template <bool is_least>
__m128d farther(__m128d a, __m128d b) noexcept {
    return is_least ? _mm_min_pd(a, b) : _mm_max_pd(a, b);
}
inline __m128 note_nan(__m128 noted, __m128 x) noexcept { return _mm_or_ps(noted, _mm_cmpunord_ps(x, x)); }
inline __m128d note_nan(__m128d noted, __m128d x) noexcept { return _mm_or_pd(noted, _mm_cmpunord_pd(x, x)); }
inline bool is_any(__m128 mask) noexcept { return _mm_movemask_ps(mask) != 0; }
inline bool is_any(__m128d mask) noexcept { return _mm_movemask_pd(mask) != 0; }

// The largest or least real part of whole blocks. False where a part is a NaN.
template <bool is_least, typename T, typename R = decltype(T::real)>
bool find_extreme(const T *elements, std::int64_t n, R *extreme) noexcept {
    constexpr std::int64_t kLanes = 16 / sizeof(R);
    constexpr int kVectors = 4;  // at a time, so that none waits for the one before it
    const R *at = &elements->real;
    auto most = vector_at(at);
    decltype(most) each[kVectors] = {most, most, most, most};
    decltype(most) noted[kVectors] = {};
    for (const R *const end = at + 2 * n; at < end; at += kVectors * kLanes) {
#pragma GCC unroll 4
        for (int k = 0; k < kVectors; ++k) {
            const auto x = vector_at(at + k * kLanes);
            each[k] = farther<is_least>(each[k], x);
            noted[k] = note_nan(noted[k], x);
        }
    }
    most = farther<is_least>(farther<is_least>(each[0], each[1]), farther<is_least>(each[2], each[3]));
    for (auto &own : noted)
        if (is_any(own)) return false;
    alignas(16) R lanes[kLanes];
    __builtin_memcpy(lanes, &most, sizeof lanes);
    *extreme = lanes[0];  // real and imaginary parts take turns
    for (std::int64_t k = 2; k < kLanes; k += 2)
        if (is_least ? lanes[k] < *extreme : lanes[k] > *extreme) *extreme = lanes[k];
    return true;
}
#else
template <bool is_least, typename T, typename R>
bool find_extreme(const T *, std::int64_t, R *) noexcept {
    return false;
}
#endif

// Whether an element of a block has this real part.
template <typename T, typename R>
bool has_real(const T *block, R real) noexcept {
    int count = 0;
    for (std::int64_t i = 0; i < kComplexBlock; ++i) count += block[i].real == real ? 1 : 0;
    return count != 0;
}

}  // namespace cukern::host
