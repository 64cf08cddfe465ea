// Memory for arrays of NumPy that is kept and used again: large results, whose pages the system would else have to
// bring in each time, and pinned arrays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cukern {

enum class HostMemory : std::int8_t { plain, pinned };

// Memory to be given back by free_host_memory. Where there is none of its kind, or the limit is reached, it is the
// system's own, which is not kept; null: it has none left.
void *allocate_host_memory(HostMemory kind, std::size_t bytes) noexcept;
void free_host_memory(void *data) noexcept;

// The size that was asked for.
std::size_t host_memory_size(const void *data) noexcept;

// Whether it is what was asked for, and not the system's own.
bool is_from_pool(const void *data) noexcept;

// The most of either kind that is in use or kept, in bytes; 0: a quarter of the machine's memory.
void set_host_memory_limit(std::int64_t bytes) noexcept;

// Whether the system has refused pinned memory for what goes over the link, which then takes longer, and nobody
// has been told: true once in a process.
bool take_pinned_refusal() noexcept;

}  // namespace cukern
