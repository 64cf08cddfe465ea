// The largest or least of packed complex numbers, which are ordered by their real parts first.
//
// Idea: the largest real part is found by vectors, and whether any part is a NaN; then, of the elements with that
// real part, the largest imaginary one. The result is the first element with both: zeros have signs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

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
inline __m128 repeated(float x) noexcept { return _mm_set1_ps(x); }
inline __m128d repeated(double x) noexcept { return _mm_set1_pd(x); }
// `x` where the real parts beside it, or its own, are equal to those of `reals`, else `other`.
inline __m128 with_reals(__m128 x, __m128 reals, __m128 other) noexcept {
    const __m128 equal = _mm_cmpeq_ps(x, reals);
    const __m128 mask = _mm_shuffle_ps(equal, equal, _MM_SHUFFLE(2, 2, 0, 0));
    return _mm_or_ps(_mm_and_ps(mask, x), _mm_andnot_ps(mask, other));
}
inline __m128d with_reals(__m128d x, __m128d reals, __m128d other) noexcept {
    const __m128d equal = _mm_cmpeq_pd(x, reals);
    const __m128d mask = _mm_unpacklo_pd(equal, equal);
    return _mm_or_pd(_mm_and_pd(mask, x), _mm_andnot_pd(mask, other));
}
inline bool is_any(__m128 mask) noexcept { return _mm_movemask_ps(mask) != 0; }
inline bool is_any(__m128d mask) noexcept { return _mm_movemask_pd(mask) != 0; }

constexpr int kVectors = 4;  // at a time, so that none waits for the one before it

// The largest or least of the lanes that hold a part: 0, the real, or 1, the imaginary one.
template <bool is_least, typename R, typename V>
R extreme_of(const V (&vectors)[kVectors], int part) noexcept {
    constexpr int kLanes = 16 / sizeof(R);
    const V all =
        farther<is_least>(farther<is_least>(vectors[0], vectors[1]), farther<is_least>(vectors[2], vectors[3]));
    alignas(16) R lanes[kLanes];
    __builtin_memcpy(lanes, &all, sizeof lanes);
    R extreme = lanes[part];
    for (int k = part + 2; k < kLanes; k += 2)
        if (is_least ? lanes[k] < extreme : lanes[k] > extreme) extreme = lanes[k];
    return extreme;
}

// Calls take(k, vector) for each vector of whole blocks, the k-th of kVectors.
template <typename T, typename Take>
void for_each_vector(const T *elements, std::int64_t n, const Take &take) noexcept {
    using R = decltype(T::real);
    constexpr std::int64_t kLanes = 16 / sizeof(R);
    const R *at = &elements->real;
    for (const R *const end = at + 2 * n; at < end; at += kVectors * kLanes) {
#pragma GCC unroll 4
        for (int k = 0; k < kVectors; ++k) take(k, vector_at(at + k * kLanes));
    }
}

// The largest or least real part of whole blocks. False where a part is a NaN.
template <bool is_least, typename T, typename R = decltype(T::real)>
bool find_extreme(const T *elements, std::int64_t n, R *extreme) noexcept {
    const auto first = vector_at(&elements->real);
    decltype(vector_at(extreme)) each[kVectors] = {first, first, first, first};
    decltype(vector_at(extreme)) noted[kVectors] = {};
    for_each_vector(elements, n, [&](int k, auto x) {
        each[k] = farther<is_least>(each[k], x);
        noted[k] = note_nan(noted[k], x);
    });
    for (auto &own : noted)
        if (is_any(own)) return false;
    *extreme = extreme_of<is_least, R>(each, 0);
    return true;
}

// The largest or least imaginary part of those with a real part that one of them has.
template <bool is_least, typename T, typename R = decltype(T::real)>
R find_imaginary(const T *elements, std::int64_t n, R real) noexcept {
    constexpr R kLimit = is_least ? std::numeric_limits<R>::infinity() : -std::numeric_limits<R>::infinity();
    const auto reals = repeated(real);
    const auto limit = repeated(kLimit);
    decltype(repeated(real)) each[kVectors] = {limit, limit, limit, limit};
    for_each_vector(elements, n,
                    [&](int k, auto x) { each[k] = farther<is_least>(each[k], with_reals(x, reals, limit)); });
    return extreme_of<is_least, R>(each, 1);
}

// The largest or least of whole blocks. False where a part is a NaN.
template <bool is_least, typename T>
bool find_complex(const T *elements, std::int64_t n, T *result) noexcept {
    T wanted;
    if (!find_extreme<is_least>(elements, n, &wanted.real)) return false;
    wanted.imag = find_imaginary<is_least>(elements, n, wanted.real);
    const auto is_wanted = [=](const T &x) { return x.real == wanted.real && x.imag == wanted.imag; };
    for (const T *block = elements; block < elements + n; block += kComplexBlock) {
        int count = 0;  // by vectors
        for (std::int64_t i = 0; i < kComplexBlock; ++i) count += is_wanted(block[i]) ? 1 : 0;
        if (count == 0) continue;
        *result = *std::find_if(block, block + kComplexBlock, is_wanted);
        return true;
    }
    return false;
}
#else
template <bool is_least, typename T>
bool find_complex(const T *, std::int64_t, T *) noexcept {
    return false;
}
#endif

}  // namespace cukern::host
