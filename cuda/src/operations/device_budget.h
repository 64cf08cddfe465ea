// How much of the device's memory a call may take.
#pragma once

#include <algorithm>
#include <cstdint>

#include "context/context.h"

namespace cukern {

// In bytes, on the current device. The driver is asked only where much is `needed`: it takes a while to answer.
inline std::int64_t device_budget(Context &context, int device, std::int64_t needed) noexcept {
    constexpr std::int64_t kLeastAsked = std::int64_t{1} << 30;
    const BlockPool::Usage usage = context.blocks.usage(MemoryKind::device, device);
    std::int64_t most = PTRDIFF_MAX;
    if (needed > kLeastAsked) {
        std::int64_t total = 0;
        context.runtime.device_memory(&most, &total);
        most += usage.cached;
    }
    if (usage.limit > 0) most = std::min(most, usage.limit - usage.in_use);
    return most - most / 8;  // for what libraries take, and for what is lost between blocks
}

// Whether so many bytes fit on a device; -1: on the current one.
inline bool fits_in_budget(Context &context, int device, std::int64_t needed) noexcept {
    if (device < 0 && context.runtime.current_device(&device) != CUKERN_OK) return true;  // which will be told
    const DeviceGuard guard(context.runtime, device);
    return needed <= device_budget(context, device, needed);
}

// Whether the arrays of a call on the host's memory fit on a device together; -1: on the current one.
template <typename Call>
bool fits_on_device(const Call &call, int device) noexcept {
    Context *context = nullptr;
    if (cukern::context(&context) != CUKERN_OK) return true;  // which will be told
    std::int64_t needed = bytes_of(*call.out);
    for (int i = 0; i < kMaxInputs && call.inputs[i] != nullptr; ++i)
        if (!call.inputs[i]->immediate) needed += bytes_of(*call.inputs[i]);
    return fits_in_budget(*context, device, needed);
}

}  // namespace cukern
