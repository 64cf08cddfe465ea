// Device memory that is reused: free lists by size class, device and stream.
//
// A block goes back to the list of the stream that used it last, so that the next use on that stream is
// ordered after the last one without waiting. Once warm, a call makes no allocation from the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "runtime.h"

namespace cukern {

class BlockPool {
public:
    explicit BlockPool(Runtime &runtime) noexcept;

    // `device` must be current. Out of memory gives all cached blocks of the device back and tries once more.
    Status acquire(std::size_t bytes, int device, Stream stream, void **out) noexcept;
    void release(void *data, std::size_t bytes, int device, Stream stream) noexcept;

    // Gives back what is cached; waits for nothing, since the driver's own release does.
    void empty() noexcept;

    std::int64_t in_use() noexcept;
    std::int64_t cached() noexcept;

private:
    using Key = std::tuple<int, std::uint64_t, std::size_t>;  // device, stream's id, size

    bool keep(const Key &key, void *data) noexcept;
    void empty_locked() noexcept;

    Runtime &runtime_;
    const bool enabled_;  // CUKERN_POOL=0 gives every block its own allocation, so that sanitizers see overruns
    std::mutex mutex_;
    std::map<Key, std::vector<void *>> free_;
    std::int64_t in_use_ = 0;
    std::int64_t cached_ = 0;
};

// A block for a scope.
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

    Status acquire(BlockPool &pool, std::size_t bytes, int device, Stream stream) noexcept;
    void *data() const noexcept { return data_; }

private:
    void reset() noexcept {
        if (data_ != nullptr) pool_->release(data_, bytes_, device_, stream_);
        data_ = nullptr;
    }
    void swap(Block &other) noexcept;

    BlockPool *pool_ = nullptr;
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
    int device_ = 0;
    Stream stream_ = nullptr;
};

}  // namespace cukern
