// Events without times, kept for reuse: making one costs more than recording it.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "runtime/runtime.h"

namespace cukern {

class EventPool {
public:
    explicit EventPool(Runtime &runtime) noexcept : runtime_(runtime) {}

    // `device` must be current.
    Status acquire(int device, Event *out) noexcept {
        {
            const std::lock_guard lock(mutex_);
            if (const auto found = free_.find(device); found != free_.end() && !found->second.empty()) {
                *out = found->second.back();
                found->second.pop_back();
                return CUKERN_OK;
            }
        }
        return runtime_.create_event(false, out);
    }

    // A stream may still be waiting for the event; recording it again does not affect that wait. An event that the
    // host waits for (see hold) is reused only after let_go.
    void release(int device, Event event) noexcept {
        const std::lock_guard lock(mutex_);
        for (Held &held : held_) {
            if (held.event != event) continue;
            held.released = true;
            return;
        }
        keep(device, event);
    }

    // A thread is about to wait for an event on the host, and another one may release it meanwhile: the pool does
    // not reuse it until the last such thread has called let_go.
    void hold(Event event) noexcept {
        const std::lock_guard lock(mutex_);
        for (Held &held : held_) {
            if (held.event != event) continue;
            ++held.waits;
            return;
        }
        try {
            held_.push_back({event, 1, false});
        } catch (...) {
            return;  // no memory: the wait may return early
        }
    }
    void let_go(int device, Event event) noexcept {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < held_.size(); ++i) {
            if (held_[i].event != event || --held_[i].waits > 0) continue;
            if (held_[i].released) keep(device, event);
            held_[i] = held_.back();
            held_.pop_back();
            return;
        }
    }

    // Only where no thread waits for one on the host.
    void destroy_cached() noexcept {
        const std::lock_guard lock(mutex_);
        for (auto &[device, list] : free_)
            for (Event event : list) runtime_.destroy_event(event);
        free_.clear();
    }

private:
    struct Held {
        Event event;
        int waits;
        bool released;
    };
    void keep(int device, Event event) noexcept {
        try {
            free_[device].push_back(event);
        } catch (...) {
            runtime_.destroy_event(event);
        }
    }

    Runtime &runtime_;
    std::mutex mutex_;
    std::map<int, std::vector<Event>> free_;
    std::vector<Held> held_;  // few: one for each thread that waits
};

// A few events of any devices, such as those that some memory waits for. They are given back by hand.
struct Events {
    static constexpr int kMost = 5;
    struct One {
        Event event = nullptr;
        int device = 0;
    };
    One list[kMost];
    int count = 0;

    void add(Event event, int device) noexcept { list[count++] = {event, device}; }
    bool done(Runtime &runtime) const noexcept {
        bool passed = true;
        for (int i = 0; i < count && passed; ++i)
            if (runtime.event_done(list[i].event, &passed) != CUKERN_OK) passed = false;
        return passed;
    }
    void release(EventPool &pool) noexcept {
        for (int i = 0; i < count; ++i) pool.release(list[i].device, list[i].event);
        count = 0;
    }
};

}  // namespace cukern
