// What a back-end owns while it is in use: its runtime, cached events and blocks of memory, staging lanes.
#pragma once

#include <atomic>

#include "cukern/storage.h"
#include "memory/block_pool.h"
#include "memory/graph_blocks.h"
#include "memory/staging_lanes.h"
#include "runtime/runtime.h"
#include "streams/event_pool.h"

namespace cukern {

struct Context {
    explicit Context(Runtime &r) noexcept
        : runtime(r), events(r), blocks(r, events), graph_blocks(r, blocks), lanes(r, blocks) {
        blocks.set_spare([](void *owner) { Storage::release_spare(static_cast<Context *>(owner)); }, this);
        blocks.set_reserve([](void *pool) { return static_cast<StagingLanes *>(pool)->trim(); }, &lanes);
    }
    Runtime &runtime;
    EventPool events;
    BlockPool blocks;
    GraphBlocks graph_blocks;
    StagingLanes lanes;
    // The storage that was last given up, with its block, for the next call that asks for as much: most calls do.
    std::atomic<Storage *> spare{nullptr};
};

// The back-end in use, chosen on the first call. Fails after a fork of a process that had used the GPU.
Status context(Context **out) noexcept;

// Counts the forks between the first process and this one. What an earlier generation made is not touched: a child
// shares no lock, thread or device with its parent.
int fork_generation() noexcept;

}  // namespace cukern
