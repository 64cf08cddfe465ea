// Memory that is reused: free lists by kind, size class, device and stream.
//
// A block goes back to the list of the stream that it was taken for, so that its next use there is ordered after
// the last one without waiting. A block that other streams still work on waits aside with their events until a
// later call finds them passed. A stream whose end we would not notice has no list: its blocks wait for their
// events, and then serve any stream. Before the driver is asked for more, a stream is given a block that others
// still work on, and waits for them on the device. Once warm, a call makes no allocation from the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "cukern/stream.h"
#include "runtime/runtime.h"
#include "streams/event_pool.h"

namespace cukern {

struct Context;
class Workspaces;

class BlockPool {
public:
    BlockPool(Runtime &runtime, EventPool &events) noexcept;

    // The list of idle blocks, on which nothing works any more.
    static constexpr std::uint64_t kIdle = ~std::uint64_t{0};
    static std::uint64_t list_of(const StreamRef &stream) noexcept {
        return has_lasting_id(stream) ? stream.id : kIdle;
    }

    // What gives memory back that the pool does not know of, for when there is no more. It tells whether there was
    // any.
    void set_reserve(bool (*give_back)(void *), void *context) noexcept {
        give_reserve_back_ = give_back;
        reserve_ = context;
    }

    // What brings blocks back that are kept elsewhere, for when cached blocks are counted or needed.
    void set_spares(void (*give_back)(void *), void *context) noexcept {
        give_spares_back_ = give_back;
        spares_ = context;
    }

    // Whose idle blocks count as cached, and are given back with these.
    void set_workspaces(Workspaces *workspaces) noexcept { workspaces_ = workspaces; }

    bool enabled() const noexcept { return enabled_; }
    // Whether blocks for both sizes are of one size class.
    bool same_size_class(std::size_t bytes, std::size_t other) const noexcept;
    // A number for the kind and the size class; neighbouring classes have different ones.
    static unsigned size_class_index(MemoryKind kind, std::size_t bytes) noexcept {
        const unsigned base = static_cast<unsigned>(kind) * 5;
        if (bytes <= 512) return base;
        const int power = 64 - __builtin_clzll(static_cast<unsigned long long>(bytes - 1));
        return base + 4 * static_cast<unsigned>(power) + static_cast<unsigned>((bytes - 1) >> (power - 3));
    }

    // Only from cached blocks; null where there are none. `may_be_in_use`: work on `stream` may still use the
    // block.
    void *acquire_cached(MemoryKind kind, std::size_t bytes, const StreamRef &stream,
                         bool *may_be_in_use) noexcept;
    // `device` must be current. Out of memory gives all cached blocks back and tries once more.
    Status acquire(MemoryKind kind, std::size_t bytes, const StreamRef &stream, void **out,
                   bool *may_be_in_use) noexcept;

    // A block that nothing works on, for a captured call: from what is idle, or from the driver, never by waiting.
    // Its device must be current.
    Status acquire_idle(MemoryKind kind, std::size_t bytes, int device, void **out) noexcept;

    // Returns a block to a list once `events` have completed, and the events to their pool. A block that was lent
    // may be in use on unknown streams: before it is reused it waits for all work of its device.
    void release(MemoryKind kind, void *data, std::size_t bytes, int device, std::uint64_t list,
                 const Events &events = {}, bool lent = false) noexcept;

    // A stream is about to go: what is cached for it goes to the idle blocks.
    void forget_stream(const StreamRef &stream) noexcept;

    // Frees all cached blocks; returns whether there were any. Pinned blocks need a wait for the device first,
    // which a capture forbids.
    enum class Pinned { free_pinned, keep_pinned };
    bool trim(Pinned pinned = Pinned::free_pinned) noexcept;

    void set_limit(MemoryKind kind, int device, std::int64_t bytes) noexcept;
    struct Usage {
        std::int64_t in_use = 0;
        std::int64_t cached = 0;
        std::int64_t limit = 0;
    };
    Usage usage(MemoryKind kind, int device) noexcept;
    Usage usage(MemoryKind kind) noexcept;  // of all devices

private:
    using Key = std::tuple<MemoryKind, int, std::uint64_t, std::size_t>;  // kind, device, list, size
    struct Waiting {
        Key key;
        void *data;
        Events events;
        bool lent;
    };

    // The free list of a key. Its usage is that of its kind and device.
    struct FreeList {
        std::vector<void *> blocks;
        Usage *usage = nullptr;
    };
    using Lists = std::map<Key, FreeList>;
    FreeList *find_list(const Key &key) noexcept;
    void reset_last_list() noexcept { last_ = nullptr; }
    Key key_of(MemoryKind kind, std::size_t bytes, int device, std::uint64_t list) const noexcept;
    void *take(const Key &key) noexcept;
    void *find(const Key &key, const StreamRef &stream, bool *may_be_in_use) noexcept;
    void *take_waiting(const Key &key, const StreamRef &stream) noexcept;
    bool keep(const Key &key, void *data) noexcept;
    void subtract_cached(const Key &key) noexcept;
    void collect() noexcept;
    bool record_lent_events(const Key *key) noexcept;
    static bool serves(const Key &own, const Key &key) noexcept;
    Status allocate(const Key &key, Pinned pinned, void **out) noexcept;
    Status wait_for_pinned(const Lists &free, const std::vector<Waiting> &waiting) noexcept;
    void put_back(const Lists &free, const std::vector<Waiting> &waiting) noexcept;
    bool over_limit(const Key &key) noexcept;
    Status describe_failure(const Key &key, Status status) noexcept;
    Usage *usage_of(const Key &key) noexcept;
    Usage with_workspaces(Usage usage, MemoryKind kind, int device) noexcept;
    void collect_spares() noexcept {
        if (give_spares_back_ != nullptr) give_spares_back_(spares_);
    }

    Runtime &runtime_;
    EventPool &events_;
    const bool enabled_;  // CUKERN_POOL=0 gives every block its own allocation, so that sanitizers see overruns
    bool (*give_reserve_back_)(void *) = nullptr;
    void *reserve_ = nullptr;
    void (*give_spares_back_)(void *) = nullptr;
    void *spares_ = nullptr;
    Workspaces *workspaces_ = nullptr;
    std::mutex mutex_;
    Lists free_;
    Lists::value_type *last_ = nullptr;  // the list that was last looked for: most calls ask for the same again
    std::vector<Waiting> waiting_;
    std::size_t collect_threshold_;  // a release collects finished blocks when more than this many wait
    std::map<std::pair<MemoryKind, int>, Usage> usage_;
};

}  // namespace cukern
