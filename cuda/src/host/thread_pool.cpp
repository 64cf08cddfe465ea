#include "host/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <new>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/control_groups.h"

namespace cukern {
namespace {

constexpr std::chrono::microseconds kLinger{100};
constexpr std::chrono::microseconds kLastPart{20};  // that a caller waits awake for

// One parallel_for, on its caller's stack. Workers hold it only between `enter` and `leave`.
struct Job {
    ParallelBody body;
    void *context;
    std::int64_t n;
    std::int64_t step;
    std::atomic<std::int64_t> next;  // behind the first part, which is the caller's
    std::atomic<int> workers{0};     // changed under the pool's mutex, which guards the link, too
    Job *link = nullptr;             // to the job that was posted before

    // The caller takes part in the work however late it is: it alone reports how far long work has come, and sees
    // signals.
    void run_as_caller() noexcept {
        body(context, 0, std::min(step, n));
        run();
    }

    void run() noexcept {
        for (;;) {
            const std::int64_t begin = next.fetch_add(step, std::memory_order_relaxed);
            if (begin >= n) return;
            body(context, begin, std::min(begin + step, n));
        }
    }
};

constexpr int kMostThreads = 1024;

// CUKERN_NUM_THREADS; 0 where it is not set or empty, -1 where it is no number of threads.
int asked_threads() noexcept {
    const char *text = std::getenv("CUKERN_NUM_THREADS");
    if (text == nullptr || text[0] == '\0') return 0;
    char *end = nullptr;
    const long n = std::strtol(text, &end, 10);
    return *end == '\0' && n > 0 && n <= std::numeric_limits<int>::max() ? static_cast<int>(n) : -1;
}

class ThreadPool {
public:
    int threads() const noexcept { return threads_; }

    void run(Job &job, int helpers) noexcept {
        {
            const std::lock_guard lock(mutex_);
            start(helpers);
            job.link = std::exchange(jobs_, &job);
            posted_.fetch_add(1, std::memory_order_release);
        }
        for (int i = std::min(helpers, threads_ - 1); i > 0; --i) wake_.notify_one();
        job.run_as_caller();
        std::unique_lock lock(mutex_);
        Job **place = &jobs_;
        while (*place != &job) place = &(*place)->link;
        *place = job.link;
        if (job.workers == 0) return;
        lock.unlock();
        wait_awake(kLastPart, [&] { return job.workers.load(std::memory_order_relaxed) == 0; });
        lock.lock();  // a worker that is done has let the job go only when it gives the mutex up
        done_.wait(lock, [&] { return job.workers == 0; });
    }

private:
    // Threads are started when first wanted. They are detached: the pool lives as long as the process.
    void start(int wanted) noexcept {
        while (started_ < std::min(wanted, threads_ - 1)) {
            try {
                std::thread([this] { work(); }).detach();
            } catch (...) {
                return;  // the system has no more: the caller does the work itself
            }
            ++started_;
        }
    }

    void work() noexcept {
        std::unique_lock lock(mutex_);
        for (;;) {
            Job *job = nullptr;
            wake_.wait(lock, [&] { return (job = open_job()) != nullptr; });
            ++job->workers;
            lock.unlock();
            job->run();
            lock.lock();
            if (--job->workers == 0) done_.notify_all();
            const std::int64_t seen = posted_.load(std::memory_order_relaxed);
            lock.unlock();
            linger(seen);
            lock.lock();
        }
    }

    // A transfer posts a job a chunk: a thread that is still awake takes the next one at once, where waking it
    // costs as much as the work.
    void linger(std::int64_t seen) const noexcept {
        wait_awake(kLinger, [&] { return posted_.load(std::memory_order_acquire) != seen; });
    }

    template <typename IsOver>
    static void wait_awake(std::chrono::microseconds most, const IsOver &is_over) noexcept {
        const auto end = std::chrono::steady_clock::now() + most;
        while (!is_over() && std::chrono::steady_clock::now() < end)
            for (int i = 0; i < 32; ++i) pause();
    }

    static void pause() noexcept {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    Job *open_job() noexcept {
        for (Job *job = jobs_; job != nullptr; job = job->link)
            if (job->next.load(std::memory_order_relaxed) < job->n) return job;
        return nullptr;
    }

    static int usable_cpus() noexcept {
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
        const int quota = cpu_quota();
        return std::max(1, quota > 0 ? std::min(quota, CPU_COUNT(&set)) : CPU_COUNT(&set));
    }

    static int configured_threads() noexcept {
        const int n = asked_threads();
        return n > 0 ? std::min(n, kMostThreads) : usable_cpus();
    }

    const int threads_ = configured_threads();
    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable done_;
    Job *jobs_ = nullptr;
    int started_ = 0;
    std::atomic<std::int64_t> posted_{0};  // jobs so far
};

std::atomic<ThreadPool *> g_pool{nullptr};

// A child of fork has none of the threads: it leaves the inherited pool alone and makes its own when needed.
void forget_pool() noexcept { g_pool.store(nullptr, std::memory_order_relaxed); }

ThreadPool *pool() noexcept {
    ThreadPool *current = g_pool.load(std::memory_order_acquire);
    if (current != nullptr) return current;
    static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
    (void)registered;
    auto *fresh = new (std::nothrow) ThreadPool;
    if (fresh == nullptr) return nullptr;
    if (g_pool.compare_exchange_strong(current, fresh, std::memory_order_acq_rel)) return fresh;
    delete fresh;
    return current;
}

}  // namespace

bool is_thread_count_valid() noexcept { return asked_threads() >= 0; }

int pool_threads() noexcept {
    const ThreadPool *const workers = pool();
    return workers == nullptr ? 1 : workers->threads();
}

void parallel_for(std::int64_t n, std::int64_t grain, ParallelBody body, void *context) noexcept {
    if (n <= 0) return;
    grain = std::max<std::int64_t>(grain, 1);
    ThreadPool *workers = n > grain ? pool() : nullptr;
    if (workers == nullptr || workers->threads() == 1) {
        body(context, 0, n);
        return;
    }
    // A few parts a thread, so that one that is slow, or wakes up late, does not hold up the rest.
    const std::int64_t threads = std::min<std::int64_t>(workers->threads(), (n + grain - 1) / grain);
    const std::int64_t parts = std::min(n, 4 * threads);
    Job job;
    job.body = body;
    job.context = context;
    job.n = n;
    job.step = (n + parts - 1) / parts;
    job.next.store(job.step, std::memory_order_relaxed);
    workers->run(job, static_cast<int>(threads) - 1);
}

}  // namespace cukern
