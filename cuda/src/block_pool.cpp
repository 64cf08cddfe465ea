#include "block_pool.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace cukern {
namespace {

// Size classes: 512 bytes, then four to each power of two, so that at most a quarter of a block is unused.
std::size_t size_class(std::size_t bytes) noexcept {
    std::size_t power = 512;
    if (bytes <= power) return power;
    if (bytes > (std::size_t{1} << 62)) return bytes;
    while (power < bytes) power *= 2;
    const std::size_t step = power / 8;
    return (bytes + step - 1) / step * step;
}

bool pool_enabled() noexcept {
    const char *text = std::getenv("CUKERN_POOL");
    return text == nullptr || std::strcmp(text, "0") != 0;
}

}  // namespace

BlockPool::BlockPool(Runtime &runtime) noexcept : runtime_(runtime), enabled_(pool_enabled()) {}

Status BlockPool::acquire(std::size_t bytes, int device, Stream stream, void **out) noexcept {
    const std::size_t size = enabled_ ? size_class(bytes) : bytes;
    const std::uint64_t id = runtime_.stream_id(stream);
    const std::lock_guard lock(mutex_);
    if (const auto found = free_.find({device, id, size}); found != free_.end() && !found->second.empty()) {
        *out = found->second.back();
        found->second.pop_back();
        cached_ -= static_cast<std::int64_t>(size);
        in_use_ += static_cast<std::int64_t>(size);
        return CUKERN_OK;
    }
    Status status = runtime_.allocate_device(size, out);
    if (status == CUKERN_OUT_OF_MEMORY && cached_ > 0) {
        empty_locked();
        status = runtime_.allocate_device(size, out);
    }
    if (status == CUKERN_OK) in_use_ += static_cast<std::int64_t>(size);
    if (status == CUKERN_OUT_OF_MEMORY) {
        ErrorRecord &record = last_error();
        const std::size_t length = std::strlen(record.message);
        std::snprintf(record.message + length, sizeof record.message - length,
                      " (asked for %zu bytes on device %d; %zu free there, %lld in use by cukern)", size, device,
                      runtime_.free_memory(), static_cast<long long>(in_use_));
    }
    return status;
}

void BlockPool::release(void *data, std::size_t bytes, int device, Stream stream) noexcept {
    const std::size_t size = enabled_ ? size_class(bytes) : bytes;
    const std::uint64_t id = runtime_.stream_id(stream);
    const std::lock_guard lock(mutex_);
    in_use_ -= static_cast<std::int64_t>(size);
    if (enabled_ && keep({device, id, size}, data)) return;
    runtime_.release_device(data);
}

// False when there is no host memory for the list.
bool BlockPool::keep(const Key &key, void *data) noexcept {
    try {
        free_[key].push_back(data);
    } catch (...) {
        return false;
    }
    cached_ += static_cast<std::int64_t>(std::get<2>(key));
    return true;
}

void BlockPool::empty_locked() noexcept {
    for (auto &entry : free_)
        for (void *data : entry.second) runtime_.release_device(data);
    free_.clear();
    cached_ = 0;
}

void BlockPool::empty() noexcept {
    const std::lock_guard lock(mutex_);
    empty_locked();
}

std::int64_t BlockPool::in_use() noexcept {
    const std::lock_guard lock(mutex_);
    return in_use_;
}

std::int64_t BlockPool::cached() noexcept {
    const std::lock_guard lock(mutex_);
    return cached_;
}

Status Block::acquire(BlockPool &pool, std::size_t bytes, int device, Stream stream) noexcept {
    reset();
    void *data = nullptr;
    CUKERN_TRY(pool.acquire(bytes, device, stream, &data));
    pool_ = &pool;
    data_ = data;
    bytes_ = bytes;
    device_ = device;
    stream_ = stream;
    return CUKERN_OK;
}

void Block::swap(Block &other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
}

}  // namespace cukern
