// Storage: memory that arrays share, which streams have work on it, and how it is given back.
//
// Idea: every launch records its stream on the memory that it touches (`record_use`), and a launch on another
// stream waits for those that matter (`wait_before_use`), on the device, by events. A stream of our own and the
// legacy default stream can still record an event later; a foreign handle may be destroyed by then, so
// that its event is recorded at once. Memory goes back to the free list of the stream that it was made for; while
// other streams are not done with it, it waits in the pool. Memory lent to a library whose streams are not known
// is given back after an event recorded on all streams of the device's context.
//
// Uses are guarded by the caller (in the extension by the GIL); references are counted atomically.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cukern/memory.h"
#include "cukern/stream.h"

namespace cukern {

class Graph;
struct Events;

// A stream's work on some memory.
struct Use {
    std::uint64_t id = 0;
    Event event = nullptr;  // recorded after the last work; null: recorded when needed
    int device = 0;
    bool wrote = false;
    bool producer_only = false;  // only the producing library has used the memory; it orders the release itself
    bool awaited = false;        // by the stream below, since the last work
    Stream handle = nullptr;
    OwnedStream *owner = nullptr;  // retained
    std::uint64_t waiter = 0;      // id
    int waiter_device = 0;

    Use() noexcept = default;
    Use(const StreamRef &stream, bool writes) noexcept
        : id(stream.id), device(stream.device), wrote(writes), handle(stream.handle), owner(stream.owner) {}

    bool awaited_by(const StreamRef &stream) const noexcept {
        return awaited && waiter == stream.id && waiter_device == stream.device;
    }
};

// What the host has to wait for, kept apart from the storage so that the wait needs no lock.
class HostWait {
public:
    HostWait() noexcept = default;
    HostWait(const HostWait &) = delete;
    HostWait &operator=(const HostWait &) = delete;
    ~HostWait();
    bool empty() const noexcept { return count_ == 0 && device_ < 0; }
    // May take long: call it without the GIL.
    Status wait() noexcept;

private:
    friend class Storage;
    static constexpr int kMost = 4;
    Use uses_[kMost];
    int count_ = 0;
    int device_ = -1;  // all of it
    Context *context_ = nullptr;
    std::uint32_t version_ = 0;
};

class alignas(64) Storage {
public:
    // Memory from the pool, for use on `stream` first. A size of 0 takes none. With `only_cached` it takes no
    // memory from the driver, which may block: *out is null where the pool has none.
    static Status allocate(MemoryKind kind, std::size_t bytes, const StreamRef &stream, bool only_cached,
                           Storage **out) noexcept;

    // The same for a result in a graph that is being captured: memory that nothing works on, since a graph can
    // wait for nothing outside it.
    static Status allocate_idle(MemoryKind kind, std::size_t bytes, const StreamRef &stream,
                                Storage **out) noexcept;

    // Memory for a part of one call on `stream`, which another library is capturing: the graph's own, which later
    // calls in it use again once the storage is released (see graph_blocks.h).
    static Status allocate_in_graph(std::size_t bytes, const StreamRef &stream, Storage **out) noexcept;

    // Memory of another owner, whose `release` is called once, when no work that was recorded is pending any more:
    // at once, or by release_finished().
    using Release = void (*)(void *owner) noexcept;
    static Status adopt(MemoryKind kind, void *data, std::size_t bytes, int device, Release release, void *owner,
                        Storage **out) noexcept;

    // Destroys what was released while a capture stood in the way. Cheap where there is nothing.
    static void destroy_deferred() noexcept;

    // Gives the spare ones back, whose memory the pool is about to count or to need. Cheap where there are none.
    static void release_spares(Context *context) noexcept;

    // How many have been given up in this process: freed, or kept as a spare.
    static std::int64_t released() noexcept;

    Storage(const Storage &) = delete;
    Storage &operator=(const Storage &) = delete;
    void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept;

    void *data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }
    MemoryKind kind() const noexcept { return kind_; }
    int device() const noexcept { return device_; }
    bool is_adopted() const noexcept { return release_ != nullptr; }  // memory of another owner
    Backend backend() const noexcept;

    // Whether all work on this memory is in the order of `stream` anyway.
    bool is_used_on(const StreamRef &stream) const noexcept {
        return count_ == 1 && uses_[0].id == stream.id && uses_[0].device == stream.device &&
               uses_[0].event == nullptr;
    }

    // Makes `stream` wait for pending writes to this memory, and with `write` for pending reads, too.
    Status wait_before_use(const StreamRef &stream, bool write) noexcept {
        return count_ == 0 || is_used_on(stream) ? CUKERN_OK : wait_before_use_slow(stream, write);
    }

    // Records that work enqueued on `stream` reads or writes this memory.
    Status record_use(const StreamRef &stream, bool write) noexcept {
        // A stream that has joined a capture may have used it before.
        if (!is_used_on(stream) || any_graph_captured()) return record_use_slow(stream, write);
        record_again(write);
        return CUKERN_OK;
    }
    // The same on the stream that is_used_on is true of.
    void record_again(bool write) noexcept {
        uses_[0].wrote |= write;
        uses_[0].producer_only = false;
        ++version_;
    }

    // Records that the producing library wrote this adopted memory on `stream`; it orders the release itself.
    Status record_producer(const StreamRef &stream) noexcept {
        const Status status = record_use(stream, true);
        if (status == CUKERN_OK && count_ == 1) uses_[0].producer_only = true;
        return status;
    }

    // Work that the host must see done before it reads (or writes) the memory.
    Status pending(bool write, HostWait *wait) noexcept;
    // Drops the uses that were waited for. False where more were recorded meanwhile.
    bool drop_waited(bool write, const HostWait &wait) noexcept;

    // The memory is lent to a library that may use it on any stream until the storage is released.
    void record_lent() noexcept {
        ++lent_;
        for (Use &use : uses_) use.producer_only = false;
    }
    // A lent array has come back to us without anybody having used it.
    void record_returned() noexcept { --lent_; }
    // Buffers through which the host sees the memory right now.
    int exports() const noexcept { return exports_; }
    void add_export() noexcept { ++exports_; }
    void remove_export() noexcept { --exports_; }

private:
    friend class Graph;
    Storage() noexcept = default;
    ~Storage() = default;
    // Aligned memory takes the system some 50 ns, so one Storage's is kept. Null: out of memory.
    static Storage *fresh() noexcept;
    void discard() noexcept;
    [[gnu::cold]] Status wait_before_use_slow(const StreamRef &stream, bool write) noexcept;
    static Storage *make(Context *context, MemoryKind kind, std::size_t bytes, const StreamRef &stream,
                         void *data) noexcept;
    // A reused block may have pending work on its stream: other streams must wait for it.
    void record_pending_work(const StreamRef &stream) noexcept {
        uses_[0] = Use(stream, true);
        if (stream.owner != nullptr) stream.owner->retain();
        count_ = 1;
    }
    [[gnu::cold]] Status record_use_slow(const StreamRef &stream, bool write) noexcept;
    Status add_use(const StreamRef &stream, bool write) noexcept;
    void take_events(Events *events) noexcept;
    void drop(int index) noexcept;
    static Storage *take_spare(Context *context, MemoryKind kind, std::size_t bytes,
                               const StreamRef &stream) noexcept;
    bool give_as_spare() noexcept;
    void destroy() noexcept;
    void free_now() noexcept;
    bool defer_destruction() noexcept;
    bool used_on_own_list_only() const noexcept {
        const Use &first = uses_[0];
        return release_ == nullptr && count_ == 1 && first.id == free_list_id_ && first.device == device_ &&
               has_lasting_id({nullptr, first.id, first.owner, first.device});
    }
    bool waits_for_capture() const noexcept;

    static constexpr int kMostUses = 4;
    // What each call looks at comes first, as far as the first use, in one line of a cache.
    std::atomic<int> references_{1};
    MemoryKind kind_ = MemoryKind::device;
    bool captured_ = false;  // its address is in another library's graph: it is never used again
    int device_ = 0;
    int exports_ = 0;
    int count_ = 0;
    std::uint32_t version_ = 0;  // changes with every recorded use
    Release release_ = nullptr;
    Use uses_[kMostUses];
    Context *context_ = nullptr;
    int generation_ = 0;
    int lent_ = 0;
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
    std::uint64_t free_list_id_ = 0;          // the stream whose free list the block returns to
    OwnedStream *free_list_owner_ = nullptr;  // retained
    void *owner_ = nullptr;
    bool is_graphs_ = false;  // the memory is a block of a graph, which owner_ is
    // Of the graph that has noted the memory last: twice its number, and 1 where it is written to.
    std::uint64_t note_ = 0;
    int notes_ = 0;                 // that it has made, each of which holds a reference
    bool noted_elsewhere_ = false;  // for work on another stream than that of its free list
};

// Calls `release(owner)` when what `stream` has been given so far is done: by release_finished().
Status release_after(const StreamRef &stream, Storage::Release release, void *owner) noexcept;

// Releases foreign owners whose work is done. Cheap where there are none.
void release_finished() noexcept;

// Foreign owners that wait.
std::int64_t waiting_owners() noexcept;

}  // namespace cukern
