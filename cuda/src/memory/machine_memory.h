// The memory of the machine, or of the container that the process runs in.
#pragma once

#include <cstdint>

namespace cukern {

// In bytes: the smaller of what the system and the container's limit (cgroup version 1 or 2) say; 0 when unknown.
void machine_memory(std::int64_t *free, std::int64_t *total) noexcept;

}  // namespace cukern
