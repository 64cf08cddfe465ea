// What CUDA C++ has beyond C++, for kernels that are compiled for the processor: included before each of them.
//
// The threads of a block are fibers of one thread, run in turn: one goes on until it waits for others, so that a
// missing barrier shows as what was not written yet, and a barrier that not all reach as a deadlock, which ends
// the process with a message. Blocks run one after another.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

namespace emulation {

struct Index {
    unsigned x;
};
extern Index thread_index, block_index, block_size, grid_size;

using Kernel = void (*)(void *params);
// Runs a kernel, whose name is for messages and for counting. One grid at a time.
void run_grid(const char *name, unsigned blocks, unsigned threads, Kernel kernel, void *params) noexcept;

void wait_for_block() noexcept;
// What the thread of this number in the warp gives; its own value if there is none of that number.
std::uint32_t exchange(std::uint32_t value, int lane) noexcept;
int lane() noexcept;

}  // namespace emulation

#define __global__
#define __host__
#define __device__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __launch_bounds__(...)
#define __noinline__ __attribute__((noinline))

#define threadIdx emulation::thread_index
#define blockIdx emulation::block_index
#define blockDim emulation::block_size
#define gridDim emulation::grid_size

inline void __syncthreads() { emulation::wait_for_block(); }
inline void __threadfence() {}
inline void __syncwarp() { emulation::exchange(0, emulation::lane()); }

inline std::uint32_t __shfl_down_sync(std::uint32_t, std::uint32_t value, int by) {
    return emulation::exchange(value, emulation::lane() + by);
}
inline std::uint32_t __shfl_up_sync(std::uint32_t, std::uint32_t value, int by) {
    return emulation::exchange(value, emulation::lane() - by);
}
inline std::uint32_t __shfl_sync(std::uint32_t, std::uint32_t value, int lane) {
    return emulation::exchange(value, lane);
}
inline std::uint32_t __shfl_xor_sync(std::uint32_t, std::uint32_t value, int by) {
    return emulation::exchange(value, emulation::lane() ^ by);
}

inline std::uint32_t __umulhi(std::uint32_t a, std::uint32_t b) {
    return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
}

// Two short floats in a word; NVIDIA's functions for them round each result by itself, to the nearest even.
struct __half2 {
    std::uint32_t bits;
    static float widen(std::uint16_t bits) {
        _Float16 value;
        std::memcpy(&value, &bits, sizeof value);
        return static_cast<float>(value);
    }
    static std::uint16_t narrow(float value) {
        const auto rounded = static_cast<_Float16>(value);
        std::uint16_t bits;
        std::memcpy(&bits, &rounded, sizeof bits);
        return bits;
    }
};
struct __nv_bfloat162 {
    std::uint32_t bits;
    static float widen(std::uint16_t bits) {
        const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
        float value;
        std::memcpy(&value, &word, sizeof value);
        return value;
    }
    static std::uint16_t narrow(float value) {
        std::uint32_t word;
        std::memcpy(&word, &value, sizeof word);
        if (value != value) return 0x7FFF;
        return static_cast<std::uint16_t>((word + 0x7FFF + (word >> 16 & 1)) >> 16);
    }
};

namespace emulation {
template <typename Pair, typename F>
Pair of_each(Pair a, Pair b, F f) {
    const auto of = [&](int shift) -> std::uint32_t {
        return Pair::narrow(f(Pair::widen(static_cast<std::uint16_t>(a.bits >> shift)),
                              Pair::widen(static_cast<std::uint16_t>(b.bits >> shift))));
    };
    return {of(0) | of(16) << 16};
}
}  // namespace emulation

template <typename Pair>
Pair __hadd2_rn(Pair a, Pair b) {
    return emulation::of_each(a, b, [](float x, float y) { return x + y; });
}
template <typename Pair>
Pair __hsub2_rn(Pair a, Pair b) {
    return emulation::of_each(a, b, [](float x, float y) { return x - y; });
}
template <typename Pair>
Pair __hmul2_rn(Pair a, Pair b) {
    return emulation::of_each(a, b, [](float x, float y) { return x * y; });
}

// Comparisons and extremes of the bytes of words.
namespace emulation {
template <typename Byte, typename F>
unsigned of_bytes(unsigned a, unsigned b, F f) {
    unsigned result = 0;
    for (int shift = 0; shift < 32; shift += 8)
        result |= static_cast<unsigned>(
                      static_cast<unsigned char>(f(static_cast<Byte>(a >> shift), static_cast<Byte>(b >> shift))))
                  << shift;
    return result;
}
}  // namespace emulation
#define EMULATE_BYTES(id, Byte, expression)                                                \
    inline unsigned id(unsigned a, unsigned b) {                                           \
        return emulation::of_bytes<Byte>(a, b, [](Byte x, Byte y) { return expression; }); \
    }
EMULATE_BYTES(__vseteq4, unsigned char, x == y)
EMULATE_BYTES(__vsetne4, unsigned char, x != y)
EMULATE_BYTES(__vsetltu4, unsigned char, x < y)
EMULATE_BYTES(__vsetleu4, unsigned char, x <= y)
EMULATE_BYTES(__vsetgtu4, unsigned char, x > y)
EMULATE_BYTES(__vsetgeu4, unsigned char, x >= y)
EMULATE_BYTES(__vsetlts4, signed char, x < y)
EMULATE_BYTES(__vsetles4, signed char, x <= y)
EMULATE_BYTES(__vsetgts4, signed char, x > y)
EMULATE_BYTES(__vsetges4, signed char, x >= y)
EMULATE_BYTES(__vmaxu4, unsigned char, x > y ? x : y)
EMULATE_BYTES(__vminu4, unsigned char, x < y ? x : y)
EMULATE_BYTES(__vmaxs4, signed char, x > y ? x : y)
EMULATE_BYTES(__vmins4, signed char, x < y ? x : y)
#undef EMULATE_BYTES

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
    using C = std::common_type_t<A, B>;
    return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
    using C = std::common_type_t<A, B>;
    return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}
