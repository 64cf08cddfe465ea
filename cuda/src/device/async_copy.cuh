// Copies from global to shared memory that go on while the thread works; before compute capability 8.0, which
// brought them, the thread waits for each.
#pragma once

#include <cstdint>

namespace cukern::cuda {

using SharedAddress = std::uint32_t;

// The compiler would work an address out anew for each use, which takes it to a slow register.
__device__ __forceinline__ SharedAddress shared_address(const void *shared) {
    auto address = static_cast<SharedAddress>(__cvta_generic_to_shared(shared));
    asm volatile("" : "+r"(address));
    return address;
}

// Copies so many bytes, or writes zeros without reading.
template <int bytes>
__device__ __forceinline__ void copy_or_clear(SharedAddress to, const void *from, bool copies) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "what the instruction copies");
#if __CUDA_ARCH__ >= 800
    if constexpr (bytes == 16)
        asm volatile(
            "{ .reg .pred p; setp.eq.s32 p, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, p; }" ::"r"(to),
            "l"(from), "r"(static_cast<int>(copies)));
    else
        asm volatile(
            "{ .reg .pred p; setp.eq.s32 p, %3, 0; cp.async.ca.shared.global [%0], [%1], %2, p; }" ::"r"(to),
            "l"(from), "n"(bytes), "r"(static_cast<int>(copies)));
#else
#pragma unroll
    for (int i = 0; i < bytes / 4; ++i)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + i * 4),
                     "r"(copies ? static_cast<const std::uint32_t *>(from)[i] : 0)
                     : "memory");
#endif
}

template <int bytes>
__device__ __forceinline__ void copy(SharedAddress to, const void *from) {
#if __CUDA_ARCH__ >= 800
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(bytes));
#else
    copy_or_clear<bytes>(to, from, true);
#endif
}

// Copies 16 bytes, or does nothing; without a branch.
__device__ __forceinline__ void copy_vector_if(SharedAddress to, const void *from, bool copies) {
#if __CUDA_ARCH__ >= 800
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(to),
                 "l"(from), "r"(static_cast<int>(copies)));
#else
    if (copies) copy<16>(to, from);
#endif
}

// Ends a group of copies.
__device__ __forceinline__ void end_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most so many groups are on their way.
template <int groups>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}

}  // namespace cukern::cuda
