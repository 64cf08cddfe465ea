// Where the lines of the cache begin: what is stored to whole lines is stored in the least time.
#pragma once

#include <cstdint>

namespace cukern::host {

constexpr std::int64_t kLine = 64;  // bytes

// Bytes from an address to the next line.
inline std::int64_t bytes_to_line(const void *address) noexcept {
    return static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(address) % kLine);
}

}  // namespace cukern::host
