#include "operations/planned_launch.h"

#include <cstring>

namespace cukern {

Status PlannedLaunch::launch(void *const *data, const StreamRef &stream) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(chosen_context(&active));
    Status status = CUKERN_OK;
    if (fill_prepared(data, stream) && active->runtime.launch_prepared(prepared_, stream.handle, &status))
        return status;
    CUKERN_TRY(active->runtime.ready());
    const DeviceGuard guard(active->runtime, stream.device);
    CUKERN_TRY(guard.status());
    prepared_.function = nullptr;
    status = launch_anew(*active, data, stream, &prepared_);
    if (status == CUKERN_OK && prepared_.function != nullptr) keep_prepared(data, stream);
    return status;
}

// Keeps how each address in the parameters follows from the array's own.
void PlannedLaunch::keep_prepared(void *const *data, const StreamRef &stream) noexcept {
    device_ = stream.device;
    for (int i = 0; i < arrays_; ++i) {
        const auto address = reinterpret_cast<Address>(data[i]);
        std::memcpy(&shifts_[i], prepared_.params + prepared_.places[i], sizeof(Address));
        shifts_[i] -= address;
        phases_[i] = address % PreparedKernel::kAlignment;
    }
}

// Puts new addresses into the launch that was kept. False where there is none for them.
bool PlannedLaunch::fill_prepared(void *const *data, const StreamRef &stream) noexcept {
    if (prepared_.function == nullptr || device_ != stream.device) return false;
    for (int i = 0; i < arrays_; ++i)
        if (reinterpret_cast<Address>(data[i]) % PreparedKernel::kAlignment != phases_[i]) return false;
    for (int i = 0; i < arrays_; ++i) {
        const Address address = reinterpret_cast<Address>(data[i]) + shifts_[i];
        std::memcpy(prepared_.params + prepared_.places[i], &address, sizeof(Address));
    }
    return true;
}

}  // namespace cukern
