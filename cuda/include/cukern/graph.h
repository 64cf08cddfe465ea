// CUDA graphs that cukern captures: calls on one stream, which a launch makes again.
//
// Idea: while calls are captured, ordering and recording (wait_before_use and record_use of Storage) note the
// memory in the graph, which keeps it, and enqueue nothing: a graph waits for nothing outside it. A launch then
// orders and records on all of that memory, as one call that uses it would. Memory of results made meanwhile is
// the graph's, and what nobody but the graph refers to any more serves the next result on the same stream, whose
// work follows.
//
// Guarded by the caller (in the extension by the GIL), but for end() and any_captured().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cukern/storage.h"

namespace cukern {

class GraphCalls;

class Graph {
public:
    // Begins to capture a stream of the graph's own. On the host back-end it fails.
    static Status begin(int device, Graph **out) noexcept;
    ~Graph();
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;

    // Whether any graph is being captured: most calls ask for no more.
    static bool any_captured() noexcept { return g_captured_.load(std::memory_order_relaxed) != nullptr; }
    // The graph that work on `stream` goes into now, or null: also that of a stream which has joined by events,
    // and where another library captures it.
    static Graph *captured_on(const StreamRef &stream) noexcept {
        return any_captured() ? find_captured(stream) : nullptr;
    }

    // Two steps: after the first no call goes into the graph, and the second, which may take long and needs no
    // lock, makes it ready to be launched. A capture that failed is ended as well.
    void leave() noexcept;
    Status end() noexcept;

    // Orders, launches and records on all memory that was noted. `stream` must be of the graph's device.
    Status launch(const StreamRef &stream) noexcept;

    // Writes the graph as text in the DOT language of Graphviz.
    Status write_dot(const char *path) const noexcept;

    const StreamRef &stream() const noexcept { return stream_; }
    bool is_ready() const noexcept { return executable_ != nullptr; }

    // --- for calls while it is captured ---

    // Memory for a result.
    Status allocate(MemoryKind kind, std::size_t bytes, const StreamRef &stream, Storage **out) noexcept;
    // Work that reads or writes the memory.
    Status note_use(Storage *storage, bool writes) noexcept;
    // The same of another owner's memory: `release(owner)` is called once, when the graph is gone and its launches
    // are done. *is_new: whether it will be; not for an owner that is held already.
    Status note_owner(void *owner, Storage::Release release, bool *is_new) noexcept;
    // A stream on which a library uses the memory of `object`, which an owner keeps; a launch orders itself there.
    Status note_producer(const StreamRef &stream, void *object) noexcept;

    struct Producer {
        StreamRef stream;  // its owner is retained
        void *object;
    };
    const std::vector<Producer> &producers() const noexcept { return producers_; }

    // What launches use.
    struct NotedUse {
        Storage *storage;  // retained
        bool writes;
    };
    const std::vector<NotedUse> &uses() const noexcept { return uses_; }

private:
    struct Result {
        Storage *storage;  // retained
        std::uint64_t stream;
    };

    Graph(Context *context, GraphCalls &calls) noexcept;
    static Graph *find_captured(const StreamRef &stream) noexcept;
    bool is_unused(const Storage &storage) const noexcept;
    Storage *take_unused(MemoryKind kind, std::size_t bytes, const StreamRef &stream) noexcept;

    static inline std::atomic<Graph *> g_captured_{nullptr};  // those being captured, by next_
    Graph *next_ = nullptr;
    Context *context_;
    GraphCalls &calls_;
    int generation_;
    std::uint64_t number_;       // of all graphs, from 1
    std::uint64_t capture_ = 0;  // CUDA's number of the capture
    StreamRef stream_;           // its owner is retained
    bool is_captured_ = false;   // CUDA captures the stream
    void *graph_ = nullptr;
    void *executable_ = nullptr;
    std::vector<NotedUse> uses_;
    std::vector<Result> results_;
    std::vector<std::pair<void *, Storage *>> owners_;  // the storage is one of uses_
    std::vector<Producer> producers_;
};

}  // namespace cukern
