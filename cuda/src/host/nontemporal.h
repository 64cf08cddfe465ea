// Results that are stored past the caches (non-temporal stores).
//
// Idea: an ordinary store reads the cache line that it writes to, which of an addition is a quarter of all bytes
// that pass the memory bus. Large results are computed into a buffer, a few thousand bytes at a time, and stored
// by instructions that write whole lines; the arithmetic of floats stores there directly.
#pragma once

#include "host/loops.h"
#include "plan/launch.h"

namespace cukern::host {

// Whether a launch's results go past the caches: they are packed and large, and not in place of an operand, whose
// lines are in the caches anyway. Results that are converted on their way to out don't.
bool stores_past_caches(const ElementwiseLaunch &launch) noexcept;

// A loop as another one computes it, which stores past the caches what it writes to packed results. Refers to
// itself: it stays where it is.
class NontemporalLoop {
public:
    NontemporalLoop(const ElementwiseLaunch &launch, const HostLoop &loop) noexcept;
    NontemporalLoop(const NontemporalLoop &) = delete;
    NontemporalLoop &operator=(const NontemporalLoop &) = delete;

    HostLoop loop() noexcept { return {run, this}; }

private:
    static void run(char **data, const std::intptr_t *count, const std::intptr_t *strides, void *self) noexcept;

    HostLoop loop_;
    int num_inputs_;
    std::intptr_t size_;  // of a result
    const char *begin_;   // of the results
    const char *end_;
    LoopFunction direct_;  // of whole cache lines; null where there is none
};

void copy_past_caches(char *to, const char *from, std::int64_t bytes) noexcept;

// Keeps later stores behind these, so that a thread that is told of the end sees them. Called at the end of a
// thread's part.
void finish_stores() noexcept;

}  // namespace cukern::host
