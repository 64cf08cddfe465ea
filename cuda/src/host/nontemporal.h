// Results that are stored past the caches (non-temporal stores).
//
// Idea: an ordinary store reads the cache line that it writes to, which of an addition is a quarter of all bytes
// that pass the memory bus. Results that are larger than caches are computed into a buffer, a few thousand bytes
// at a time, and stored by instructions that write whole lines; the arithmetic of floats stores there directly.
#pragma once

#include "host/loops.h"
#include "plan/launch.h"

namespace cukern::host {

// Whether a launch's results go past the caches: they are packed and large, and lie apart from the operands, whose
// lines are in the caches anyway.
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

// Waits until other threads see what this one has stored so. Called before a thread's part is done.
void finish_stores() noexcept;

}  // namespace cukern::host
