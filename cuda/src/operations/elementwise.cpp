// Elementwise operations over either back-end.
#include <cstring>
#include <new>

#include "operations/elementwise_chunks.h"
#include "operations/execute.h"

namespace cukern {

Status elementwise(const ElementwiseCall &call, const Execution &where) noexcept {
    const auto run = [](Context &context, const ElementwiseCall &own, const StreamRef &stream) {
        ElementwiseLaunch launch;
        plan_elementwise(own, &launch);
        return does_nothing(launch) ? CUKERN_OK : context.runtime.launch_elementwise(launch, stream.handle);
    };
    const auto staged = [](const ElementwiseCall &own, int device, const auto &launch) {
        return is_in_chunks(own, device) ? elementwise_in_chunks(own, device)
                                         : execute_staged(own, device, Staging::Uses::once, launch);
    };
    return execute(call, where, run, staged);
}

namespace {

using Address = std::uintptr_t;

class PlannedElementwise final : public ElementwisePlan {
public:
    explicit PlannedElementwise(const ElementwiseCall &call) noexcept {
        plan_elementwise(call, &launch_);
        // Operands that plan_elementwise has added are values, and come last.
        while (arrays_ < launch_.num_operands && !launch_.immediate[arrays_]) ++arrays_;
        for (int i = 0; i < arrays_; ++i) {
            const TensorView &view = i == 0 ? *call.out : *call.inputs[i - 1];
            offsets_[i] = static_cast<char *>(launch_.data[i]) - static_cast<char *>(view.data);
        }
    }

    [[gnu::hot]] Status launch(void *const *data, const StreamRef &stream) noexcept override {
        Context *active = nullptr;
        CUKERN_TRY(chosen_context(&active));
        Status status = CUKERN_OK;
        if (fill_prepared(data, stream) && active->runtime.launch_prepared(prepared_, stream.handle, &status))
            return status;
        CUKERN_TRY(active->runtime.ready());
        const DeviceGuard guard(active->runtime, stream.device);
        CUKERN_TRY(guard.status());
        for (int i = 0; i < arrays_; ++i) launch_.data[i] = static_cast<char *>(data[i]) + offsets_[i];
        if (does_nothing(launch_)) return CUKERN_OK;
        prepared_.function = nullptr;
        launch_.prepared = &prepared_;
        status = active->runtime.launch_elementwise(launch_, stream.handle);
        if (prepared_.function != nullptr) keep_prepared(data, stream);
        return status;
    }

private:
    // Keeps how each address in the parameters follows from the array's own.
    void keep_prepared(void *const *data, const StreamRef &stream) noexcept {
        device_ = stream.device;
        std::memcpy(shifts_, prepared_.params, static_cast<std::size_t>(arrays_) * sizeof(Address));
        for (int i = 0; i < arrays_; ++i) {
            const auto address = reinterpret_cast<Address>(data[i]);
            shifts_[i] -= address;
            phases_[i] = address % PreparedKernel::kAlignment;
        }
    }

    // Puts new addresses into the launch that was kept. False where there is none for them.
    bool fill_prepared(void *const *data, const StreamRef &stream) noexcept {
        if (prepared_.function == nullptr || device_ != stream.device) return false;
        Address addresses[kMaxOperands];
        for (int i = 0; i < arrays_; ++i) {
            const auto address = reinterpret_cast<Address>(data[i]);
            if (address % PreparedKernel::kAlignment != phases_[i]) return false;
            addresses[i] = address + shifts_[i];
        }
        std::memcpy(prepared_.params, addresses, static_cast<std::size_t>(arrays_) * sizeof(Address));
        return true;
    }

    // Members that every launch uses come first.
    int device_ = 0;
    int arrays_ = 0;                // out and the inputs that are no values
    Address phases_[kMaxOperands];  // of the addresses within kAlignment
    Address shifts_[kMaxOperands];  // from the address of an array to the one in the launch
    PreparedKernel prepared_;
    ElementwiseLaunch launch_;
    std::ptrdiff_t offsets_[kMaxOperands];  // from the address of an array to where the launch begins
};

}  // namespace

ElementwisePlan *ElementwisePlan::make(const ElementwiseCall &call) noexcept {
    return new (std::nothrow) PlannedElementwise(call);
}

}  // namespace cukern
