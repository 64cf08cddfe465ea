// Memory of the processor for what an operation computes in between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "cukern/status.h"

namespace cukern {

// The system's memory, which no limit of the device's counts.
class HostBuffer {
public:
    HostBuffer() noexcept = default;
    HostBuffer(const HostBuffer &) = delete;
    HostBuffer &operator=(const HostBuffer &) = delete;
    ~HostBuffer() { std::free(data_); }
    Status acquire(std::int64_t bytes) noexcept {
        data_ = std::malloc(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
        return data_ != nullptr ? CUKERN_OK : fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    }
    void *data() const noexcept { return data_; }

private:
    void *data_ = nullptr;
};

}  // namespace cukern
