#include "memory/staging_lanes.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "cukern/host_memory.h"

namespace cukern {
namespace {

constexpr std::size_t kPageBytes = 4096;

enum Refusal { kNone, kToTell, kTold };
std::atomic<int> g_refusal{kNone};

void note_refusal() noexcept {
    int none = kNone;
    g_refusal.compare_exchange_strong(none, kToTell);
}

}  // namespace

bool take_pinned_refusal() noexcept {
    int to_tell = kToTell;
    return g_refusal.load(std::memory_order_relaxed) == kToTell &&
           g_refusal.compare_exchange_strong(to_tell, kTold);
}

Status StagingLanes::acquire(int device, StagingLane **out) noexcept {
    {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = free_.size(); i-- > 0;) {
            if (free_[i]->device != device) continue;
            *out = free_[i];
            free_[i] = free_.back();
            free_.pop_back();
            return CUKERN_OK;
        }
    }
    auto *lane = new (std::nothrow) StagingLane;
    if (lane == nullptr) return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    lane->device = device;
    Status status = OwnedStream::create(device, true, 0, &lane->stream);
    if (status == CUKERN_OK) status = allocate(kArenaBytes, &lane->arena);
    if (status == CUKERN_OUT_OF_MEMORY && lane->stream != nullptr) {
        note_refusal();
        status = CUKERN_OK;
    }
    if (status != CUKERN_OK) {
        destroy(lane);
        return status;
    }
    *out = lane;
    return CUKERN_OK;
}

// Pinned memory; what is cached is given back where there is no more.
Status StagingLanes::allocate(std::size_t bytes, void **out) noexcept {
    const Status status = runtime_.allocate(MemoryKind::pinned, bytes, out);
    if (status != CUKERN_OUT_OF_MEMORY) return status;
    trim();
    blocks_.trim();
    return runtime_.allocate(MemoryKind::pinned, bytes, out);
}

// Where the system has no pinned memory the driver copies from and to ordinary memory, by a way of its own.
Status StagingLanes::allocate_slot(StagingLane &lane, int slot) noexcept {
    const Status status = allocate(kSlotBytes, &lane.slots[slot]);
    if (status != CUKERN_OUT_OF_MEMORY) return status;
    lane.slots[slot] = std::aligned_alloc(kPageBytes, kSlotBytes);
    if (lane.slots[slot] == nullptr) return status;
    lane.are_pageable[slot] = true;
    note_refusal();
    return CUKERN_OK;
}

Status StagingLanes::prepare_slots(StagingLane &lane) noexcept {
    for (int i = 0; i < kSlots; ++i) {
        if (lane.events[i] == nullptr) CUKERN_TRY(runtime_.create_event(false, &lane.events[i]));
        if (lane.slots[i] == nullptr) CUKERN_TRY(allocate_slot(lane, i));
    }
    return CUKERN_OK;
}

Status StagingLanes::record_slot(StagingLane &lane, int slot, Stream stream) noexcept {
    CUKERN_TRY(runtime_.record(lane.events[slot], stream));
    lane.in_flight[slot] = true;
    return CUKERN_OK;
}

Status StagingLanes::wait_for_slot(StagingLane &lane, int slot) noexcept {
    if (!lane.in_flight[slot]) return CUKERN_OK;
    CUKERN_TRY(runtime_.synchronize_event(lane.events[slot]));
    lane.in_flight[slot] = false;
    return CUKERN_OK;
}

void StagingLanes::wait_for_all(StagingLane &lane, Stream stream) noexcept {
    const ErrorKeeper cause;
    if (runtime_.synchronize(stream) == CUKERN_OK || runtime_.synchronize(stream) == CUKERN_OK)
        std::fill_n(lane.in_flight, kSlots, false);
}

void StagingLanes::release(StagingLane *lane) noexcept {
    const std::lock_guard lock(mutex_);
    try {
        free_.push_back(lane);
    } catch (...) {
        destroy(lane);
    }
}

void StagingLanes::destroy(StagingLane *lane) noexcept {
    for (int i = 0; i < kSlots; ++i) {
        if (lane->events[i] != nullptr) runtime_.destroy_event(lane->events[i]);
        if (lane->are_pageable[i])
            std::free(lane->slots[i]);
        else if (lane->slots[i] != nullptr)
            runtime_.release(MemoryKind::pinned, lane->slots[i]);
    }
    if (lane->arena != nullptr) runtime_.release(MemoryKind::pinned, lane->arena);
    if (lane->stream != nullptr) lane->stream->release();
    delete lane;
}

bool StagingLanes::trim() noexcept {
    std::vector<StagingLane *> idle;
    {
        const std::lock_guard lock(mutex_);
        idle.swap(free_);
    }
    for (StagingLane *lane : idle) destroy(lane);
    return !idle.empty();
}

}  // namespace cukern
