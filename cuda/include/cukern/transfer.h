// Copies between any two places: host memory, and memory that a device reaches.
#pragma once

#include "cukern/memory.h"
#include "cukern/stream.h"
#include "cukern/tensor_view.h"

namespace cukern {

// Where a view's memory is.
struct Location {
    bool reachable = false;  // by `device`; else ordinary host memory, which is staged
    MemoryKind kind = MemoryKind::device;
    int device = 0;
};

// destination = source, converting between element types, for views of one shape; they share no memory. Work on
// the device is in `stream`'s order, which belongs to the destination's device if that is reachable, else to the
// source's. Returns when the host may touch its own arrays: at once where both are reachable, when a host source
// has been read, when a host destination has been written. Call it without the GIL.
Status transfer(const TensorView &source, const Location &from, const TensorView &destination, const Location &to,
                const StreamRef &stream) noexcept;

// What a thread is told of long work that goes on in chunks while it waits.
class WorkMonitor {
public:
    // Every 20 ms or more, on that thread. False ends the work, which fails with CUKERN_INTERRUPTED.
    virtual bool report(std::int64_t done, std::int64_t total) noexcept = 0;

protected:
    ~WorkMonitor() = default;
};

// The calling thread's monitor for a scope.
class WorkMonitorScope {
public:
    explicit WorkMonitorScope(WorkMonitor *monitor) noexcept;
    ~WorkMonitorScope();
    WorkMonitorScope(const WorkMonitorScope &) = delete;
    WorkMonitorScope &operator=(const WorkMonitorScope &) = delete;

private:
    WorkMonitor *const outer_;
    const bool outer_has_reported_;
};

}  // namespace cukern
