#include "cukern/status.h"

#include <cstdarg>
#include <cstdio>

namespace cukern {

ErrorRecord &last_error() noexcept {
    thread_local ErrorRecord record;
    return record;
}

Status fail(Status status, const char *format, ...) noexcept {
    ErrorRecord &record = last_error();
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
    ErrorRecord &record = last_error();
    record.status = status;
    record.code = code;
    std::snprintf(record.name, sizeof record.name, "%s", name);
    std::snprintf(record.api, sizeof record.api, "%s", api);
    std::snprintf(record.message, sizeof record.message, "%s failed: %s (%d): %s", api, name, code, text);
    return status;
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
    }
    return "unknown status";
}

}  // namespace cukern
