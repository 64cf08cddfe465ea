#include "transfer/staging.h"

#include <algorithm>

#include "memory/transfer_options.h"
#include "host/thread_pool.h"
#include "transfer/bulk_copy.h"
#include "transfer/pipeline.h"

namespace cukern {
namespace {

constexpr std::int64_t kCopyGrain = 256 << 10;  // bytes below which a second thread does not pay
constexpr std::int64_t kLeastChunk = 512 << 10;
constexpr std::size_t kArenaAlignment = 256;

// Copy elements [begin, end) between a host view and a slot, on several threads where it pays.
void fill_slot(const Packing &host, std::int64_t begin, std::int64_t end, void *slot) noexcept {
    const std::int64_t size = host.item_size();
    parallel_for(end - begin, kCopyGrain / size, [&](std::int64_t from, std::int64_t to) {
        host.pack(begin + from, begin + to, static_cast<char *>(slot) + from * size);
    });
}

void drain_slot(const Packing &host, std::int64_t begin, std::int64_t end, const void *slot) noexcept {
    const std::int64_t size = host.item_size();
    parallel_for(end - begin, kCopyGrain / size, [&](std::int64_t from, std::int64_t to) {
        host.unpack(begin + from, begin + to, static_cast<const char *>(slot) + from * size);
    });
}

}  // namespace

Staging::~Staging() {
    if (lane_ == nullptr) return;
    if (busy_) context_->lanes.wait_for_all(*lane_, stream_.handle);
    for (ScratchBuffer &block : blocks_) block.reset();
    context_->lanes.release(lane_);
}

bool Staging::is_needed(const Context &context) noexcept {
    return context.runtime.backend() != Backend::host || is_staging_forced();
}

Status Staging::begin(Uses uses, int device) noexcept {
    CUKERN_TRY(cukern::context(&context_));
    Runtime &runtime = context_->runtime;
    if (!is_needed(*context_)) return CUKERN_OK;
    stream_.device = device;
    if (device < 0) CUKERN_TRY(runtime.current_device(&stream_.device));
    guard_.emplace(runtime, stream_.device);
    CUKERN_TRY(guard_->status());
    slot_bytes_ = staging_options().slot_bytes;
    small_bytes_ = uses == Uses::once ? staging_options().small_bytes : 0;
    CUKERN_TRY(context_->lanes.acquire(stream_.device, &lane_));
    stream_ = lane_->stream->ref();
    return CUKERN_OK;
}

Status Staging::begin_on(const StreamRef &stream) noexcept {
    CUKERN_TRY(cukern::context(&context_));
    stream_ = stream;
    if (!is_needed(*context_)) return CUKERN_OK;
    slot_bytes_ = staging_options().slot_bytes;
    return context_->lanes.acquire(stream.device, &lane_);
}

Status Staging::place(std::int64_t bytes, void **data, bool *in_place) noexcept {
    const std::size_t aligned =
        (static_cast<std::size_t>(bytes) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    *in_place = lane_->arena != nullptr && bytes <= small_bytes_ && arena_used_ + aligned <= kArenaBytes;
    if (*in_place) {
        *data = static_cast<char *>(lane_->arena) + arena_used_;
        arena_used_ += aligned;
        return CUKERN_OK;
    }
    ScratchBuffer &block = blocks_[num_blocks_++];
    CUKERN_TRY(block.acquire(*context_, static_cast<std::size_t>(bytes), stream_));
    *data = block.data();
    return CUKERN_OK;
}

Status Staging::upload(const TensorView &host, TensorView *device) noexcept {
    *device = host;
    if (lane_ == nullptr || host.immediate || count_of(host) == 0) return CUKERN_OK;
    const Packing packing(host);
    void *data = nullptr;
    bool in_place = false;
    CUKERN_TRY(place(packing.bytes(), &data, &in_place));
    busy_ = true;
    if (in_place) {
        fill_slot(packing, 0, packing.count(), data);
        Runtime::count_moved(static_cast<std::size_t>(packing.bytes()), CopyKind::host_to_device);
    } else {
        CUKERN_TRY(send(packing, data));
    }
    *device = packing.at(data);
    return CUKERN_OK;
}

Status Staging::reserve(const TensorView &host, TensorView *device) noexcept {
    *device = host;
    if (lane_ == nullptr || count_of(host) == 0) return CUKERN_OK;
    void *data = nullptr;
    bool in_place = false;
    CUKERN_TRY(place(bytes_of(host), &data, &in_place));
    busy_ = true;
    *device = Packing(host).at(data);
    return CUKERN_OK;
}

Status Staging::download(const TensorView &device, const TensorView &host) noexcept {
    if (lane_ == nullptr || count_of(host) == 0) return CUKERN_OK;
    const Packing packing(host);
    const char *first = static_cast<const char *>(device.data) - packing.offset_bytes();
    const char *arena = static_cast<const char *>(lane_->arena);
    if (arena != nullptr && first >= arena && first < arena + kArenaBytes) {
        CUKERN_TRY(context_->runtime.synchronize(stream_.handle));
        drain_slot(packing, 0, packing.count(), first);
        Runtime::count_moved(static_cast<std::size_t>(packing.bytes()), CopyKind::device_to_host);
    } else {
        CUKERN_TRY(receive(first, packing));
    }
    busy_ = false;
    return CUKERN_OK;
}

// Chunks that fill a slot, but smaller ones of an array that has few, so that filling and copying overlap.
std::int64_t Staging::chunk_elements(const Packing &host) const noexcept {
    const std::int64_t bytes = std::clamp(host.bytes() / 4, std::min(kLeastChunk, slot_bytes_), slot_bytes_);
    return bytes / host.item_size();
}

Status Staging::send(const Packing &host, void *device) noexcept {
    Runtime &runtime = context_->runtime;
    busy_ = true;
    if (travels_directly(runtime, host)) {
        CUKERN_TRY(runtime.copy(device, host.first(), static_cast<std::size_t>(host.bytes()),
                                CopyKind::host_to_device, stream_.handle));
        return runtime.synchronize(stream_.handle);  // its owner may write to it then
    }
    if (is_worth_a_pipeline(host.bytes())) return upload_in_bulk(*context_, stream_, host, device);
    CUKERN_TRY(context_->lanes.prepare_slots(*lane_));
    const std::int64_t size = host.item_size();
    const std::int64_t count = host.count();
    const std::int64_t step = chunk_elements(host);
    int slot = 0;
    for (std::int64_t begin = 0; begin < count; begin += step, slot = (slot + 1) % kSlots) {
        const std::int64_t end = std::min(begin + step, count);
        CUKERN_TRY(context_->lanes.wait_for_slot(*lane_, slot));
        fill_slot(host, begin, end, lane_->slots[slot]);
        CUKERN_TRY(runtime.copy(static_cast<char *>(device) + begin * size, lane_->slots[slot],
                                static_cast<std::size_t>((end - begin) * size), CopyKind::host_to_device,
                                stream_.handle));
        CUKERN_TRY(context_->lanes.record_slot(*lane_, slot, stream_.handle));
    }
    return CUKERN_OK;
}

Status Staging::receive(const void *device, const Packing &host) noexcept {
    Runtime &runtime = context_->runtime;
    busy_ = true;
    if (travels_directly(runtime, host)) {
        CUKERN_TRY(runtime.copy(host.first(), device, static_cast<std::size_t>(host.bytes()),
                                CopyKind::device_to_host, stream_.handle));
        return runtime.synchronize(stream_.handle);
    }
    if (is_worth_a_pipeline(host.bytes())) return download_in_bulk(*context_, stream_, device, host);
    CUKERN_TRY(context_->lanes.prepare_slots(*lane_));
    const std::int64_t size = host.item_size();
    const std::int64_t count = host.count();
    const std::int64_t step = chunk_elements(host);
    const auto drain = [&](std::int64_t chunk) {
        const int slot = static_cast<int>(chunk % kSlots);
        CUKERN_TRY(context_->lanes.wait_for_slot(*lane_, slot));
        drain_slot(host, chunk * step, std::min((chunk + 1) * step, count), lane_->slots[slot]);
        return CUKERN_OK;
    };
    const std::int64_t chunks = (count + step - 1) / step;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int slot = static_cast<int>(chunk % kSlots);
        if (chunk >= kSlots)
            CUKERN_TRY(drain(chunk - kSlots));
        else
            CUKERN_TRY(context_->lanes.wait_for_slot(*lane_, slot));  // an upload may still be reading it
        const std::int64_t begin = chunk * step;
        const std::int64_t end = std::min(begin + step, count);
        CUKERN_TRY(runtime.copy(lane_->slots[slot], static_cast<const char *>(device) + begin * size,
                                static_cast<std::size_t>((end - begin) * size), CopyKind::device_to_host,
                                stream_.handle));
        CUKERN_TRY(context_->lanes.record_slot(*lane_, slot, stream_.handle));
    }
    for (std::int64_t chunk = std::max<std::int64_t>(0, chunks - kSlots); chunk < chunks; ++chunk)
        CUKERN_TRY(drain(chunk));
    return CUKERN_OK;
}

}  // namespace cukern
