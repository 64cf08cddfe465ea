// Moves between the threads of a warp, of values of any size.
#pragma once

#include <cstdint>
#include <cstring>

namespace cukern::cuda {

namespace detail {
template <typename A, typename Move>
__device__ A moved(A value, const Move &move) {
    constexpr int kWords = (sizeof(A) + 3) / 4;
    std::uint32_t words[kWords] = {};
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = move(words[i]);
    memcpy(&value, words, sizeof value);
    return value;
}
}  // namespace detail

constexpr std::uint32_t kAllLanes = 0xFFFFFFFF;

// What the thread `by` further on holds.
template <typename A>
__device__ A shuffled_down(A value, int by) {
    return detail::moved(value, [=](std::uint32_t word) { return __shfl_down_sync(kAllLanes, word, by); });
}

// What the thread `by` before holds.
template <typename A>
__device__ A shuffled_up(A value, int by) {
    return detail::moved(value, [=](std::uint32_t word) { return __shfl_up_sync(kAllLanes, word, by); });
}

// What the thread of this number in the warp holds.
template <typename A>
__device__ A shuffled_from(A value, int lane) {
    return detail::moved(value, [=](std::uint32_t word) { return __shfl_sync(kAllLanes, word, lane); });
}

// What the thread holds whose number differs in the bits of `by`.
template <typename A>
__device__ A shuffled_across(A value, int by) {
    return detail::moved(value, [=](std::uint32_t word) { return __shfl_xor_sync(kAllLanes, word, by); });
}

}  // namespace cukern::cuda
