// Versions of loops for newer processors than those that the build is for.
//
// A version is the same code, compiled for longer vectors: it computes the same values, if products are rounded
// before they are added. GCC 12 fuses complex products for AVX-512 in spite of -ffp-contract=off; AVX2 alone has
// nothing to fuse by (FMA is another extension), so that they have kNeverFused bits at most.
#pragma once

namespace cukern::host {

constexpr int kNeverFused = 256;

#if defined(__x86_64__)
template <typename Loop>
[[gnu::target("avx2"), gnu::flatten, gnu::noinline]] void run_by_avx2(const Loop &given) noexcept {
    const Loop loop = given;  // whose members no store changes
    loop();
}

template <typename Loop>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::flatten, gnu::noinline]] void run_by_avx512(
    const Loop &given) noexcept {
    const Loop loop = given;
    loop();
}

// Calls loop(), by the longest vectors of at most so many bits that the processor has.
template <int kMostBits = 512, typename Loop>
void run_by_vectors(const Loop &loop) noexcept {
    if (kMostBits >= 512 && __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
        __builtin_cpu_supports("avx512bw") != 0)
        run_by_avx512(loop);
    else if (__builtin_cpu_supports("avx2") != 0)
        run_by_avx2(loop);
    else
        loop();
}
#else
template <int kMostBits = 512, typename Loop>
void run_by_vectors(const Loop &loop) noexcept {
    loop();
}
#endif

}  // namespace cukern::host
