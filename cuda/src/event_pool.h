// Events without times, kept for reuse: making one costs more than recording it.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "runtime.h"

namespace cukern {

class EventPool {
public:
    explicit EventPool(Runtime &runtime) noexcept : runtime_(runtime) {}

    // `device` must be current.
    Status acquire(int device, Event *out) noexcept {
        {
            const std::lock_guard lock(mutex_);
            std::vector<Event> &list = free_[device];
            if (!list.empty()) {
                *out = list.back();
                list.pop_back();
                return CUKERN_OK;
            }
        }
        return runtime_.create_event(false, out);
    }

    // A stream that waits for the event may still do so: recording it again does not concern that wait.
    void release(int device, Event event) noexcept {
        const std::lock_guard lock(mutex_);
        try {
            free_[device].push_back(event);
        } catch (...) {
            runtime_.destroy_event(event);
        }
    }

    // Only where no thread waits for one on the host.
    void empty() noexcept {
        const std::lock_guard lock(mutex_);
        for (auto &[device, list] : free_)
            for (Event event : list) runtime_.destroy_event(event);
        free_.clear();
    }

private:
    Runtime &runtime_;
    std::mutex mutex_;
    std::map<int, std::vector<Event>> free_;
};

}  // namespace cukern
