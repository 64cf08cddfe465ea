// The transfer engine: work on the host's memory in chunks, several of them under way at once.
//
// Idea: workers, threads of the one pool, take chunks in order. Each has a lane of its own: a stream, two pinned
// slots, two blocks of the device's memory. It copies a chunk in, enqueues its upload, kernels and download, and
// turns to the other slot while that is in flight; so copies by the processor, both directions of the link and the
// kernels of different chunks overlap, and no more than the slots is needed of either memory.
#pragma once

#include <climits>
#include <cstdint>

#include "context/scratch_buffer.h"
#include "memory/staging_lanes.h"

namespace cukern {

// A worker as its work sees it.
struct Worker {
    StagingLane *lane = nullptr;
    StreamRef stream;
    ScratchBuffer blocks[kSlots];
    std::int64_t chunks[kSlots];  // under way; -1: none

    char *pinned(int slot) const noexcept { return static_cast<char *>(lane->slots[slot]); }
    char *device(int slot) const noexcept { return static_cast<char *>(blocks[slot].data()); }
};

// What is done with a chunk, on any thread, the device current.
class ChunkedWork {
public:
    ChunkedWork() noexcept = default;
    ChunkedWork(const ChunkedWork &) = delete;
    ChunkedWork &operator=(const ChunkedWork &) = delete;

    // Before a worker's first chunk.
    virtual Status begin(const Worker &) noexcept { return CUKERN_OK; }
    // Reads the host's memory and enqueues what there is to do on the worker's stream.
    virtual Status enqueue(const Worker &worker, int slot, std::int64_t chunk) noexcept = 0;
    // The stream has done it.
    virtual Status collect(const Worker &worker, int slot, std::int64_t chunk) noexcept = 0;
    // A worker has failed: none must wait for it.
    virtual void stop() noexcept {}

protected:
    ~ChunkedWork() = default;
};

struct PipelineShape {
    int device = 0;
    std::int64_t chunks = 0;
    std::size_t device_bytes = 0;         // of a slot's block on the device; 0: none
    std::int64_t most_workers = INT_MAX;  // for which there is memory
};

// How many workers there may be; and the size of a chunk for so many bytes in all. What is sent goes in smaller
// ones than what comes back: it is packed in a core's cache.
int pipeline_workers() noexcept;
enum class ChunkOf : std::int8_t { upload, download };
std::int64_t pipeline_chunk(std::int64_t bytes, ChunkOf kind) noexcept;
// Whether so many bytes are worth it.
bool is_worth_a_pipeline(std::int64_t bytes) noexcept;

// Returns when all chunks are collected. After a failure nothing is under way any more, and the error is that of
// the worker which failed first; `*untouched` tells whether it came before any chunk was begun.
Status run_pipeline(Context &context, const PipelineShape &shape, ChunkedWork &work,
                    bool *untouched = nullptr) noexcept;

}  // namespace cukern
