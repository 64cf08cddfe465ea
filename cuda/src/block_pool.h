// Memory that is reused: free lists by kind, size class, device and stream.
//
// A block goes back to the list of the stream that it was taken for, so that its next use there is ordered after
// the last one without waiting. A block that other streams still work on waits aside with their events until a
// later call finds them passed. Once warm, a call makes no allocation from the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "event_pool.h"
#include "runtime.h"

namespace cukern {

class BlockPool {
public:
    BlockPool(Runtime &runtime, EventPool &events) noexcept;

    // `device` must be current. Out of memory gives all cached blocks back and tries once more.
    Status acquire(MemoryKind kind, std::size_t bytes, int device, std::uint64_t stream, void **out) noexcept;
    void release(MemoryKind kind, void *data, std::size_t bytes, int device, std::uint64_t stream) noexcept;

    // The same, once `events`, which go back to the pool of events, have passed. They are of `device`.
    void release_after(MemoryKind kind, void *data, std::size_t bytes, int device, std::uint64_t stream,
                       const Event *events, int num_events) noexcept;

    // The block's address is in a graph: it is given back to the driver by empty(), and not used again.
    void retire(MemoryKind kind, void *data, std::size_t bytes, int device) noexcept;

    // A stream is about to go: what is cached for it is given back.
    void forget_stream(int device, std::uint64_t stream) noexcept;

    // Gives back what is cached; waits for nothing, since the driver's own release does.
    void empty() noexcept;

    void set_limit(MemoryKind kind, int device, std::int64_t bytes) noexcept;
    struct Usage {
        std::int64_t in_use = 0;
        std::int64_t cached = 0;
        std::int64_t limit = 0;
    };
    Usage usage(MemoryKind kind, int device) noexcept;
    Usage usage(MemoryKind kind) noexcept;  // of all devices

private:
    using Key = std::tuple<MemoryKind, int, std::uint64_t, std::size_t>;  // kind, device, stream's id, size
    struct Waiting {
        Key key;
        void *data;
        std::vector<Event> events;
    };

    bool keep(const Key &key, void *data) noexcept;
    void give_back(const Key &key, void *data) noexcept;
    void collect() noexcept;
    void empty_locked() noexcept;
    Status allocate(const Key &key, void **out) noexcept;
    Usage &usage_of(const Key &key) noexcept { return usage_[{std::get<0>(key), std::get<1>(key)}]; }

    Runtime &runtime_;
    EventPool &events_;
    const bool enabled_;  // CUKERN_POOL=0 gives every block its own allocation, so that sanitizers see overruns
    std::mutex mutex_;
    std::map<Key, std::vector<void *>> free_;
    std::vector<Waiting> waiting_;
    std::vector<std::pair<Key, void *>> retired_;
    std::map<std::pair<MemoryKind, int>, Usage> usage_;
};

// A block of device memory for a scope.
class Block {
public:
    Block() noexcept = default;
    ~Block() { reset(); }
    Block(Block &&other) noexcept { swap(other); }
    Block &operator=(Block &&other) noexcept {
        reset();
        swap(other);
        return *this;
    }

    Status acquire(BlockPool &pool, std::size_t bytes, int device, std::uint64_t stream) noexcept;
    void *data() const noexcept { return data_; }

private:
    void reset() noexcept {
        if (data_ != nullptr) pool_->release(MemoryKind::device, data_, bytes_, device_, stream_);
        data_ = nullptr;
    }
    void swap(Block &other) noexcept;

    BlockPool *pool_ = nullptr;
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
    int device_ = 0;
    std::uint64_t stream_ = 0;
};

}  // namespace cukern
