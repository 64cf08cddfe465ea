// What any and all ask of the elements of a result.
//
// Idea: kinds of elements are looked for in parts, the first of which is short, until what is asked is decided.
#pragma once

#include <algorithm>
#include <cstdint>

#include "host/reduce_block.h"
#include "host/truths.h"

namespace cukern::host {

constexpr std::int64_t kFewTruths = 128;       // which may decide
constexpr std::int64_t kTruthBytes = 16384;    // that are looked at, unless those before them have decided
constexpr std::int64_t kLeastTruthBytes = 64;  // in a row, that are looked at where they lie

// Whether the kind that decides is among packed elements.
inline std::uint8_t kinds_of_run(const DecidingKind &among, Op asked, const char *from, int size,
                                 std::int64_t n) noexcept {
    std::uint8_t kinds = 0;
    for (std::int64_t at = 0; at < n && !is_decided(kinds, asked);) {
        const std::int64_t part = std::min(n - at, at == 0 ? kFewTruths : kTruthBytes / size);
        kinds |= among(from + at * size, part);
        at += part;
    }
    return kinds;
}

// The same of elements [begin, end) of one result. Short rows are packed, and those with steps.
[[gnu::noinline]] inline std::uint8_t kinds_of_range(const ReduceLaunch &launch, std::int64_t base,
                                                     std::int64_t begin, std::int64_t end) noexcept {
    const DecidingKind among = deciding_kind(launch.type, launch.op);
    const Cast copy = cast_of(launch.type, launch.type);
    const int size = size_of(launch.type);
    alignas(64) char packed[kPackedBytes];
    NdIterator it(launch.reduced_shape, launch.reduced_strides, launch.num_reduced, begin);
    std::uint8_t kinds = 0;
    for (std::int64_t at = begin; at < end && !is_decided(kinds, launch.op);) {
        std::int64_t n = std::min(it.run(), end - at);
        if (it.stride() == 1 && (n * size >= kLeastTruthBytes || n == end - at)) {
            kinds |= kinds_of_run(among, launch.op, element_at(launch, base + it.offset), size, n);
            it.advance(n);
        } else {
            n = std::min(end - at, at == begin ? kFewTruths : kPackedBytes / size);
            pack<true>(launch, it, base, copy, packed, size, n);
            kinds |= among(packed, n);
        }
        at += n;
    }
    return kinds;
}

// Whether it looks for the first element that is true, or false.
template <Op op, typename T>
inline constexpr bool finds_truth = std::is_same_v<T, Bool> && (op == Op::argmax || op == Op::argmin);

// Whether later elements change nothing any more.
template <Op op, typename T>
bool decides([[maybe_unused]] const typename Reducer<op, T>::A &found, [[maybe_unused]] Op asked) noexcept {
    if constexpr (op == Op::any)
        return is_decided(found, asked);
    else if constexpr (finds_truth<op, T>)
        return found.value == (op == Op::argmax);
    else
        return false;
}

}  // namespace cukern::host
