// What was asked for by CUKERN_PLACEMENT; the calling thread's own wish is in cukern/placement.h.
#pragma once

#include "cukern/status.h"

namespace cukern {

// Fails, with the reason as the last error, where CUKERN_PLACEMENT names no placement.
Status check_process_placement() noexcept;

}  // namespace cukern
