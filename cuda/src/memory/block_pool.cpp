#include "memory/block_pool.h"

#include <cstdlib>
#include <cstring>

#include "memory/workspaces.h"

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

constexpr std::size_t kCollectThreshold = 64;

}  // namespace

BlockPool::BlockPool(Runtime &runtime, EventPool &events) noexcept
    : runtime_(runtime), events_(events), enabled_(pool_enabled()), collect_threshold_(kCollectThreshold) {}

bool BlockPool::same_size_class(std::size_t bytes, std::size_t other) const noexcept {
    return bytes == other || (enabled_ && size_class(bytes) == size_class(other));
}

BlockPool::Key BlockPool::key_of(MemoryKind kind, std::size_t bytes, int device,
                                 std::uint64_t list) const noexcept {
    return {kind, device, list, enabled_ ? size_class(bytes) : bytes};
}

// Null when the system has no memory left for the record.
BlockPool::Usage *BlockPool::usage_of(const Key &key) noexcept {
    try {
        return &usage_[{std::get<0>(key), std::get<1>(key)}];
    } catch (...) {
        return nullptr;
    }
}

// Null where no block has been kept under the key.
BlockPool::FreeList *BlockPool::find_list(const Key &key) noexcept {
    if (last_ != nullptr && last_->first == key) return &last_->second;
    const auto found = free_.find(key);
    if (found == free_.end()) return nullptr;
    last_ = &*found;
    return &found->second;
}

// A cached block of the list, or null.
void *BlockPool::take(const Key &key) noexcept {
    FreeList *list = find_list(key);
    if (list == nullptr || list->blocks.empty()) return nullptr;
    void *data = list->blocks.back();
    list->blocks.pop_back();
    const auto size = static_cast<std::int64_t>(std::get<3>(key));
    list->usage->cached -= size;
    list->usage->in_use += size;
    count_free_list_hit();
    return data;
}

// Takes a block with pending work and makes `stream` wait for it on the device.
void *BlockPool::take_waiting(const Key &key, const StreamRef &stream) noexcept {
    for (Waiting &block : waiting_) {
        if (!serves(block.key, key) || block.lent) continue;
        const DeviceGuard guard(runtime_, stream.device);
        if (guard.status() != CUKERN_OK) return nullptr;
        for (int i = 0; i < block.events.count; ++i)
            if (runtime_.wait_event(stream.handle, block.events.list[i].event) != CUKERN_OK) return nullptr;
        void *data = block.data;
        const Key own = block.key;
        block.events.release(events_);
        block = waiting_.back();
        waiting_.pop_back();
        subtract_cached(own);
        usage_of(own)->in_use += static_cast<std::int64_t>(std::get<3>(own));
        count_free_list_hit();
        return data;
    }
    return nullptr;
}

// Search order: the stream's own list, blocks whose events completed, idle blocks, blocks with pending work.
void *BlockPool::find(const Key &key, const StreamRef &stream, bool *may_be_in_use) noexcept {
    auto [kind, device, list, size] = key;
    *may_be_in_use = list != kIdle;
    void *data = take(key);
    if (data == nullptr && !waiting_.empty()) {
        collect();
        data = take(key);
    }
    if (data != nullptr) return data;
    *may_be_in_use = false;
    if (list == kIdle)
        return nullptr;  // no event can be recorded later on a foreign stream, so its block must be idle
    data = take({kind, device, kIdle, size});
    if (data != nullptr || waiting_.empty()) return data;
    data = take_waiting(key, stream);
    *may_be_in_use = data != nullptr;
    return data;
}

void *BlockPool::acquire_cached(MemoryKind kind, std::size_t bytes, const StreamRef &stream,
                                bool *may_be_in_use) noexcept {
    const Key key = key_of(kind, bytes, stream.device, list_of(stream));
    const std::lock_guard lock(mutex_);
    void *data = find(key, stream, may_be_in_use);
    if (data != nullptr) return data;
    const bool had_lent = record_lent_events(enabled_ ? &key : nullptr);  // without a pool all of them can go
    return had_lent ? find(key, stream, may_be_in_use) : nullptr;
}

Status BlockPool::acquire(MemoryKind kind, std::size_t bytes, const StreamRef &stream, void **out,
                          bool *may_be_in_use) noexcept {
    *out = acquire_cached(kind, bytes, stream, may_be_in_use);
    return *out != nullptr
               ? CUKERN_OK
               : allocate(key_of(kind, bytes, stream.device, list_of(stream)), Pinned::free_pinned, out);
}

Status BlockPool::acquire_idle(MemoryKind kind, std::size_t bytes, int device, void **out) noexcept {
    collect_spares();
    const Key key = key_of(kind, bytes, device, kIdle);
    {
        const std::lock_guard lock(mutex_);
        *out = take(key);
        if (*out == nullptr && !waiting_.empty()) {
            collect();
            *out = take(key);
        }
    }
    return *out != nullptr ? CUKERN_OK : allocate(key, Pinned::keep_pinned, out);
}

bool BlockPool::over_limit(const Key &key) noexcept {
    const std::lock_guard lock(mutex_);
    const Usage *usage = usage_of(key);
    const auto more = static_cast<std::int64_t>(std::get<3>(key));
    return usage != nullptr && usage->limit > 0 &&
           (more < 0 || more > usage->limit || usage->in_use + usage->cached > usage->limit - more);
}

// From the driver; what is cached is given back when it has no more, or when the limit is reached. No lock is
// held meanwhile: the driver may wait for the device.
Status BlockPool::allocate(const Key &key, Pinned pinned, void **out) noexcept {
    collect_spares();
    {
        const std::lock_guard lock(mutex_);
        if (usage_of(key) == nullptr) return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    }
    const auto [kind, device, list, size] = key;
    if (over_limit(key)) trim(pinned);
    Status status = CUKERN_OUT_OF_MEMORY;
    if (over_limit(key)) {
        fail(CUKERN_OUT_OF_MEMORY, "the limit of %lld bytes of %s memory is reached",
             static_cast<long long>(usage(kind, device).limit), name_of(kind));
    } else {
        status = runtime_.allocate(kind, size, out);
        if (status == CUKERN_OUT_OF_MEMORY) {
            const bool gave =
                pinned == Pinned::free_pinned && give_reserve_back_ != nullptr && give_reserve_back_(reserve_);
            if (trim(pinned) || gave) status = runtime_.allocate(kind, size, out);
        }
    }
    if (status != CUKERN_OK) return describe_failure(key, status);
    const std::lock_guard lock(mutex_);
    usage_of(key)->in_use += static_cast<std::int64_t>(size);
    return CUKERN_OK;
}

Status BlockPool::describe_failure(const Key &key, Status status) noexcept {
    if (status != CUKERN_OUT_OF_MEMORY) return status;
    const auto [kind, device, list, size] = key;
    std::int64_t free = 0;
    std::int64_t total = 0;
    {
        const ErrorKeeper cause;
        runtime_.device_memory(&free, &total);
    }
    const Usage now = usage(kind, device);
    add_to_message(
        " (asked for %zu bytes of %s memory on device %d; %lld free there, %lld in use by cukern and %lld "
        "cached)",
        size, name_of(kind), device, static_cast<long long>(free), static_cast<long long>(now.in_use),
        static_cast<long long>(now.cached));
    return status;
}

void BlockPool::release(MemoryKind kind, void *data, std::size_t bytes, int device, std::uint64_t list,
                        const Events &events, bool lent) noexcept {
    const Key key = key_of(kind, bytes, device, list);
    const auto size = static_cast<std::int64_t>(std::get<3>(key));
    const std::lock_guard lock(mutex_);
    FreeList *list_of_key = find_list(key);
    Usage &usage = list_of_key != nullptr ? *list_of_key->usage : *usage_of(key);  // made when the block was
    usage.in_use -= size;
    Events left = events;
    if (left.count == 0 && !lent) {
        if (!keep(key, data)) runtime_.release(kind, data);
        return;
    }
    try {
        waiting_.push_back({key, data, left, lent});
        usage.cached += size;
    } catch (...) {  // no host memory for the list: the driver's release waits for the device
        runtime_.release(kind, data);
        left.release(events_);
        return;
    }
    if (!enabled_ || waiting_.size() > collect_threshold_) collect();
}

void BlockPool::forget_stream(const StreamRef &stream) noexcept {
    const std::lock_guard lock(mutex_);
    for (Waiting &block : waiting_)
        if (std::get<1>(block.key) == stream.device && std::get<2>(block.key) == stream.id)
            std::get<2>(block.key) = kIdle;
    for (auto entry = free_.begin(); entry != free_.end();) {
        auto [kind, device, list, size] = entry->first;
        if (device != stream.device || list != stream.id) {
            ++entry;
            continue;
        }
        // The stream's last work on a block may be on its way: the block waits for it aside.
        for (void *data : entry->second.blocks) {
            Event event = nullptr;
            Status status = events_.acquire(device, &event);
            if (status == CUKERN_OK) status = runtime_.record(event, stream.handle);
            Events events;
            if (event != nullptr) events.add(event, device);
            bool kept = status == CUKERN_OK;
            try {
                if (kept) waiting_.push_back({{kind, device, kIdle, size}, data, events, false});
            } catch (...) {
                kept = false;
            }
            if (kept) continue;
            subtract_cached(entry->first);
            runtime_.release(kind, data);
            events.release(events_);
        }
        entry = free_.erase(entry);
    }
    reset_last_list();
}

// False when there is no host memory for the list, or nothing is to be kept.
bool BlockPool::keep(const Key &key, void *data) noexcept {
    if (!enabled_) return false;
    FreeList *list = find_list(key);
    try {
        if (list == nullptr) {
            list = &free_[key];
            list->usage = usage_of(key);  // made when the block was
        }
        list->blocks.push_back(data);
    } catch (...) {
        return false;
    }
    list->usage->cached += static_cast<std::int64_t>(std::get<3>(key));
    return true;
}

void BlockPool::subtract_cached(const Key &key) noexcept {
    usage_of(key)->cached -= static_cast<std::int64_t>(std::get<3>(key));
}

bool BlockPool::serves(const Key &own, const Key &key) noexcept {
    return std::get<0>(own) == std::get<0>(key) && std::get<1>(own) == std::get<1>(key) &&
           std::get<3>(own) == std::get<3>(key);
}

// Records an event on the device's context for each lent block that can serve `key` (null: all). This ends every
// capture in the context, so it is done only before asking the driver for memory. Returns whether there were any.
bool BlockPool::record_lent_events(const Key *key) noexcept {
    if (any_graph_captured()) return false;
    bool any = false;
    for (Waiting &block : waiting_) {
        if (!block.lent || (key != nullptr && !serves(block.key, *key))) continue;
        const int device = std::get<1>(block.key);
        const DeviceGuard guard(runtime_, device);
        Event event = nullptr;
        if (guard.status() != CUKERN_OK || events_.acquire(device, &event) != CUKERN_OK) return any;
        if (runtime_.record_all(event) != CUKERN_OK) {
            events_.release(device, event);
            return any;  // another time
        }
        block.events.add(event, device);
        block.lent = false;
        any = true;
    }
    return any;
}

// Blocks whose events have completed go to their free lists.
void BlockPool::collect() noexcept {
    std::size_t left = 0;
    for (Waiting &block : waiting_) {
        if (block.lent || !block.events.done(runtime_)) {
            if (&waiting_[left] != &block) waiting_[left] = block;
            ++left;
            continue;
        }
        block.events.release(events_);
        subtract_cached(block.key);
        if (!keep(block.key, block.data)) runtime_.release(std::get<0>(block.key), block.data);
    }
    waiting_.resize(left);
    collect_threshold_ = 2 * left + kCollectThreshold;
}

// The driver may free pinned memory without waiting (it waits for device memory): wait here first.
Status BlockPool::wait_for_pinned(const Lists &free, const std::vector<Waiting> &waiting) noexcept {
    bool any = false;
    for (const auto &[key, list] : free)
        any = any || (std::get<0>(key) == MemoryKind::pinned && !list.blocks.empty());
    for (const Waiting &block : waiting) any = any || std::get<0>(block.key) == MemoryKind::pinned;
    for (int device = 0; any && device < runtime_.device_count(); ++device) {
        const DeviceGuard guard(runtime_, device);
        CUKERN_TRY(guard.status());
        CUKERN_TRY(runtime_.synchronize_device());
    }
    return CUKERN_OK;
}

// Where the device cannot be waited for, as in a capture, pinned memory is put back.
bool BlockPool::trim(Pinned pinned) noexcept {
    collect_spares();
    if (workspaces_ != nullptr) workspaces_->give_back();
    Lists free;
    std::vector<Waiting> waiting;
    {
        const std::lock_guard lock(mutex_);
        free.swap(free_);
        reset_last_list();
        waiting.swap(waiting_);
        collect_threshold_ = kCollectThreshold;
        for (const auto &[key, list] : free)
            for (std::size_t i = 0; i < list.blocks.size(); ++i) subtract_cached(key);
        for (const Waiting &block : waiting) subtract_cached(block.key);
    }
    bool idle = false;
    {
        const ErrorKeeper before;  // of the call that needs the memory
        idle = pinned == Pinned::free_pinned && wait_for_pinned(free, waiting) == CUKERN_OK;
    }
    const auto stays = [idle](const Key &key) { return !idle && std::get<0>(key) == MemoryKind::pinned; };
    bool any = false;
    for (const auto &[key, list] : free) {
        if (stays(key)) continue;
        for (void *data : list.blocks) runtime_.release(std::get<0>(key), data);
        any = any || !list.blocks.empty();
    }
    for (Waiting &block : waiting) {
        if (stays(block.key)) continue;
        runtime_.release(std::get<0>(block.key), block.data);
        block.events.release(events_);
        any = true;
    }
    if (!idle) put_back(free, waiting);
    return any;
}

void BlockPool::put_back(const Lists &free, const std::vector<Waiting> &waiting) noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto &[key, list] : free)
        for (void *data : list.blocks)
            if (std::get<0>(key) == MemoryKind::pinned) keep(key, data);
    for (const Waiting &block : waiting) {
        if (std::get<0>(block.key) != MemoryKind::pinned) continue;
        try {
            waiting_.push_back(block);
        } catch (...) {
            continue;  // lost: it may still be worked on
        }
        usage_of(block.key)->cached += static_cast<std::int64_t>(std::get<3>(block.key));
    }
}

void BlockPool::set_limit(MemoryKind kind, int device, std::int64_t bytes) noexcept {
    collect_spares();
    bool over = false;
    {
        const std::lock_guard lock(mutex_);
        Usage *usage = usage_of({kind, device, 0, 0});
        if (usage == nullptr) return;
        usage->limit = bytes;
        over = bytes > 0 && usage->in_use + usage->cached > bytes;
    }
    if (over) trim();
}

BlockPool::Usage BlockPool::usage(MemoryKind kind, int device) noexcept {
    collect_spares();
    Usage usage;
    {
        const std::lock_guard lock(mutex_);
        const auto found = usage_.find({kind, device});
        if (found != usage_.end()) usage = found->second;
    }
    return with_workspaces(usage, kind, device);
}

BlockPool::Usage BlockPool::usage(MemoryKind kind) noexcept {
    collect_spares();
    Usage sum;
    {
        const std::lock_guard lock(mutex_);
        for (const auto &[key, usage] : usage_) {
            if (key.first != kind) continue;
            sum.in_use += usage.in_use;
            sum.cached += usage.cached;
        }
    }
    return with_workspaces(sum, kind, -1);
}

BlockPool::Usage BlockPool::with_workspaces(Usage usage, MemoryKind kind, int device) noexcept {
    if (workspaces_ == nullptr || kind != MemoryKind::device) return usage;
    const std::int64_t idle = workspaces_->idle_bytes(device);
    usage.in_use -= idle;
    usage.cached += idle;
    return usage;
}

}  // namespace cukern
