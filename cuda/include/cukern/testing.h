// Handles for the tests: injected failures, staging forced through its paths, a change of back-end.
// Nothing here is called in normal use.
#pragma once

#include <cstdint>

#include "cukern/backend.h"

namespace cukern::testing {

enum class Fault : int { allocate, copy, launch, event, stream, synchronize, part, pinned, choice };
constexpr int kNumFaults = 9;
constexpr const char *kFaultNames[kNumFaults] = {"allocate",    "copy", "launch", "event", "stream",
                                                 "synchronize", "part", "pinned", "choice"};

// The n-th call of this kind from now fails (n counts from 1; 0 disarms); of pinned memory the first n do.
void inject_fault(Fault fault, int n) noexcept;

// Counts a call; true when this one is to fail.
bool fails(Fault fault) noexcept;

// Calls of this kind since the process started.
std::int64_t calls(Fault fault) noexcept;

// What is held of the back-ends: blocks of device and pinned memory, streams, events.
enum class Resource : int { memory, stream, event };
constexpr int kNumResources = 3;
std::int64_t held(Resource resource) noexcept;

enum class StagingMode : int {
    automatic,  // what a user gets
    copy,       // through pinned slots and device blocks, on the host back-end too
};
struct StagingOptions {
    StagingMode mode = StagingMode::automatic;
    std::int64_t slot_bytes = 0;    // of a pinned slot; 0: the default
    std::int64_t small_bytes = -1;  // up to which an operand is read in place from pinned memory; -1: the default
    int workers = 0;                // that chunks go through at once; 0: the default
};
void set_staging(const StagingOptions &options) noexcept;

// Makes the other back-end the process's own; only where no work is in flight.
Status use_backend(Backend backend) noexcept;

// Blocks of all kinds of memory: in use by arrays and calls, and kept for reuse, in bytes.
void block_usage(std::int64_t *in_use, std::int64_t *cached) noexcept;

// Gives every cached block and lane back to the back-end.
void release_caches() noexcept;

}  // namespace cukern::testing
