// Streams and events, as calls and arrays use them.
#pragma once

#include <atomic>
#include <cstdint>

#include "cukern/backend.h"
#include "cukern/status.h"

namespace cukern {

using Stream = void *;  // a cudaStream_t; on the host back-end a token
using Event = void *;   // a cudaEvent_t; on the host back-end a token

struct Context;

// The handles that stand for a stream without being one: 0 and 1 are the legacy default stream, 2 is the calling
// thread's default stream.
constexpr std::uintptr_t kLegacyHandle = 1;
constexpr std::uintptr_t kPerThreadHandle = 2;
inline bool is_legacy(Stream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) <= kLegacyHandle; }

struct StreamRef;

// How many graphs of ours are being captured (cukern/graph.h). Most calls ask for no more.
inline std::atomic<int> g_captured_graphs{0};
inline bool any_graph_captured() noexcept { return g_captured_graphs.load(std::memory_order_relaxed) != 0; }

// A stream of our own: it lives while a Python object, an array's memory or a use of one refers to it.
class OwnedStream {
public:
    static Status create(int device, bool non_blocking, int priority, OwnedStream **out) noexcept;
    OwnedStream(const OwnedStream &) = delete;
    OwnedStream &operator=(const OwnedStream &) = delete;

    void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept;

    Stream handle() const noexcept { return handle_; }
    int device() const noexcept { return device_; }
    std::uint64_t id() const noexcept { return id_; }
    StreamRef ref() noexcept;

    // Destroys what was given up while a graph was being captured, which the end of a stream may end.
    static void destroy_deferred() noexcept;

private:
    OwnedStream() noexcept = default;
    ~OwnedStream() = default;
    void destroy() noexcept;

    std::atomic<int> references_{1};
    Stream handle_ = nullptr;
    int device_ = 0;
    std::uint64_t id_ = 0;
    Context *context_ = nullptr;
    int generation_ = 0;
};

// A stream as a call uses it. `id` tells live streams apart, of which the per-thread default stream is one handle
// for many. It is 0 for the legacy default stream. A foreign handle may be that of another stream later,
// so that nothing is kept by its id but workspaces: see Storage, BlockPool and Workspaces.
struct StreamRef {
    Stream handle = nullptr;
    std::uint64_t id = 0;
    OwnedStream *owner = nullptr;  // borrowed; null for a default stream and for a foreign handle
    int device = 0;
};

inline StreamRef OwnedStream::ref() noexcept { return {handle_, id_, this, device_}; }

// Whether an event can still be recorded on the stream later: a foreign handle may be destroyed by then, and the
// per-thread default stream is another one on another thread.
inline bool has_lasting_id(const StreamRef &stream) noexcept { return stream.id == 0 || stream.owner != nullptr; }

// The reference to a foreign handle; `handle` must be of a live stream of `device`.
Status stream_ref(Stream handle, int device, StreamRef *out) noexcept;

Status stream_synchronize(const StreamRef &stream) noexcept;
Status stream_done(const StreamRef &stream, bool *done) noexcept;
Status stream_is_capturing(const StreamRef &stream, bool *capturing) noexcept;

// Makes later work on `after` wait for all work now on `before`; the host does not wait.
Status stream_wait_stream(const StreamRef &after, const StreamRef &before) noexcept;

// Waits for everything on a device.
Status device_synchronize(int device) noexcept;

Status current_device(int *device) noexcept;

// Makes a device current for a scope on this thread, for code that asks CUDA for it.
class DeviceScope {
public:
    explicit DeviceScope(int device) noexcept;
    ~DeviceScope();
    DeviceScope(const DeviceScope &) = delete;
    DeviceScope &operator=(const DeviceScope &) = delete;
    Status status() const noexcept { return status_; }

private:
    Context *context_ = nullptr;
    void *previous_ = nullptr;
    Status status_;
};

// An event made for a user. One with `timing` takes times, one without is cheaper. It is recorded on streams of
// its device.
struct EventRef {
    Event handle = nullptr;
    int device = 0;
    int generation = 0;
    Context *context = nullptr;
    std::uint64_t graph = 0;  // the number of the graph that it was recorded in last; 0: in none
};
Status event_create(int device, bool timing, EventRef *out) noexcept;
void event_destroy(const EventRef &event) noexcept;
Status event_record(EventRef *event, const StreamRef &stream) noexcept;
Status event_wait(const StreamRef &stream, const EventRef &event) noexcept;
Status event_synchronize(const EventRef &event) noexcept;
Status event_done(const EventRef &event, bool *done) noexcept;
Status event_elapsed(const EventRef &begin, const EventRef &end, float *milliseconds) noexcept;

}  // namespace cukern
