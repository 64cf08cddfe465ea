// Lanes: what one call with host operands needs for itself, made once and kept. Calls from several threads
// each take a lane of their own.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "memory/block_pool.h"
#include "runtime/runtime.h"

namespace cukern {

constexpr int kSlots = 2;  // one is filled while the other is in flight
constexpr std::size_t kSlotBytes = std::size_t{4} << 20;
constexpr std::size_t kArenaBytes = std::size_t{256} << 10;  // of pinned memory that kernels read in place

struct StagingLane {
    int device = 0;
    OwnedStream *stream = nullptr;
    void *slots[kSlots] = {};
    bool are_pageable[kSlots] = {};  // where the system refuses pinned memory
    Event events[kSlots] = {};
    bool in_flight[kSlots] = {};  // an event of the slot is recorded and not yet waited for
    void *arena = nullptr;        // none where pinned memory is refused
};

class StagingLanes {
public:
    StagingLanes(Runtime &runtime, BlockPool &blocks) noexcept : runtime_(runtime), blocks_(blocks) {}

    // `device` must be current. A lane's slots are made by prepare_slots, since small calls do without.
    Status acquire(int device, StagingLane **out) noexcept;
    Status prepare_slots(StagingLane &lane) noexcept;
    void release(StagingLane *lane) noexcept;

    // What was enqueued of a slot so far: noted, and waited for before the slot is used again.
    Status record_slot(StagingLane &lane, int slot, Stream stream) noexcept;
    Status wait_for_slot(StagingLane &lane, int slot) noexcept;
    // After a failure half-way: the lane's memory must not be used again under work that is still in flight.
    void wait_for_all(StagingLane &lane, Stream stream) noexcept;
    bool trim() noexcept;  // whether there was any

private:
    Status allocate(std::size_t bytes, void **out) noexcept;
    Status allocate_slot(StagingLane &lane, int slot) noexcept;
    void destroy(StagingLane *lane) noexcept;

    Runtime &runtime_;
    BlockPool &blocks_;
    std::mutex mutex_;
    std::vector<StagingLane *> free_;
};

}  // namespace cukern
