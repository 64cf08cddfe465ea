#include "memory/waiting_owners.h"

#include <deque>
#include <mutex>
#include <new>

#include "context/context.h"
#include "runtime/fork_mutex.h"

namespace cukern {
namespace {

// A foreign owner whose memory is still worked on.
struct WaitingOwner {
    Context *context;
    Events events;
    Storage::Release release;
    void *owner;
};

struct WaitingOwners {
    ForkMutex mutex;
    std::deque<WaitingOwner> list;
    std::atomic<std::int64_t> count{0};
    int generation = 0;

    // What a child of fork has inherited is left as it is: it frees nothing.
    void leave_inherited() noexcept {
        if (generation == fork_generation()) return;
        generation = fork_generation();
        new (&list) std::deque<WaitingOwner>;  // the old one is never destroyed
        count.store(0, std::memory_order_relaxed);
    }
    void counted() noexcept { count.store(static_cast<std::int64_t>(list.size()), std::memory_order_relaxed); }
};

WaitingOwners &waiting() noexcept {
    alignas(WaitingOwners) static unsigned char memory[sizeof(WaitingOwners)];
    static auto *const instance = new (memory) WaitingOwners;  // never destroyed
    return *instance;
}

// Releases up to `most` owners from the front of the list, which is the oldest; `all` looks behind those that
// wait. Whether any was.
bool release_owners(std::size_t most, bool all) noexcept {
    WaitingOwners &w = waiting();
    bool any = false;
    std::size_t at = 0;
    while (most-- > 0) {
        WaitingOwner finished{};
        {
            const std::lock_guard lock(w.mutex);
            w.leave_inherited();
            while (all && at < w.list.size() && !w.list[at].events.done(w.list[at].context->runtime)) ++at;
            if (at >= w.list.size() || (!all && !w.list[at].events.done(w.list[at].context->runtime))) return any;
            finished = w.list[at];
            w.list.erase(w.list.begin() + static_cast<std::ptrdiff_t>(at));
            w.counted();
        }
        finished.events.release(finished.context->events);
        finished.release(finished.owner);  // may run any code: no lock is held
        any = true;
    }
    return any;
}

}  // namespace

void release_when_done(Context *context, Events events, Storage::Release release, void *owner) noexcept {
    WaitingOwners &w = waiting();
    bool remembered = true;
    try {
        const std::lock_guard lock(w.mutex);
        w.leave_inherited();
        w.list.push_back({context, events, release, owner});
        w.counted();
    } catch (...) {
        remembered = false;
    }
    if (!remembered) {  // no memory to remember it by: wait here
        for (int i = 0; i < events.count; ++i) context->runtime.synchronize_event(events.list[i].event);
        events.release(context->events);
        release(owner);
        return;
    }
    release_owners(2, false);
}

void release_waiting_owners() noexcept {
    if (waiting().count.load(std::memory_order_relaxed) == 0) return;
    // An owner that goes may be what another one waited for.
    while (release_owners(~std::size_t{0}, true)) {}
}

std::int64_t waiting_owners() noexcept { return waiting().count.load(std::memory_order_relaxed); }

}  // namespace cukern
