// Neighbouring elements that are moved together.
#pragma once

#include <cstdint>
#include <cstring>

namespace cukern::cuda {

template <typename T, int size>
struct alignas(size * sizeof(T)) Elements {
    static constexpr int kSize = size;
    T values[size];
};

// The widest that a thread moves at once.
template <typename T>
using Vector = Elements<T, 16 / static_cast<int>(sizeof(T))>;

// The bits of a vector while it waits: elements of less than a word take a register each.
using Words = Elements<std::uint32_t, 4>;

// The aligned one that `at` points into. From the pointer, so that the compiler sees that it is of global memory:
// from a number it makes generic loads, which take longer.
__device__ inline const Words *vector_around(const void *at) {
    return reinterpret_cast<const Words *>(static_cast<const char *>(at) -
                                           reinterpret_cast<std::uintptr_t>(at) % sizeof(Words));
}

// Takes the first elements of a vector, and moves the others forward.
template <typename E, typename V>
__device__ E take_front(V &vector) {
    constexpr int kBytes = sizeof(E);
    E front;
    memcpy(&front, &vector, kBytes);
    if constexpr (kBytes % 4 == 0) {
        constexpr int kWords = kBytes / 4;
#pragma unroll
        for (int i = 0; i + kWords < V::kSize; ++i) vector.values[i] = vector.values[i + kWords];
    } else {
#pragma unroll
        for (int i = 0; i < V::kSize; ++i) {
            vector.values[i] >>= 8 * kBytes;
            if (i + 1 < V::kSize) vector.values[i] |= vector.values[i + 1] << (32 - 8 * kBytes);
        }
    }
    return front;
}

// Moves the elements of a vector forward, and puts some behind them.
template <typename E, typename V>
__device__ void put_back(V &vector, E elements) {
    take_front<E>(vector);
    memcpy(reinterpret_cast<char *>(&vector) + sizeof vector - sizeof elements, &elements, sizeof elements);
}

}  // namespace cukern::cuda
