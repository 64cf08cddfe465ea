// Staging: how operands in host memory reach the device, and results come back. No operation knows how.
//
//     Staging staging;
//     CUKERN_TRY(staging.begin(uses, device));      // takes a lane on `device`
//     CUKERN_TRY(staging.upload(host, &device));    // a view that kernels on staging.stream() can read
//     CUKERN_TRY(staging.reserve(host_out, &device_out));
//     ... launch on staging.stream() ...
//     CUKERN_TRY(staging.download(device_out, host_out));   // returns when the result is there
//
// Small operands are read and written in place, in pinned memory: a kernel over the link costs less than a
// copy. Larger ones go in chunks through two pinned slots, one filled while the other is in flight, into cached
// device blocks; large ones by bulk_copy.h. On the host back-end views pass through untouched.
#pragma once

#include <optional>

#include "context/scratch_buffer.h"
#include "cukern/tensor_view.h"
#include "transfer/packing.h"

namespace cukern {

class Staging {
public:
    enum class Uses { once, many };  // how often a kernel reads an element: memory read often is not read in place

    Staging() noexcept = default;
    ~Staging();
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;

    // Not on the host back-end, where kernels reach all memory.
    static bool is_needed(const Context &context) noexcept;

    // `device` is current from here on for as long as this lives; -1: it is already.
    Status begin(Uses uses, int device) noexcept;
    // The same for copies that are made in a stream's own order; its device must be current. Nothing is read or
    // written in place, so that no work needs to be waited for before the lane is given back.
    Status begin_on(const StreamRef &stream) noexcept;
    Status upload(const TensorView &host, TensorView *device) noexcept;
    Status reserve(const TensorView &host, TensorView *device) noexcept;
    Status download(const TensorView &device, const TensorView &host) noexcept;

    // Whether views pass through untouched: on the host back-end.
    bool passes_through() const noexcept { return lane_ == nullptr; }
    const StreamRef &stream() const noexcept { return stream_; }
    Context &context() const noexcept { return *context_; }

    // Copy all elements.
    Status send(const Packing &host, void *device) noexcept;
    Status receive(const void *device, const Packing &host) noexcept;
    void finished() noexcept { busy_ = false; }

private:
    static constexpr int kMaxBlocks = kMaxInputs + 1;

    Status place(std::int64_t bytes, void **data, bool *in_place) noexcept;
    std::int64_t chunk_elements(const Packing &host) const noexcept;

    Context *context_ = nullptr;
    std::optional<DeviceGuard> guard_;
    StagingLane *lane_ = nullptr;  // none where views pass through
    StreamRef stream_;
    std::int64_t small_bytes_ = 0;
    std::int64_t slot_bytes_ = 0;
    std::size_t arena_used_ = 0;
    ScratchBuffer blocks_[kMaxBlocks];
    int num_blocks_ = 0;
    bool busy_ = false;  // work may be in flight on the lane
};

}  // namespace cukern
