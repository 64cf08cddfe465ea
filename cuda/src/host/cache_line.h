// Where the lines of the cache begin: what is stored to whole lines is stored in the least time. And which copies
// seem to overlap.
#pragma once

#include <cstdint>

namespace cukern::host {

constexpr std::int64_t kLine = 64;  // bytes

// Bytes from an address to the next line.
inline std::int64_t bytes_to_line(const void *address) noexcept {
    return static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(address) % kLine);
}

// Whether a copy writes to what it reads within the next `close` bytes, by the last 12 bits of addresses, which
// are what processors compare at first: each load waits for a store then, unless the copy goes from the end to the
// beginning.
inline bool seems_to_overlap(const void *to, const void *from, std::uintptr_t close) noexcept {
    constexpr std::uintptr_t kComparedBytes = 4096;
    const std::uintptr_t distance = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
    return (distance - 1) % kComparedBytes < close;
}

}  // namespace cukern::host
