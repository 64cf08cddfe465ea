#include "cukern/storage.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "context.h"

namespace cukern {
namespace {

// A handle of the caller's may be of a stream that is gone when we next need it; a stream of ours and the legacy
// default stream are not. The per-thread default stream is another one on another thread.
bool lasts(const StreamRef &stream) noexcept { return stream.id == 0 || stream.owner != nullptr; }

// A foreign owner whose memory is still worked on.
struct WaitingOwner {
    Context *context;
    int device;
    std::vector<Event> events;
    Storage::Release release;
    void *owner;
};

struct WaitingOwners {
    std::mutex mutex;
    std::vector<WaitingOwner> list;
    std::atomic<std::int64_t> count{0};
    int generation = 0;
};
WaitingOwners &waiting() noexcept {
    alignas(WaitingOwners) static unsigned char memory[sizeof(WaitingOwners)];
    static auto *const instance = new (memory) WaitingOwners;  // never destroyed
    return *instance;
}

Status no_memory() noexcept { return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left"); }

// An event after all that a use has done, for the caller to give back; an event that was recorded at once is
// taken.
Status event_of(Context &context, Use &use, Event *out) noexcept {
    if (use.event != nullptr) {
        *out = std::exchange(use.event, nullptr);
        return CUKERN_OK;
    }
    const DeviceGuard guard(context.runtime, use.device);
    CUKERN_TRY(guard.status());
    CUKERN_TRY(context.events.acquire(use.device, out));
    const Status status = context.runtime.record(*out, use.handle);
    if (status != CUKERN_OK) context.events.release(use.device, *out);
    return status;
}

// An event after all that the device has been asked for.
Status event_of_all(Context &context, int device, Event *out) noexcept {
    const DeviceGuard guard(context.runtime, device);
    CUKERN_TRY(guard.status());
    CUKERN_TRY(context.events.acquire(device, out));
    const Status status = context.runtime.record_all(*out);
    if (status != CUKERN_OK) context.events.release(device, *out);
    return status;
}

void wait_for_owner(Context *context, int device, const Event *events, int count, Storage::Release release,
                    void *owner) noexcept {
    WaitingOwners &w = waiting();
    bool remembered = true;
    try {
        const std::lock_guard lock(w.mutex);
        w.list.push_back({context, device, {events, events + count}, release, owner});
        w.count.store(static_cast<std::int64_t>(w.list.size()), std::memory_order_relaxed);
    } catch (...) {
        remembered = false;
    }
    if (remembered) return;
    // No memory to remember it by: wait here.
    for (int i = 0; i < count; ++i) {
        context->runtime.synchronize_event(events[i]);
        context->events.release(device, events[i]);
    }
    release(owner);
}

}  // namespace

HostWait::~HostWait() {
    for (int i = 0; i < count_; ++i)
        if (uses_[i].owner != nullptr) uses_[i].owner->release();
}

Status HostWait::wait() noexcept {
    for (int i = 0; i < count_; ++i) {
        CUKERN_TRY(context_->runtime.ready());
        const Use &use = uses_[i];
        if (use.event != nullptr) {
            CUKERN_TRY(context_->runtime.synchronize_event(use.event));
            continue;
        }
        const DeviceGuard guard(context_->runtime, use.device);
        CUKERN_TRY(guard.status());
        CUKERN_TRY(context_->runtime.synchronize(use.handle));
    }
    return CUKERN_OK;
}

Status Storage::allocate(MemoryKind kind, std::size_t bytes, const StreamRef &stream, Storage **out) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    auto *storage = new (std::nothrow) Storage;
    if (storage == nullptr) return no_memory();
    storage->context_ = active;
    storage->generation_ = fork_generation();
    storage->kind_ = kind;
    storage->device_ = stream.device;
    storage->home_ = stream.id;
    if (bytes > 0) {
        const DeviceGuard guard(active->runtime, stream.device);
        Status status = guard.status();
        if (status == CUKERN_OK)
            status = active->blocks.acquire(kind, bytes, stream.device, stream.id, &storage->data_);
        if (status != CUKERN_OK) {
            delete storage;
            return status;
        }
    }
    storage->bytes_ = bytes;
    storage->home_owner_ = stream.owner;
    if (stream.owner != nullptr) stream.owner->retain();
    // A block that was used before may still be worked on in its stream, which the host does not know.
    if (on_host(kind) && bytes > 0) {
        if (const Status status = storage->note(stream, true); status != CUKERN_OK) {
            storage->release();
            return status;
        }
    }
    *out = storage;
    return CUKERN_OK;
}

Status Storage::adopt(MemoryKind kind, void *data, std::size_t bytes, int device, Release release, void *owner,
                      Storage **out) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    auto *storage = new (std::nothrow) Storage;
    if (storage == nullptr) return no_memory();
    storage->context_ = active;
    storage->generation_ = fork_generation();
    storage->kind_ = kind;
    storage->data_ = data;
    storage->bytes_ = bytes;
    storage->device_ = device;
    storage->release_ = release;
    storage->owner_ = owner;
    *out = storage;
    return CUKERN_OK;
}

Backend Storage::backend() const noexcept { return context_->runtime.backend(); }

void Storage::drop(int index) noexcept {
    Use &use = uses_[index];
    if (use.event != nullptr) context_->events.release(use.device, use.event);
    if (use.owner != nullptr) use.owner->release();
    if (index != --count_) use = uses_[count_];
    uses_[count_] = {};
}

Status Storage::order_slow(const StreamRef &stream, bool write) noexcept {
    if (generation_ != fork_generation()) return CUKERN_OK;
    bool capturing = false;
    CUKERN_TRY(stream_is_capturing(stream, &capturing));
    if (capturing) return CUKERN_OK;  // a graph waits for nothing outside it: what came before is synchronised
    Runtime &runtime = context_->runtime;
    for (int i = count_ - 1; i >= 0; --i) {
        Use &use = uses_[i];
        if (use.id == stream.id && use.device == stream.device) continue;
        if (!use.wrote && !write) continue;
        const bool keeps = use.event != nullptr;
        Event event = nullptr;
        CUKERN_TRY(event_of(*context_, use, &event));
        Status status = CUKERN_OK;
        {
            const DeviceGuard guard(runtime, stream.device);
            status = guard.status() == CUKERN_OK ? runtime.wait_event(stream.handle, event) : guard.status();
        }
        if (keeps)
            use.event = event;
        else
            context_->events.release(use.device, event);
        CUKERN_TRY(status);
        // What follows a write follows what that write has waited for.
        if (write) drop(i);
    }
    return CUKERN_OK;
}

Status Storage::note_slow(const StreamRef &stream, bool write) noexcept {
    if (generation_ != fork_generation()) return CUKERN_OK;
    bool capturing = false;
    CUKERN_TRY(stream_is_capturing(stream, &capturing));
    if (capturing) {
        captured_ = true;
        return CUKERN_OK;
    }
    ++version_;
    int at = 0;
    while (at < count_ && (uses_[at].id != stream.id || uses_[at].device != stream.device)) ++at;
    if (at == kMostUses) {  // this stream takes over from another: it waits for it
        Event event = nullptr;
        Use &oldest = uses_[0];
        CUKERN_TRY(event_of(*context_, oldest, &event));
        Status status = CUKERN_OK;
        {
            const DeviceGuard guard(context_->runtime, stream.device);
            status =
                guard.status() == CUKERN_OK ? context_->runtime.wait_event(stream.handle, event) : guard.status();
        }
        context_->events.release(oldest.device, event);
        CUKERN_TRY(status);
        write = write || oldest.wrote;
        drop(0);
        at = count_;
    }
    Use &use = uses_[at];
    if (!lasts(stream)) {
        const DeviceGuard guard(context_->runtime, stream.device);
        CUKERN_TRY(guard.status());
        if (use.event == nullptr) CUKERN_TRY(context_->events.acquire(stream.device, &use.event));
        if (const Status status = context_->runtime.record(use.event, stream.handle); status != CUKERN_OK) {
            // Without its event the work can only be waited for here.
            context_->runtime.synchronize(stream.handle);
            if (at == count_) context_->events.release(stream.device, std::exchange(use.event, nullptr));
            return status;
        }
    }
    if (at == count_) {
        use.id = stream.id;
        use.handle = stream.handle;
        use.owner = stream.owner;
        use.device = stream.device;
        use.wrote = false;
        if (use.owner != nullptr) use.owner->retain();
        ++count_;
    }
    use.wrote = use.wrote || write;
    return CUKERN_OK;
}

Status Storage::pending(bool write, HostWait *wait) noexcept {
    if (generation_ != fork_generation()) return CUKERN_OK;
    wait->context_ = context_;
    wait->version_ = version_;
    for (int i = 0; i < count_; ++i) {
        if (!uses_[i].wrote && !write) continue;
        Use &copy = wait->uses_[wait->count_++];
        copy = uses_[i];
        if (copy.owner != nullptr) copy.owner->retain();
    }
    return CUKERN_OK;
}

void Storage::waited(bool write, const HostWait &wait) noexcept {
    if (version_ != wait.version_) return;
    for (int i = count_ - 1; i >= 0; --i)
        if (uses_[i].wrote || write) drop(i);
}

void Storage::release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
}

void Storage::destroy() noexcept {
    const ErrorRecord kept = last_error();   // a destructor must not replace what a caller is about to report
    if (generation_ != fork_generation()) {  // inherited by a child of fork, which frees nothing
        if (home_owner_ != nullptr) home_owner_->release();
        for (int i = 0; i < count_; ++i)
            if (uses_[i].owner != nullptr) uses_[i].owner->release();
        delete this;
        return;
    }
    // The events that must pass before the memory is anybody else's. A block's own stream needs none: its next
    // user comes after what is there now.
    Event events[kMostUses + 1];
    int num_events = 0;
    bool known = true;
    if (lent_) {
        known = event_of_all(*context_, device_, &events[0]) == CUKERN_OK;
        num_events = known ? 1 : 0;
    } else {
        for (int i = 0; i < count_ && known; ++i) {
            Use &use = uses_[i];
            if (release_ == nullptr && use.id == home_ && use.device == device_) continue;
            if (use.device != device_) {  // the pools of events are by device; this is rare
                known = false;
                continue;
            }
            known = event_of(*context_, use, &events[num_events]) == CUKERN_OK;
            if (known) ++num_events;
        }
    }
    if (!known && !captured_) {  // no event could be had: the driver's own release waits for the device
        const DeviceGuard guard(context_->runtime, device_);
        if (release_ != nullptr || kind_ == MemoryKind::pinned) context_->runtime.synchronize_device();
    }
    if (!known)
        for (; num_events > 0; --num_events) context_->events.release(device_, events[num_events - 1]);
    while (count_ > 0) drop(count_ - 1);
    if (release_ != nullptr) {
        if (num_events == 0)
            release_(owner_);
        else
            wait_for_owner(context_, device_, events, num_events, release_, owner_);
    } else if (data_ != nullptr) {
        const DeviceGuard guard(context_->runtime, device_);
        BlockPool &blocks = context_->blocks;
        if (captured_ || !known)
            blocks.retire(kind_, data_, bytes_, device_);
        else if (num_events > 0)
            blocks.release_after(kind_, data_, bytes_, device_, home_, events, num_events);
        else
            blocks.release(kind_, data_, bytes_, device_, home_);
        if (captured_ || !known)
            for (int i = 0; i < num_events; ++i) context_->events.release(device_, events[i]);
    }
    if (home_owner_ != nullptr) home_owner_->release();
    last_error() = kept;
    delete this;
}

Status release_after(const StreamRef &stream, Storage::Release release, void *owner) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    const DeviceGuard guard(active->runtime, stream.device);
    CUKERN_TRY(guard.status());
    Event event = nullptr;
    CUKERN_TRY(active->events.acquire(stream.device, &event));
    if (const Status status = active->runtime.record(event, stream.handle); status != CUKERN_OK) {
        active->events.release(stream.device, event);
        return status;
    }
    wait_for_owner(active, stream.device, &event, 1, release, owner);
    return CUKERN_OK;
}

void release_finished() noexcept {
    WaitingOwners &w = waiting();
    if (w.count.load(std::memory_order_relaxed) == 0) return;
    std::vector<WaitingOwner> finished;
    {
        const std::lock_guard lock(w.mutex);
        if (w.generation != fork_generation()) {  // inherited by a child of fork, which frees nothing
            w.generation = fork_generation();
            alignas(std::vector<WaitingOwner>) static unsigned char inherited[sizeof(std::vector<WaitingOwner>)];
            new (inherited) std::vector<WaitingOwner>(std::move(w.list));  // never destroyed
            w.list = {};
        }
        try {
            finished.reserve(w.list.size());
        } catch (...) {
            return;
        }
        for (std::size_t i = w.list.size(); i-- > 0;) {
            WaitingOwner &entry = w.list[i];
            bool done = true;
            for (Event event : entry.events)
                if (done && entry.context->runtime.event_done(event, &done) != CUKERN_OK) done = false;
            if (!done) continue;
            finished.push_back(std::move(entry));
            if (i + 1 != w.list.size()) entry = std::move(w.list.back());
            w.list.pop_back();
        }
        w.count.store(static_cast<std::int64_t>(w.list.size()), std::memory_order_relaxed);
    }
    for (const WaitingOwner &entry : finished) {
        for (Event event : entry.events) entry.context->events.release(entry.device, event);
        entry.release(entry.owner);  // may run any code: no lock is held
    }
}

std::int64_t waiting_owners() noexcept { return waiting().count.load(std::memory_order_relaxed); }

}  // namespace cukern
