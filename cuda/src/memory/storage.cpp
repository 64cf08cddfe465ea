#include "cukern/storage.h"

#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "context/context.h"
#include "cukern/graph.h"
#include "memory/waiting_owners.h"
#include "runtime/fork_mutex.h"

namespace cukern {
namespace {

std::atomic<std::int64_t> g_released{0};

std::atomic<std::int64_t> g_deferred{0};

// Storages that nobody refers to any more, whose streams are being captured: g_deferred of them.
struct DeferredStorages {
    ForkMutex mutex;
    std::vector<Storage *> list;
    int generation = 0;

    void leave_inherited() noexcept {
        if (generation == fork_generation()) return;
        generation = fork_generation();
        new (&list) std::vector<Storage *>;  // the old one is never destroyed
    }
};
DeferredStorages &deferred_storages() noexcept {
    alignas(DeferredStorages) static unsigned char memory[sizeof(DeferredStorages)];
    static auto *const instance = new (memory) DeferredStorages;  // never destroyed
    return *instance;
}

// The memory of a Storage that was given up, for the next one.
std::atomic<void *> g_kept_memory{nullptr};

// While its stream is captured nothing can be waited for there, not even what it had been given before.
Status is_captured(Context &context, const Use &use, bool *captured) noexcept {
    *captured = false;
    return use.id == 0 ? CUKERN_OK : context.runtime.is_capturing(use.handle, captured);
}

Status refuse_captured() noexcept {
    return fail(CUKERN_CAPTURING,
                "memory was last used on a stream that is being captured now; what that stream was given before "
                "cannot be waited for until the capture ends");
}

// Records the event after a use's work, unless it has one (a foreign stream's is recorded at the launch).
Status record_event_of(Context &context, Use &use) noexcept {
    if (use.event != nullptr) return CUKERN_OK;
    bool captured = false;
    CUKERN_TRY(is_captured(context, use, &captured));
    if (captured) return refuse_captured();
    const DeviceGuard guard(context.runtime, use.device);
    CUKERN_TRY(guard.status());
    Event event = nullptr;
    CUKERN_TRY(context.events.acquire(use.device, &event));
    const Status status = context.runtime.record(event, use.handle);
    if (status == CUKERN_OK)
        use.event = event;
    else
        context.events.release(use.device, event);
    return status;
}

Status wait_for_use(Context &context, const StreamRef &stream, Use &use) noexcept {
    CUKERN_TRY(record_event_of(context, use));
    const DeviceGuard guard(context.runtime, stream.device);
    CUKERN_TRY(guard.status());
    return context.runtime.wait_event(stream.handle, use.event);
}

// After a failure no event covers the enqueued work, so the host waits for the stream here.
Status wait_after_failure(Context &context, const StreamRef &stream, Status status) noexcept {
    if (status == CUKERN_OK) return status;
    const ErrorKeeper cause;
    const DeviceGuard guard(context.runtime, stream.device);
    context.runtime.synchronize(stream.handle);
    return status;
}

}  // namespace

HostWait::~HostWait() {
    for (int i = 0; i < count_; ++i) {
        if (uses_[i].owner != nullptr) uses_[i].owner->release();
        if (uses_[i].event != nullptr) context_->events.let_go(uses_[i].device, uses_[i].event);
    }
}

Status HostWait::wait() noexcept {
    if (device_ >= 0) {
        const DeviceGuard guard(context_->runtime, device_);
        CUKERN_TRY(guard.status());
        CUKERN_TRY(context_->runtime.synchronize_device());
    }
    for (int i = 0; i < count_; ++i) {
        CUKERN_TRY(context_->runtime.ready());
        const Use &use = uses_[i];
        if (use.event != nullptr) {
            CUKERN_TRY(context_->runtime.synchronize_event(use.event));
            continue;
        }
        bool captured = false;
        CUKERN_TRY(is_captured(*context_, use, &captured));
        if (captured) return refuse_captured();
        const DeviceGuard guard(context_->runtime, use.device);
        CUKERN_TRY(guard.status());
        CUKERN_TRY(context_->runtime.synchronize(use.handle));
    }
    return CUKERN_OK;
}

Storage *Storage::fresh() noexcept {
    void *memory = g_kept_memory.exchange(nullptr, std::memory_order_acq_rel);
    if (memory == nullptr)
        memory = ::operator new(sizeof(Storage), std::align_val_t{alignof(Storage)}, std::nothrow);
    return memory != nullptr ? new (memory) Storage : nullptr;
}

void Storage::discard() noexcept {
    this->~Storage();
#ifdef __SANITIZE_ADDRESS__  // which looks for uses of what was freed
    void *const before = this;
#else
    void *const before = g_kept_memory.exchange(this, std::memory_order_acq_rel);
#endif
    ::operator delete(before, std::align_val_t{alignof(Storage)});
}

Backend Storage::backend() const noexcept { return context_->runtime.backend(); }

void Storage::drop(int index) noexcept {
    Use &use = uses_[index];
    if (use.event != nullptr) context_->events.release(use.device, use.event);
    if (use.owner != nullptr) use.owner->release();
    if (index != --count_) use = uses_[count_];
    uses_[count_] = {};
}

Status Storage::wait_before_use_slow(const StreamRef &stream, bool write) noexcept {
    if (generation_ != fork_generation()) return CUKERN_OK;
    bool asked = false;
    for (int i = 0; i < count_; ++i) {
        Use &use = uses_[i];
        // A foreign handle may belong to another stream by now than the one that was recorded.
        const bool own = has_lasting_id(stream) && use.id == stream.id && use.device == stream.device;
        if (own || (!use.wrote && !write) || use.awaited_by(stream)) continue;
        if (!asked) {
            bool capturing = false;
            CUKERN_TRY(stream_is_capturing(stream, &capturing));
            if (capturing) return CUKERN_OK;  // a graph waits for nothing outside it; see docs/architecture.md
            asked = true;
        }
        CUKERN_TRY(wait_for_use(*context_, stream, use));
        use.waiter = stream.id;
        use.waiter_device = stream.device;
        use.awaited = has_lasting_id(stream);  // a foreign id may belong to another stream later
    }
    return CUKERN_OK;
}

Status Storage::record_use_slow(const StreamRef &stream, bool write) noexcept {
    if (generation_ != fork_generation()) return CUKERN_OK;
    return wait_after_failure(*context_, stream, add_use(stream, write));
}

Status Storage::add_use(const StreamRef &stream, bool write) noexcept {
    int at = 0;
    while (at < count_ && (uses_[at].id != stream.id || uses_[at].device != stream.device)) ++at;
    if (at == count_ || !has_lasting_id(stream) || any_graph_captured()) {
        bool capturing = false;
        CUKERN_TRY(stream_is_capturing(stream, &capturing));
        if (capturing) {  // no work yet, and an event would be part of the graph
            if (Graph *graph = Graph::captured_on(stream); graph != nullptr)
                return graph->note_use(this, stream, write);
            captured_ = true;
            return CUKERN_OK;
        }
    }
    ++version_;
    if (at == kMostUses) {  // the list is full: `stream` waits for the first use and replaces it
        CUKERN_TRY(wait_for_use(*context_, stream, uses_[0]));
        write = write || uses_[0].wrote;
        drop(0);
        at = count_;
    }
    if (at == count_) {
        uses_[at] = Use(stream, false);
        if (stream.owner != nullptr) stream.owner->retain();
        ++count_;
    }
    Use &use = uses_[at];
    use.wrote = use.wrote || write;
    use.producer_only = false;
    use.awaited = false;
    if (has_lasting_id(stream)) {  // its event, if there was one, is of earlier work
        if (use.event != nullptr) context_->events.release(use.device, std::exchange(use.event, nullptr));
    } else {
        const DeviceGuard guard(context_->runtime, stream.device);
        CUKERN_TRY(guard.status());
        if (use.event == nullptr)
            CUKERN_TRY(context_->events.acquire(stream.device, &use.event));
        else  // of earlier work, maybe that of another stream with this handle
            CUKERN_TRY(context_->runtime.wait_event(stream.handle, use.event));
        CUKERN_TRY(context_->runtime.record(use.event, stream.handle));
    }
    // The write waited for all other uses, so later work need only wait for the write.
    for (int i = count_ - 1; write && i >= 0; --i)
        if (uses_[i].id != stream.id || uses_[i].device != stream.device) drop(i);
    return CUKERN_OK;
}

Status Storage::pending(bool write, HostWait *wait) noexcept {
    if (generation_ != fork_generation()) return context_->runtime.ready();  // a child may not have the memory
    wait->context_ = context_;
    wait->device_ = lent_ > 0 && on_host(kind_) ? device_ : -1;  // who borrows it tells of no stream
    wait->version_ = version_;
    for (int i = 0; i < count_; ++i) {
        if (!uses_[i].wrote && !write) continue;
        Use &copy = wait->uses_[wait->count_++];
        copy = uses_[i];
        if (copy.owner != nullptr) copy.owner->retain();
        if (copy.event != nullptr) context_->events.hold(copy.event);
    }
    return CUKERN_OK;
}

bool Storage::drop_waited(bool write, const HostWait &wait) noexcept {
    if (version_ != wait.version_) return false;
    for (int i = count_ - 1; i >= 0; --i)
        if (uses_[i].wrote || write) drop(i);
    return true;
}

void Storage::release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
}

// Collects the events that must complete before the memory is reused: none if only the stream of its free list
// used it, since that stream orders the next use. Where no event can be recorded, the host waits here.
void Storage::take_events(Events *events) noexcept {
    if (used_on_own_list_only()) return;
    for (int i = 0; i < count_; ++i) {
        Use &use = uses_[i];
        if (use.producer_only) continue;
        if (record_event_of(*context_, use) == CUKERN_OK) {
            events->add(std::exchange(use.event, nullptr), use.device);
            continue;
        }
        const DeviceGuard guard(context_->runtime, use.device);
        // Where the device cannot be waited for either, the memory is not used again.
        if (context_->runtime.synchronize_device() != CUKERN_OK && any_graph_captured()) captured_ = true;
    }
}

std::int64_t Storage::released() noexcept { return g_released.load(std::memory_order_relaxed); }

// Whether no event can be recorded for a use, because its stream is being captured.
bool Storage::waits_for_capture() const noexcept {
    if (count_ == 0 || used_on_own_list_only()) return false;
    const ErrorKeeper kept;
    bool captured = false;
    for (int i = 0; i < count_ && !captured; ++i)
        if (uses_[i].event == nullptr && !uses_[i].producer_only) is_captured(*context_, uses_[i], &captured);
    return captured;
}

bool Storage::defer_destruction() noexcept {
    DeferredStorages &p = deferred_storages();
    try {
        const std::lock_guard lock(p.mutex);
        p.leave_inherited();
        p.list.push_back(this);
        g_deferred.store(static_cast<std::int64_t>(p.list.size()), std::memory_order_relaxed);
        return true;
    } catch (...) {
        return false;
    }
}

void Storage::destroy_deferred() noexcept {
    if (g_deferred.load(std::memory_order_relaxed) == 0) return;
    DeferredStorages &p = deferred_storages();
    std::vector<Storage *> list;
    {
        const std::lock_guard lock(p.mutex);
        p.leave_inherited();
        list.swap(p.list);
        g_deferred.store(0, std::memory_order_relaxed);
    }
    for (Storage *storage : list) storage->destroy();  // which puts off again what is captured still
}

void Storage::destroy() noexcept {
    if (!is_graphs_ && give_as_spare()) {
        g_released.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    const bool frees = generation_ == fork_generation() && !captured_ && !is_graphs_;
    if (frees && waits_for_capture()) {
        if (defer_destruction()) return;
        captured_ = true;  // no host memory to remember it by: it is not used again
    }
    g_released.fetch_add(1, std::memory_order_relaxed);
    free_now();
}

void Storage::free_now() noexcept {
    if (generation_ != fork_generation()) {
        // A child of fork frees nothing that it inherited.
    } else if (is_graphs_) {
        context_->graph_blocks.give_back(static_cast<GraphBlocks::Owned *>(owner_));
    } else if (!captured_) {
        Events events;
        if (count_ > 0) {
            const ErrorKeeper kept;  // a destructor must not replace what a caller will report
            take_events(&events);
        }
        if (captured_ || (release_ == nullptr && data_ == nullptr)) {  // an array without elements has no memory
            events.release(context_->events);
        } else if (release_ != nullptr) {
            if (events.count == 0)
                release_(owner_);
            else
                release_when_done(context_, events, release_, owner_);
        } else {
            context_->blocks.release(kind_, data_, bytes_, device_, free_list_id_, events, lent_ > 0);
        }
    }
    for (int i = 0; i < count_; ++i) {
        if (uses_[i].event != nullptr && generation_ == fork_generation())
            context_->events.release(uses_[i].device, uses_[i].event);
        if (uses_[i].owner != nullptr) uses_[i].owner->release();
    }
    if (free_list_owner_ != nullptr) free_list_owner_->release();
    discard();
}

Status release_after(const StreamRef &stream, Storage::Release release, void *owner) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    Use use(stream, false);
    use.owner = nullptr;
    CUKERN_TRY(wait_after_failure(*active, stream, record_event_of(*active, use)));
    Events events;
    events.add(use.event, use.device);
    release_when_done(active, events, release, owner);
    return CUKERN_OK;
}

void release_finished() noexcept {
    Storage::destroy_deferred();
    release_waiting_owners();
}

}  // namespace cukern
