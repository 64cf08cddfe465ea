// What a back-end owns while it is in use: its runtime, cached device blocks and staging lanes.
#pragma once

#include "block_pool.h"
#include "lane_pool.h"
#include "runtime.h"

namespace cukern {

struct Context {
    explicit Context(Runtime &r) noexcept : runtime(r), blocks(r), lanes(r) {}
    Runtime &runtime;
    BlockPool blocks;
    LanePool lanes;
};

// The back-end in use, chosen on the first call. Fails after a fork of a process that had used the GPU.
Status context(Context **out) noexcept;

}  // namespace cukern
