// Status codes and the thread's last error. A function that can fail returns a Status; what went wrong in
// detail is recorded for the calling thread, where the extension or the C ABI reads it.
#pragma once

#include <cstddef>

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

const ErrorRecord &last_error() noexcept;
void set_last_error(const ErrorRecord &record) noexcept;

// Records a failure of this thread and returns its status.
[[gnu::format(printf, 2, 3)]] Status fail(Status status, const char *format, ...) noexcept;
Status fail_cuda(Status status, int code, const char *name, const char *api, const char *text) noexcept;

// Adds to the message of the last failure.
[[gnu::format(printf, 1, 2)]] void add_to_message(const char *format, ...) noexcept;

// Puts the thread's last error back at the end of a scope whose own failures are nobody's concern. The record is
// copied only where something fails: a release of memory passes by here each time.
class ErrorKeeper {
public:
    ErrorKeeper() noexcept;
    ~ErrorKeeper();
    ErrorKeeper(const ErrorKeeper &) = delete;
    ErrorKeeper &operator=(const ErrorKeeper &) = delete;

private:
    friend class ThreadError;
    ErrorKeeper *const outer_;
    bool saved_ = false;
    alignas(ErrorRecord) std::byte record_[sizeof(ErrorRecord)];  // valid once saved
};

const char *status_text(Status status) noexcept;

}  // namespace cukern

// Returns from the enclosing function when an expression's status is not CUKERN_OK.
#define CUKERN_TRY(expression)                                                                            \
    do {                                                                                                  \
        if (const ::cukern::Status try_status = (expression); try_status != CUKERN_OK) return try_status; \
    } while (0)
