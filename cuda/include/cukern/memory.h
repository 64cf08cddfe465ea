// Memory that arrays live in: its kinds, the pools behind them, and counts of what was done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cukern/status.h"

namespace cukern {

// `managed` moves between host and device by itself; `pinned` is host memory that devices reach over the link.
enum class MemoryKind : std::int8_t { device, managed, pinned };
constexpr int kNumMemoryKinds = 3;
constexpr const char *kMemoryKindNames[kNumMemoryKinds] = {"device", "managed", "pinned"};
constexpr const char *name_of(MemoryKind kind) { return kMemoryKindNames[static_cast<int>(kind)]; }
constexpr bool on_host(MemoryKind kind) { return kind != MemoryKind::device; }

// In bytes.
struct MemoryInfo {
    std::int64_t total = 0;   // of the device; for pinned memory, of the machine or the container, the smaller
    std::int64_t free = 0;    // of that, as the driver or the system tells
    std::int64_t in_use = 0;  // by arrays and calls of cukern
    std::int64_t cached = 0;  // kept by cukern for reuse
    std::int64_t limit = 0;   // of in_use + cached; 0: none
};
Status memory_info(MemoryKind kind, int device, MemoryInfo *info) noexcept;

// The most that cukern takes of a kind of memory on a device; 0 lifts the limit.
Status set_memory_limit(MemoryKind kind, int device, std::int64_t bytes) noexcept;

// Gives what is cached, of all kinds on all devices, back to the driver.
Status empty_cache() noexcept;

// Where an address is: in memory that CUDA knows, or else ordinary host memory.
struct PointerInfo {
    bool known = false;
    MemoryKind kind = MemoryKind::device;
    int device = 0;
};
Status pointer_info(const void *data, PointerInfo *info) noexcept;

// Since the process started. Work that no call asks for shows here.
struct Counters {
    std::int64_t launches = 0;
    std::int64_t synchronizations = 0;    // of the host with a stream, an event or a device
    std::int64_t host_to_device = 0;      // bytes
    std::int64_t device_to_host = 0;      // bytes
    std::int64_t driver_allocations = 0;  // of memory of any kind
    std::int64_t free_list_hits = 0;      // allocations served from what was cached
    std::int64_t calls_on_host = 0;       // of calls on arrays in host memory, those that the processor computed
    std::int64_t calls_on_device = 0;     // and those that were brought to the device
};
Counters counters() noexcept;

}  // namespace cukern
