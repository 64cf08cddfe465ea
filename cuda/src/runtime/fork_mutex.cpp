#include "runtime/fork_mutex.h"

#include <pthread.h>

#include <atomic>

namespace cukern {
namespace {

std::atomic<ForkMutex *> g_first{nullptr};

}  // namespace

ForkMutex::ForkMutex() noexcept {
    static const int registered = pthread_atfork(nullptr, nullptr, renew_all);
    (void)registered;
    next_ = g_first.load(std::memory_order_relaxed);
    while (!g_first.compare_exchange_weak(next_, this, std::memory_order_release)) {}
}

// Called in the child, which has one thread.
void ForkMutex::renew_all() noexcept {
    for (ForkMutex *each = g_first.load(std::memory_order_acquire); each != nullptr; each = each->next_)
        new (&each->mutex_) std::mutex;
}

}  // namespace cukern
