// Status codes and the thread's last error. A function that can fail returns a Status; what went wrong in
// detail is recorded for the calling thread, where the extension or the C ABI reads it.
#pragma once

#include "cukern/cukern.h"

namespace cukern {

using Status = cukern_status;

// What is kept of the last failure on a thread. `code`, `name` and `api` are CUDA's, where CUDA failed.
struct ErrorRecord {
    Status status = CUKERN_OK;
    int code = 0;
    char name[64] = {};
    char api[64] = {};
    char message[2304] = {};
};

ErrorRecord &last_error() noexcept;

// Records a failure of this thread and returns its status.
[[gnu::format(printf, 2, 3)]] Status fail(Status status, const char *format, ...) noexcept;
Status fail_cuda(Status status, int code, const char *name, const char *api, const char *text) noexcept;

const char *status_text(Status status) noexcept;

}  // namespace cukern

// Returns from the enclosing function when an expression's status is not CUKERN_OK.
#define CUKERN_TRY(expression)                                                                            \
    do {                                                                                                  \
        if (const ::cukern::Status try_status = (expression); try_status != CUKERN_OK) return try_status; \
    } while (0)
