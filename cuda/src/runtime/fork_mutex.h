// A mutex that a child of fork finds unlocked, whatever the parent's other threads were doing.
#pragma once

#include <mutex>

namespace cukern {

// For objects that live as long as the process: it is never destroyed. What it guards may be half changed in the
// child, which must not rely on it.
class ForkMutex {
public:
    ForkMutex() noexcept;
    ~ForkMutex() = default;
    ForkMutex(const ForkMutex &) = delete;
    ForkMutex &operator=(const ForkMutex &) = delete;
    void lock() { mutex_.lock(); }
    void unlock() noexcept { mutex_.unlock(); }

private:
    static void renew_all() noexcept;

    std::mutex mutex_;
    ForkMutex *next_ = nullptr;
};

}  // namespace cukern
