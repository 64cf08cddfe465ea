// Neighbouring elements that are moved together.
#pragma once

#include <cstdint>

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

}  // namespace cukern::cuda
