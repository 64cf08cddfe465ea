#include "cukern/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <type_traits>

namespace cukern {

class ThreadError {
public:
    const ErrorRecord &record() const noexcept { return record_; }
    ErrorKeeper *keeper() const noexcept { return keeper_; }

    // To write to: what it holds is saved for the innermost scope that keeps it.
    ErrorRecord &renewed() noexcept {
        if (keeper_ != nullptr && !keeper_->saved_) {
            std::memcpy(keeper_->record_, &record_, sizeof record_);
            keeper_->saved_ = true;
        }
        return record_;
    }
    void enter(ErrorKeeper *keeper) noexcept { keeper_ = keeper; }
    void leave() noexcept {
        if (keeper_->saved_) std::memcpy(&record_, keeper_->record_, sizeof record_);
        keeper_ = keeper_->outer_;
    }

private:
    ErrorRecord record_;
    ErrorKeeper *keeper_ = nullptr;
};
static_assert(std::is_trivially_copyable_v<ErrorRecord>);

namespace {

thread_local ThreadError t_error;

}  // namespace

ErrorKeeper::ErrorKeeper() noexcept : outer_(t_error.keeper()) { t_error.enter(this); }
ErrorKeeper::~ErrorKeeper() { t_error.leave(); }

const ErrorRecord &last_error() noexcept { return t_error.record(); }
void set_last_error(const ErrorRecord &record) noexcept { t_error.renewed() = record; }

Status fail(Status status, const char *format, ...) noexcept {
    ErrorRecord &record = t_error.renewed();
    record.status = status;
    record.code = 0;
    record.name[0] = record.api[0] = '\0';
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(record.message, sizeof record.message, format, arguments);
    va_end(arguments);
    return status;
}

Status fail_cuda(Status status, int code, const char *name, const char *api, const char *text) noexcept {
    ErrorRecord &record = t_error.renewed();
    record.status = status;
    record.code = code;
    std::snprintf(record.name, sizeof record.name, "%s", name);
    std::snprintf(record.api, sizeof record.api, "%s", api);
    std::snprintf(record.message, sizeof record.message, "%s failed: %s (%d): %s", api, name, code, text);
    return status;
}

void add_to_message(const char *format, ...) noexcept {
    ErrorRecord &record = t_error.renewed();
    const std::size_t length = std::strlen(record.message);
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(record.message + length, sizeof record.message - length, format, arguments);
    va_end(arguments);
}

const char *status_text(Status status) noexcept {
    switch (status) {
        case CUKERN_OK: return "success";
        case CUKERN_INVALID_ARGUMENT: return "invalid argument";
        case CUKERN_OUT_OF_MEMORY: return "out of memory";
        case CUKERN_CUDA_ERROR: return "a CUDA call failed";
        case CUKERN_DEVICE_LOST: return "the device's context is lost after an earlier error";
        case CUKERN_NOT_SUPPORTED: return "not supported";
        case CUKERN_LIBRARY_NOT_FOUND: return "a library was not found";
        case CUKERN_FORKED: return "the process was forked after the GPU was used";
        case CUKERN_NO_BACKEND: return "the back-end asked for is not available";
        case CUKERN_INTERNAL: return "internal error";
        case CUKERN_CAPTURING: return "the stream is being captured";
        case CUKERN_INTERRUPTED: return "interrupted";
    }
    return "unknown status";
}

}  // namespace cukern
