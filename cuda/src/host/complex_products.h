// Products of packed complex numbers, by vectors of interleaved real and imaginary parts, as memory holds them.
//
// Idea: (a + bi)(c + di) takes (a, b) * (c, c) and (b, a) * (d, d): the real part is their difference, the
// imaginary one their sum. Parts only change places within a pair, where a compiler that separates real from
// imaginary parts moves them across the vector. Each product is rounded, as in the formulas.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "host/versions.h"

namespace cukern::host {

// The elements at these places, where those of b are counted after those of a.
template <int... places, typename Vector>
[[gnu::always_inline]] inline void shuffle(const Vector &a, const Vector &b, Vector *shuffled) noexcept {
#if defined(__clang__) || __GNUC__ >= 12
    *shuffled = __builtin_shufflevector(a, b, places...);
#else
    using Place = std::conditional_t<sizeof a[0] == 4, std::int32_t, std::int64_t>;
    typedef Place Places __attribute__((vector_size(sizeof(Vector))));
    *shuffled = __builtin_shuffle(a, b, Places{places...});
#endif
}

// The even elements of a, and the odd ones of b.
template <typename Vector, int... i>
[[gnu::always_inline]] inline void blend(const Vector &a, const Vector &b, Vector *blended,
                                         std::integer_sequence<int, i...>) noexcept {
    constexpr int kLength = sizeof...(i);
    shuffle<(i % 2 == 0 ? i : kLength + i)...>(a, b, blended);
}

template <typename Vector, int... i>
[[gnu::always_inline]] inline void multiply_pairs(const Vector &x, const Vector &y, Vector *product,
                                                  std::integer_sequence<int, i...> each) noexcept {
    Vector swapped;
    Vector real;
    Vector imag;
    shuffle<(i ^ 1)...>(x, x, &swapped);
    shuffle<(i & ~1)...>(y, y, &real);
    shuffle<(i | 1)...>(y, y, &imag);
    real *= x;
    imag *= swapped;
    blend(real - imag, real + imag, product, each);
}

// The real part is (a - b)(a + b), the imaginary one twice a b.
template <typename Vector, int... i>
[[gnu::always_inline]] inline void square_pairs(const Vector &x, Vector *square,
                                                std::integer_sequence<int, i...> each) noexcept {
    Vector swapped;
    Vector first;
    Vector second;
    shuffle<(i ^ 1)...>(x, x, &swapped);
    blend(x - swapped, x, &first, each);
    blend(x + swapped, swapped, &second, each);
    const Vector factors = {(i % 2 == 0 ? 1 : 2)...};
    *square = first * second * factors;
}

// Stands between a load and its uses. Without it the compiler loads a vector again for each use, which takes twice
// the time where vectors cross cache lines.
[[gnu::always_inline]] inline void compiler_barrier() noexcept { asm volatile("" : : : "memory"); }

// Calls compute(vector, index of its first number, bytes in use) for each vector of a, and stores what it makes of
// it. `bytes` is the size of a vector; the last one may be filled in part.
template <int bytes, typename T, typename Compute>
[[gnu::always_inline]] inline void for_each_vector(const T *a, T *out, std::int64_t n,
                                                   const Compute &compute) noexcept {
    using R = decltype(T::real);
    typedef R Vector __attribute__((vector_size(bytes)));  // NOLINT(modernize-use-using)
    constexpr auto kPairs = static_cast<std::int64_t>(bytes / sizeof(T));
    std::int64_t i = 0;
    for (; i + 2 * kPairs <= n;
         i += 2 * kPairs) {  // two at a time: a tenth to a fifth faster where they lie in L2
        Vector x;
        Vector y;
        std::memcpy(&x, a + i, sizeof x);
        std::memcpy(&y, a + i + kPairs, sizeof y);
        compiler_barrier();
        compute(&x, i, sizeof x);
        compute(&y, i + kPairs, sizeof y);
        std::memcpy(out + i, &x, sizeof x);
        std::memcpy(out + i + kPairs, &y, sizeof y);
    }
    while (i < n) {
        const std::int64_t pairs = std::min(kPairs, n - i);
        const std::size_t size = static_cast<std::size_t>(pairs) * sizeof(T);
        Vector x{};
        std::memcpy(&x, a + i, size);
        compiler_barrier();
        compute(&x, i, size);
        std::memcpy(out + i, &x, size);
        i += pairs;
    }
}

template <int bytes, typename T>
using EachPart = std::make_integer_sequence<int, bytes / static_cast<int>(sizeof(T::real))>;

template <int bytes, typename T>
[[gnu::always_inline]] inline void square_by(const T *a, T *out, std::int64_t n) noexcept {
    for_each_vector<bytes>(a, out, n,
                           [](auto *x, std::int64_t, std::size_t) { square_pairs(*x, x, EachPart<bytes, T>()); });
}

template <int bytes, typename T>
[[gnu::always_inline]] inline void multiply_by(const T *a, const T *b, T *out, std::int64_t n) noexcept {
    for_each_vector<bytes>(a, out, n, [b](auto *x, std::int64_t i, std::size_t size) {
        std::decay_t<decltype(*x)> y{};
        std::memcpy(&y, b + i, size);
        compiler_barrier();
        multiply_pairs(*x, y, x, EachPart<bytes, T>());
    });
}

template <int bytes, typename T>
[[gnu::always_inline]] inline void scale_by(const T *a, T factor, T *out, std::int64_t n) noexcept {
    T factors[bytes / sizeof(T)];
    for (T &copy : factors) copy = factor;
    for_each_vector<bytes>(a, out, n, [&factors](auto *x, std::int64_t, std::size_t) {
        std::decay_t<decltype(*x)> y;
        std::memcpy(&y, factors, bytes);
        multiply_pairs(*x, y, x, EachPart<bytes, T>());
    });
}

// Calls loop(constant of the bytes of a vector).
template <typename Loop>
void run_by_pairs(const Loop &loop) noexcept {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") != 0) {
        run_by_avx2([loop] { loop(std::integral_constant<int, 32>()); });
        return;
    }
#endif
    loop(std::integral_constant<int, 16>());
}

template <typename T>
void square_complex(const T *a, T *out, std::int64_t n) noexcept {
    run_by_pairs([a, out, n](auto bytes) { square_by<bytes.value>(a, out, n); });
}
template <typename T>
void multiply_complex(const T *a, const T *b, T *out, std::int64_t n) noexcept {
    run_by_pairs([a, b, out, n](auto bytes) { multiply_by<bytes.value>(a, b, out, n); });
}
template <typename T>
void scale_complex(const T *a, T factor, T *out, std::int64_t n) noexcept {
    run_by_pairs([a, factor, out, n](auto bytes) { scale_by<bytes.value>(a, factor, out, n); });
}

}  // namespace cukern::host
