// The GIL given up for work that may take long.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/module_state.h"
#include "base/py_ref.h"

#include "cukern/transfer.h"

namespace cukern::py {

// What the host computes in less time than giving the GIL up and taking it again is worth, in elements of an
// array.
constexpr std::int64_t kBriefCount = 1024;

// For a scope. Between chunks of work an interrupt is seen, which ends it with the exception set and
// CUKERN_INTERRUPTED, and cukern.progress() is told how far it is. Nothing owned by Python may die inside.
class LongRelease final : public WorkMonitor {
public:
    explicit LongRelease(const ModuleState &state) noexcept : state_(state), thread_(PyEval_SaveThread()) {}
    ~LongRelease();
    LongRelease(const LongRelease &) = delete;
    LongRelease &operator=(const LongRelease &) = delete;

    bool report(std::int64_t done, std::int64_t total) noexcept override;

private:
    bool tell_progress(std::int64_t done, std::int64_t total) noexcept;

    using Clock = std::chrono::steady_clock;
    const ModuleState &state_;
    PyThreadState *thread_;
    const Clock::time_point start_ = Clock::now();
    bool told_ = false;
    const WorkMonitorScope scope_{this};
};

// After it: warns once in a process that pinned memory was refused. False where the warning is an exception.
bool warn_of_refusal() noexcept;

}  // namespace cukern::py
