// Sizes of what goes over the link, as the environment and tests set them.
#pragma once

#include <cstdint>

#include "cukern/status.h"

namespace cukern {

constexpr int kMostTransferWorkers = 16;  // more find the link busy

struct TransferOptions {
    std::int64_t slot_bytes;   // of a pinned slot that are used
    std::int64_t small_bytes;  // up to which an operand is read in place from pinned memory
    int workers;               // that chunks go through at once; 0: as many as there are threads
};
TransferOptions staging_options() noexcept;

// Whether CUKERN_TRANSFER_WORKERS and CUKERN_TRANSFER_CHUNK are unset or numbers that may be; else an error.
Status check_transfer_options() noexcept;

// Whether tests have the host back-end bring operands to a device.
bool is_staging_forced() noexcept;

}  // namespace cukern
