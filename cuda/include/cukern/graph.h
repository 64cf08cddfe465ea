// CUDA graphs that cukern captures: calls on one stream, which a launch makes again.
//
// Idea: while calls are captured, ordering and recording (wait_before_use and record_use of Storage) note the
// memory in the graph, which keeps it, and enqueue nothing: a graph waits for nothing outside it. A launch then
// orders and records on all of that memory, as one call that uses it would. Memory of results made meanwhile is
// the graph's, and what nobody but the graph refers to any more, and no other stream has used, serves the next
// result on the same stream.
//
// Guarded by the caller (in the extension by the GIL), but for end().
#pragma once

#include <cstddef>
#include <cstdint>
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

    // The graph that work on `stream` goes into now, or null: also that of a stream which has joined by events,
    // and where another library captures it.
    static Graph *captured_on(const StreamRef &stream) noexcept {
        return any_graph_captured() ? find_captured(stream) : nullptr;
    }
    // Whether the graph of a number is being captured.
    static bool is_captured(std::uint64_t number) noexcept;
    // Whether a graph that is being captured writes the memory, or with `or_reads` uses it: what the host would
    // see or change now is not what the calls work on.
    static bool is_noted(const Storage &storage, bool or_reads) noexcept;

    // Two steps: after the first no call goes into the graph, and the second, which may take long and needs no
    // lock, makes it ready to be launched. A capture that failed is ended as well.
    void leave() noexcept;
    Status end() noexcept;

    // Orders, launches and records on all memory that was noted. `stream` must be of the graph's device.
    Status launch(const StreamRef &stream) noexcept;

    // Writes the graph as text in the DOT language of Graphviz.
    Status write_dot(const char *path) const noexcept;

    const StreamRef &stream() const noexcept { return stream_; }
    std::uint64_t number() const noexcept { return number_; }

    // --- for calls while it is captured ---

    // Memory for a result.
    Status allocate(MemoryKind kind, std::size_t bytes, const StreamRef &stream, Storage **out) noexcept;
    // Work on `stream` that reads or writes the memory.
    Status note_use(Storage *storage, const StreamRef &stream, bool writes) noexcept;
    // The same of another owner's memory: `release(owner)` is called once, when the graph is gone and its launches
    // are done. *is_new: whether it will be; not for an owner that is held already.
    Status note_owner(void *owner, Storage::Release release, bool *is_new) noexcept;
    // A stream on which a library uses the memory of `object`, which is kept; a launch orders itself there.
    // `library` stands for all objects that tell of one stream.
    Status note_producer(const StreamRef &stream, const void *library, void *object) noexcept;

    struct Producer {
        StreamRef stream;  // its owner is retained
        const void *library;
        void *object;
    };
    const std::vector<Producer> &producers() const noexcept { return producers_; }

    // Memory that every launch reads or writes.
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
    Status begin_capture() noexcept;
    Status end_capture() noexcept;
    static Graph *find_captured(const StreamRef &stream) noexcept;
    bool is_unused(const Storage &storage) const noexcept;
    Storage *take_unused(MemoryKind kind, std::size_t bytes, const StreamRef &stream) noexcept;

    static inline Graph *g_captured_ = nullptr;  // those being captured, by next_
    Graph *next_ = nullptr;
    Context *context_;
    GraphCalls &calls_;
    int generation_;
    std::uint64_t number_;       // of all graphs, from 1
    std::uint64_t capture_ = 0;  // CUDA's number of the capture
    StreamRef stream_;           // its owner is retained
    bool is_capturing_ = false;  // CUDA captures the stream
    void *graph_ = nullptr;
    void *executable_ = nullptr;
    std::vector<NotedUse> uses_;
    std::vector<Result> results_;
    std::vector<void *> owners_;
    std::vector<Producer> producers_;
};

}  // namespace cukern
