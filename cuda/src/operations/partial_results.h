// Partial results on the processor: memory for them, what they are of, and how they are joined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "context/context.h"
#include "plan/launch.h"

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

// What sums are of before they are rounded to `type`.
constexpr ElementType type_of_sums(ElementType type) {
    return is_floating(type) && size_of(type) == 2 ? ElementType::float32 : type;
}

// to = op(to, other), computed in the type of `to`. `other` may be a value.
inline Status change_on(Context &processor, Op op, const TensorView &to, const TensorView &other) noexcept {
    ElementwiseCall call;
    call.op = op;
    call.compute = to.type;
    call.inputs[0] = &to;
    call.inputs[1] = &other;
    call.out = &to;
    ElementwiseLaunch launch;
    plan_elementwise(call, &launch);
    return processor.runtime.launch_elementwise(launch, nullptr);
}

}  // namespace cukern
