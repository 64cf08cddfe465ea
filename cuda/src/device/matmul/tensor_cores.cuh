// Products of float64 on the tensor cores, which round as fma does.
//
// A warp multiplies 16 x 8 of a by 8 x 8 of b. Its lanes hold them spread as the instruction wants it (PTX ISA,
// matrix fragments of mma.m16n8k8 and m8n8k4): of a the rows +0 and +8 for k, then for k + 4; of b k and k + 4; of
// c two columns at row +0, then at row +8, where row and column of b are lane / 4, k is lane % 4 and c's column 2
// * (lane % 4).
#pragma once

#include <type_traits>

namespace cukern::cuda {

// From compute capability 8.0 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <typename T>
constexpr bool uses_tensor_cores = std::is_same_v<T, double>;
#else
template <typename T>
constexpr bool uses_tensor_cores = false;
#endif

// Compute capability 9.0 does it in one instruction, at twice the rate of the 8 x 8 x 4 that 8.0 has, of which it
// takes four.
__device__ __forceinline__ void multiply_on_tensor_cores(const double (&a)[4], const double (&b)[2], double *c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(c[half * 2]), "+d"(c[half * 2 + 1])
                : "d"(a[k * 2 + half]), "d"(b[k]));
#endif
}

}  // namespace cukern::cuda
