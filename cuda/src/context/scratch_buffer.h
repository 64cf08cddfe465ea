// Memory of a call that nothing outlives: scratch, packed copies of operands.
#pragma once

#include "context/context.h"

namespace cukern {

// A block of device memory that work on one stream uses for a scope. While the stream is captured it comes from
// the graph's own memory (graph_blocks.h).
class ScratchBuffer {
public:
    ScratchBuffer() noexcept = default;
    ScratchBuffer(const ScratchBuffer &) = delete;
    ScratchBuffer &operator=(const ScratchBuffer &) = delete;
    ~ScratchBuffer() { reset(); }

    // The stream's device must be current.
    Status acquire(Context &context, std::size_t bytes, const StreamRef &stream) noexcept;
    void reset() noexcept;
    void *data() const noexcept { return data_; }

private:
    Context *context_ = nullptr;
    GraphBlocks::Owned *graph_block_ = nullptr;  // in a capture: the block, which the graph owns
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
    StreamRef stream_;
};

}  // namespace cukern
