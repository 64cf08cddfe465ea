// Memory that calls on a captured stream need for a while: scratch, packed copies, cuBLAS's workspace.
//
// Idea: a graph uses an address again at each replay, whenever and wherever that is, so that a block which a
// captured call has used belongs to the graph: CUDA tells when the graph and all that was instantiated from it are
// gone. Calls that one capture makes on one stream follow each other in every replay and share blocks; streams of
// one capture may be parallel branches and have blocks of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "memory/block_pool.h"
#include "runtime/runtime.h"

namespace cukern {

class GraphBlocks {
public:
    // A block of device memory that one graph owns.
    struct Owned {
        void *data = nullptr;
        std::size_t bytes = 0;
        int device = 0;
        std::uint64_t capture = 0;
        std::uint64_t stream = 0;
        bool busy = false;  // a call is being captured with it
        std::atomic<bool> graph_is_gone{false};
    };

    GraphBlocks(Runtime &runtime, BlockPool &blocks) noexcept : runtime_(runtime), blocks_(blocks) {}

    // For one call on `stream`, which is captured; its device must be current.
    Status acquire(const Capture &capture, const StreamRef &stream, std::size_t bytes, Owned **out) noexcept;
    // The call is over: the next one of this capture on this stream may have the block.
    void give_back(Owned *block) noexcept;

    // Blocks whose graphs are gone go back to the pool. Cheap where there are none.
    void collect() noexcept;

private:
    Owned *find(const Capture &capture, const StreamRef &stream, std::size_t bytes) noexcept;

    Runtime &runtime_;
    BlockPool &blocks_;
    std::mutex mutex_;
    std::vector<Owned *> list_;
};

}  // namespace cukern
