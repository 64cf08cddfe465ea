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

constexpr std::size_t kMostWaiting = 64;  // blocks, before a release looks whether some need not wait any more

}  // namespace

BlockPool::BlockPool(Runtime &runtime, EventPool &events) noexcept
    : runtime_(runtime), events_(events), enabled_(pool_enabled()) {}

Status BlockPool::acquire(MemoryKind kind, std::size_t bytes, int device, std::uint64_t stream,
                          void **out) noexcept {
    const Key key{kind, device, stream, enabled_ ? size_class(bytes) : bytes};
    const auto size = static_cast<std::int64_t>(std::get<3>(key));
    const std::lock_guard lock(mutex_);
    auto found = free_.find(key);
    if ((found == free_.end() || found->second.empty()) && !waiting_.empty()) {
        collect();
        found = free_.find(key);
    }
    if (found != free_.end() && !found->second.empty()) {
        *out = found->second.back();
        found->second.pop_back();
        Usage &usage = usage_of(key);
        usage.cached -= size;
        usage.in_use += size;
        count_free_list_hit();
        return CUKERN_OK;
    }
    try {
        (void)usage_of(key);  // made here, where failure is easy
    } catch (...) {
        return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    }
    CUKERN_TRY(allocate(key, out));
    usage_of(key).in_use += size;
    return CUKERN_OK;
}

// From the driver; the free lists are given back when it has no more, or when the limit is reached.
Status BlockPool::allocate(const Key &key, void **out) noexcept {
    const auto [kind, device, stream, size] = key;
    const Usage &usage = usage_of(key);
    const auto more = static_cast<std::int64_t>(size);
    const auto over = [&] {
        return usage.limit > 0 && (usage.in_use + usage.cached + more > usage.limit || more < 0);
    };
    const auto held = [&] { return usage.cached > 0 || !waiting_.empty() || !retired_.empty(); };
    if (over()) empty_locked();
    Status status = CUKERN_OUT_OF_MEMORY;
    if (over()) {
        fail(CUKERN_OUT_OF_MEMORY, "the limit of %lld bytes of %s memory is reached",
             static_cast<long long>(usage.limit), name_of(kind));
    } else {
        status = runtime_.allocate(kind, size, out);
        if (status == CUKERN_OUT_OF_MEMORY && held()) {
            empty_locked();
            status = runtime_.allocate(kind, size, out);
        }
    }
    if (status != CUKERN_OUT_OF_MEMORY) return status;
    std::int64_t free = 0;
    std::int64_t total = 0;
    const ErrorRecord cause = last_error();
    runtime_.device_memory(&free, &total);
    ErrorRecord &record = last_error();
    record = cause;
    const std::size_t length = std::strlen(record.message);
    std::snprintf(
        record.message + length, sizeof record.message - length,
        " (asked for %zu bytes of %s memory on device %d; %lld free there, %lld in use by cukern and %lld "
        "cached)",
        size, name_of(kind), device, static_cast<long long>(free), static_cast<long long>(usage.in_use),
        static_cast<long long>(usage.cached));
    return status;
}

void BlockPool::release(MemoryKind kind, void *data, std::size_t bytes, int device,
                        std::uint64_t stream) noexcept {
    const Key key{kind, device, stream, enabled_ ? size_class(bytes) : bytes};
    const std::lock_guard lock(mutex_);
    usage_of(key).in_use -= static_cast<std::int64_t>(std::get<3>(key));
    if (!keep(key, data)) runtime_.release(kind, data);
    if (waiting_.size() > kMostWaiting) collect();
}

void BlockPool::release_after(MemoryKind kind, void *data, std::size_t bytes, int device, std::uint64_t stream,
                              const Event *events, int num_events) noexcept {
    const Key key{kind, device, stream, enabled_ ? size_class(bytes) : bytes};
    const std::lock_guard lock(mutex_);
    const auto size = static_cast<std::int64_t>(std::get<3>(key));
    Usage &usage = usage_of(key);
    usage.in_use -= size;
    bool kept = true;
    try {
        waiting_.push_back({key, data, {events, events + num_events}});
    } catch (...) {
        kept = false;
    }
    if (kept) {
        usage.cached += size;
        if (!enabled_ || waiting_.size() > kMostWaiting) collect();
        return;
    }
    // No host memory for the list: the driver's release waits for the device.
    runtime_.release(kind, data);
    for (int i = 0; i < num_events; ++i) events_.release(device, events[i]);
}

void BlockPool::retire(MemoryKind kind, void *data, std::size_t bytes, int device) noexcept {
    const Key key{kind, device, 0, enabled_ ? size_class(bytes) : bytes};
    const auto size = static_cast<std::int64_t>(std::get<3>(key));
    const std::lock_guard lock(mutex_);
    usage_of(key).in_use -= size;
    try {
        retired_.emplace_back(key, data);
        usage_of(key).cached += size;
    } catch (...) {
        runtime_.release(kind, data);
    }
}

void BlockPool::forget_stream(int device, std::uint64_t stream) noexcept {
    const std::lock_guard lock(mutex_);
    for (auto entry = free_.begin(); entry != free_.end();) {
        if (std::get<1>(entry->first) != device || std::get<2>(entry->first) != stream) {
            ++entry;
            continue;
        }
        // The driver's release waits for the stream's work; it happens once a stream.
        for (void *data : entry->second) give_back(entry->first, data);
        entry = free_.erase(entry);
    }
    std::size_t left = 0;
    for (Waiting &block : waiting_) {
        if (std::get<1>(block.key) == device && std::get<2>(block.key) == stream) {
            give_back(block.key, block.data);
            for (Event event : block.events) events_.release(device, event);
            continue;
        }
        if (&waiting_[left] != &block) waiting_[left] = std::move(block);
        ++left;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(left), waiting_.end());
}

// False when there is no host memory for the list, or nothing is to be kept.
bool BlockPool::keep(const Key &key, void *data) noexcept {
    if (!enabled_) return false;
    try {
        free_[key].push_back(data);
    } catch (...) {
        return false;
    }
    usage_of(key).cached += static_cast<std::int64_t>(std::get<3>(key));
    return true;
}

void BlockPool::give_back(const Key &key, void *data) noexcept {
    usage_of(key).cached -= static_cast<std::int64_t>(std::get<3>(key));
    runtime_.release(std::get<0>(key), data);
}

// Blocks whose events have passed go to their free lists.
void BlockPool::collect() noexcept {
    std::size_t left = 0;
    for (Waiting &block : waiting_) {
        bool done = true;
        for (Event event : block.events)
            if (done && (runtime_.event_done(event, &done) != CUKERN_OK)) done = false;
        if (!done) {
            if (&waiting_[left] != &block) waiting_[left] = std::move(block);
            ++left;
            continue;
        }
        for (Event event : block.events) events_.release(std::get<1>(block.key), event);
        usage_of(block.key).cached -= static_cast<std::int64_t>(std::get<3>(block.key));
        if (!keep(block.key, block.data)) runtime_.release(std::get<0>(block.key), block.data);
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(left), waiting_.end());
}

void BlockPool::empty_locked() noexcept {
    for (auto &[key, list] : free_)
        for (void *data : list) give_back(key, data);
    free_.clear();
    for (const Waiting &block : waiting_) {
        give_back(block.key, block.data);  // waits for the device, and so for the events
        for (Event event : block.events) events_.release(std::get<1>(block.key), event);
    }
    waiting_.clear();
    for (const auto &[key, data] : retired_) give_back(key, data);
    retired_.clear();
}

void BlockPool::empty() noexcept {
    const std::lock_guard lock(mutex_);
    empty_locked();
}

void BlockPool::set_limit(MemoryKind kind, int device, std::int64_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    usage_[{kind, device}].limit = bytes;
}

BlockPool::Usage BlockPool::usage(MemoryKind kind, int device) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = usage_.find({kind, device});
    return found == usage_.end() ? Usage{} : found->second;
}

BlockPool::Usage BlockPool::usage(MemoryKind kind) noexcept {
    const std::lock_guard lock(mutex_);
    Usage sum;
    for (const auto &[key, usage] : usage_) {
        if (key.first != kind) continue;
        sum.in_use += usage.in_use;
        sum.cached += usage.cached;
    }
    return sum;
}

Status Block::acquire(BlockPool &pool, std::size_t bytes, int device, std::uint64_t stream) noexcept {
    reset();
    void *data = nullptr;
    CUKERN_TRY(pool.acquire(MemoryKind::device, bytes, device, stream, &data));
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
