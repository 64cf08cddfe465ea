#include "transfer/work_monitor.h"

#include <chrono>
#include <utility>

namespace cukern {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenReports{20};

thread_local WorkMonitor *t_monitor = nullptr;
thread_local Clock::time_point t_last_report;
thread_local bool t_has_reported = false;

Status report(std::int64_t done, std::int64_t total) noexcept {
    if (t_monitor->report(done, total)) return CUKERN_OK;
    return fail(CUKERN_INTERRUPTED, "interrupted after %lld of %lld chunks", static_cast<long long>(done),
                static_cast<long long>(total));
}

}  // namespace

WorkMonitorScope::WorkMonitorScope(WorkMonitor *monitor) noexcept
    : outer_(std::exchange(t_monitor, monitor)), outer_has_reported_(std::exchange(t_has_reported, false)) {
    t_last_report = Clock::now();
}
WorkMonitorScope::~WorkMonitorScope() {
    t_monitor = outer_;
    t_has_reported = outer_has_reported_;
}

Status report_work(std::int64_t done, std::int64_t total) noexcept {
    if (t_monitor == nullptr) return CUKERN_OK;
    const Clock::time_point now = Clock::now();
    if (now - t_last_report < kBetweenReports) return CUKERN_OK;
    t_last_report = now;
    t_has_reported = true;
    return report(done, total);
}

Status report_end(std::int64_t total) noexcept {
    return t_monitor != nullptr && t_has_reported ? report(total, total) : CUKERN_OK;
}

}  // namespace cukern
