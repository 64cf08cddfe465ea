// Launches that are kept for calls on other memory.
#pragma once

#include "context/context.h"
#include "cukern/operations.h"
#include "plan/launch.h"

namespace cukern {

// What all plans do: the kernel's parameters are kept where the launch is one kernel that can be, and get the new
// addresses. Else, or where these are aligned in another way, it is launched anew from what its kind has planned.
class PlannedLaunch : public LaunchPlan {
public:
    [[gnu::hot]] Status launch(void *const *data, const StreamRef &stream) noexcept final;

protected:
    // Of the first `arrays` of a launch's operands.
    explicit PlannedLaunch(int arrays) noexcept : arrays_(arrays) {}
    int arrays() const noexcept { return arrays_; }

    // Launches on a stream whose device is current. `prepared` receives the launch, as MatmulLaunch::prepared.
    virtual Status launch_anew(Context &context, void *const *data, const StreamRef &stream,
                               PreparedKernel *prepared) noexcept = 0;

private:
    using Address = std::uintptr_t;

    void keep_prepared(void *const *data, const StreamRef &stream) noexcept;
    bool fill_prepared(void *const *data, const StreamRef &stream) noexcept;

    int device_ = 0;
    int arrays_;
    Address phases_[kMaxOperands];  // of the addresses within kAlignment
    Address shifts_[kMaxOperands];  // from the address of an array to the one in the launch
    PreparedKernel prepared_;
};

}  // namespace cukern
