// For work in chunks: what the thread that waits for it is told.
#pragma once

#include "cukern/transfer.h"

namespace cukern {

// Reports to the calling thread's monitor, if it has one and some time has passed since the last report.
// CUKERN_INTERRUPTED where it wants the work to end.
Status report_work(std::int64_t done, std::int64_t total) noexcept;
// That all is done, to a monitor that has been told of it before.
Status report_end(std::int64_t total) noexcept;

}  // namespace cukern
