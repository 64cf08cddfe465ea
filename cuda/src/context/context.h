// What a back-end owns while it is in use: its runtime, cached events and blocks of memory, staging lanes.
#pragma once

#include <atomic>

#include "cukern/storage.h"
#include "memory/block_pool.h"
#include "memory/graph_blocks.h"
#include "memory/staging_lanes.h"
#include "memory/workspaces.h"
#include "runtime/runtime.h"
#include "streams/event_pool.h"

namespace cukern {

// Counts the forks between the first process and this one. What an earlier generation made is not touched: a child
// shares no lock, thread or device with its parent.
int fork_generation() noexcept;

struct Context {
    explicit Context(Runtime &r) noexcept
        : runtime(r), events(r), blocks(r, events), graph_blocks(r, blocks), lanes(r, blocks), workspaces(blocks) {
        blocks.set_spares([](void *owner) { Storage::release_spares(static_cast<Context *>(owner)); }, this);
        blocks.set_reserve([](void *pool) { return static_cast<StagingLanes *>(pool)->trim(); }, &lanes);
        blocks.set_workspaces(&workspaces);
    }
    Runtime &runtime;
    EventPool events;
    BlockPool blocks;
    GraphBlocks graph_blocks;
    StagingLanes lanes;
    Workspaces workspaces;
    const int generation = fork_generation();  // of the process that made it
    // Storages that were given up, with their blocks, each for the next call that asks for as much.
    static constexpr int kSpares = 32;
    std::atomic<Storage *> spares[kSpares] = {};
};

// That of the back-end in use; null until one is chosen.
inline std::atomic<Context *> g_active_context{nullptr};

// Chooses a back-end, if none is in use.
Status activate(Context **out) noexcept;

// The back-end in use, chosen on the first call, without a look at whether it can work.
inline Status chosen_context(Context **out) noexcept {
    *out = g_active_context.load(std::memory_order_acquire);
    return *out != nullptr ? CUKERN_OK : activate(out);
}
// The same. Fails after a fork of a process that had used the GPU, and where the device was lost.
inline Status context(Context **out) noexcept {
    CUKERN_TRY(chosen_context(out));
    return (*out)->runtime.ready();
}
// The host back-end, for calls that the processor computes although another one is in use.
Status processor_context(Context **out) noexcept;

}  // namespace cukern
