// The only pool of CPU threads in the project: kernels of the host back-end and copies of staging run on it.
#pragma once

#include <cstdint>
#include <type_traits>

namespace cukern {

// Whether CUKERN_NUM_THREADS is unset or a valid number of threads.
bool is_thread_count_valid() noexcept;

// The threads that parallel_for may use, the caller's among them.
int pool_threads() noexcept;

using ParallelBody = void (*)(void *context, std::int64_t begin, std::int64_t end);

// Calls body(context, begin, end) on parts that cover [0, n), on the calling thread and on the pool's, one for
// each `grain` at most: what is worth waking a thread. Returns when all are done. CUKERN_NUM_THREADS limits the
// threads; the default is the number of CPUs that this process may use.
void parallel_for(std::int64_t n, std::int64_t grain, ParallelBody body, void *context) noexcept;

template <typename F>
void parallel_for(std::int64_t n, std::int64_t grain, F &&body) noexcept {
    parallel_for(
        n, grain,
        [](void *context, std::int64_t begin, std::int64_t end) {
            (*static_cast<std::remove_reference_t<F> *>(context))(begin, end);
        },
        &body);
}

}  // namespace cukern
