#include "transfer/staging.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "host/thread_pool.h"
#include "plan/layout.h"

namespace cukern {
namespace {

constexpr std::int64_t kSmallBytes = 64 << 10;  // of one operand
constexpr std::int64_t kCopyGrain = 256 << 10;  // bytes below which a second thread does not pay
constexpr std::int64_t kLeastChunk = 512 << 10;
constexpr std::size_t kArenaAlignment = 256;

std::atomic<testing::StagingMode> g_mode{testing::StagingMode::automatic};
std::atomic<std::int64_t> g_slot_bytes{static_cast<std::int64_t>(kSlotBytes)};
std::atomic<std::int64_t> g_small_bytes{kSmallBytes};

// Copies elements [begin, end) between a host view and a slot, on several threads where it pays. A dense
// view has no gaps, and its elements count in memory order.
void fill_slot(const TensorView &host, bool dense, std::int64_t begin, std::int64_t end, void *slot) noexcept {
    const std::int64_t size = size_of(host.type);
    parallel_for(end - begin, kCopyGrain / size, [&](std::int64_t from, std::int64_t to) {
        char *target = static_cast<char *>(slot) + from * size;
        if (dense)
            std::memcpy(target, static_cast<const char *>(host.data) + (begin + from) * size,
                        static_cast<std::size_t>((to - from) * size));
        else
            gather(host, begin + from, begin + to, target);
    });
}

void drain_slot(const TensorView &host, bool dense, std::int64_t begin, std::int64_t end,
                const void *slot) noexcept {
    const std::int64_t size = size_of(host.type);
    parallel_for(end - begin, kCopyGrain / size, [&](std::int64_t from, std::int64_t to) {
        const char *source = static_cast<const char *>(slot) + from * size;
        if (dense)
            std::memcpy(static_cast<char *>(host.data) + (begin + from) * size, source,
                        static_cast<std::size_t>((to - from) * size));
        else
            scatter(host, begin + from, begin + to, source);
    });
}

// A dense view keeps its strides on the device and moves as one piece of memory; any other is packed in C
// order. `piece` is the view to copy from: of the first byte where dense.
bool dense_piece(const TensorView &host, TensorView *piece, std::int64_t *offset) noexcept {
    *piece = host;
    *offset = 0;
    const void *first = nullptr;
    if (!is_dense(host, &first)) return false;
    *offset = (static_cast<const char *>(host.data) - static_cast<const char *>(first)) / size_of(host.type);
    piece->data = const_cast<void *>(first);
    return true;
}

// A broadcast dimension holds the same elements throughout: only one of them travels.
TensorView without_broadcast(const TensorView &host) noexcept {
    TensorView view = host;
    for (int i = 0; i < view.ndim; ++i)
        if (view.strides[i] == 0 && view.shape[i] > 1) view.shape[i] = 1;
    return view;
}

}  // namespace

void testing::set_staging(const StagingOptions &options) noexcept {
    constexpr auto kMost = static_cast<std::int64_t>(kSlotBytes);
    g_mode.store(options.mode);
    g_slot_bytes.store(options.slot_bytes > 0 ? std::clamp<std::int64_t>(options.slot_bytes, 64, kMost) : kMost);
    g_small_bytes.store(options.small_bytes >= 0 ? std::min(options.small_bytes, kSmallBytes) : kSmallBytes);
}

Staging::~Staging() {
    if (lane_ == nullptr) return;
    if (busy_) {  // a call failed half-way: its memory must not be reused under work that is still in flight
        const ErrorKeeper cause;
        Runtime &runtime = context_->runtime;
        if (runtime.synchronize(stream_.handle) == CUKERN_OK || runtime.synchronize(stream_.handle) == CUKERN_OK)
            std::fill_n(lane_->in_flight, kSlots, false);
    }
    for (ScratchBuffer &block : blocks_) block.reset();
    context_->lanes.release(lane_);
}

bool Staging::is_needed(const Context &context) noexcept {
    return context.runtime.backend() != Backend::host ||
           g_mode.load(std::memory_order_relaxed) != testing::StagingMode::automatic;
}

Status Staging::begin(Uses uses, int device) noexcept {
    CUKERN_TRY(cukern::context(&context_));
    Runtime &runtime = context_->runtime;
    if (!is_needed(*context_)) return CUKERN_OK;
    stream_.device = device;
    if (device < 0) CUKERN_TRY(runtime.current_device(&stream_.device));
    guard_.emplace(runtime, stream_.device);
    CUKERN_TRY(guard_->status());
    slot_bytes_ = g_slot_bytes.load();
    small_bytes_ = uses == Uses::once ? g_small_bytes.load() : 0;
    CUKERN_TRY(context_->lanes.acquire(stream_.device, &lane_));
    stream_ = lane_->stream->ref();
    return CUKERN_OK;
}

Status Staging::begin_on(const StreamRef &stream) noexcept {
    CUKERN_TRY(cukern::context(&context_));
    stream_ = stream;
    if (!is_needed(*context_)) return CUKERN_OK;
    slot_bytes_ = g_slot_bytes.load();
    return context_->lanes.acquire(stream.device, &lane_);
}

Status Staging::place(std::int64_t bytes, void **data, bool *in_place) noexcept {
    const std::size_t aligned =
        (static_cast<std::size_t>(bytes) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    *in_place = bytes <= small_bytes_ && arena_used_ + aligned <= kArenaBytes;
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
    const TensorView own = without_broadcast(host);
    TensorView piece;
    std::int64_t offset = 0;
    const bool dense = dense_piece(own, &piece, &offset);
    void *data = nullptr;
    bool in_place = false;
    CUKERN_TRY(place(bytes_of(own), &data, &in_place));
    busy_ = true;
    if (in_place) {
        fill_slot(piece, dense, 0, count_of(own), data);
        Runtime::count_moved(static_cast<std::size_t>(bytes_of(own)), CopyKind::host_to_device);
    } else {
        CUKERN_TRY(send(piece, dense, data));
    }
    *device = own;
    device->data = static_cast<char *>(data) + offset * size_of(host.type);
    if (!dense) set_contiguous(*device);
    for (int i = 0; i < host.ndim; ++i) {
        if (device->shape[i] != host.shape[i]) device->strides[i] = 0;
        device->shape[i] = host.shape[i];
    }
    return CUKERN_OK;
}

Status Staging::reserve(const TensorView &host, TensorView *device) noexcept {
    *device = host;
    if (lane_ == nullptr || count_of(host) == 0) return CUKERN_OK;
    TensorView piece;
    std::int64_t offset = 0;
    const bool dense = dense_piece(host, &piece, &offset);
    void *data = nullptr;
    bool in_place = false;
    CUKERN_TRY(place(bytes_of(host), &data, &in_place));
    busy_ = true;
    device->data = static_cast<char *>(data) + offset * size_of(host.type);
    if (!dense) set_contiguous(*device);
    return CUKERN_OK;
}

Status Staging::download(const TensorView &device, const TensorView &host) noexcept {
    if (lane_ == nullptr || count_of(host) == 0) return CUKERN_OK;
    TensorView piece;
    std::int64_t offset = 0;
    const bool dense = dense_piece(host, &piece, &offset);
    const char *first = static_cast<const char *>(device.data) - offset * size_of(host.type);
    const char *arena = static_cast<const char *>(lane_->arena);
    if (first >= arena && first < arena + kArenaBytes) {
        CUKERN_TRY(context_->runtime.synchronize(stream_.handle));
        drain_slot(piece, dense, 0, count_of(host), first);
        Runtime::count_moved(static_cast<std::size_t>(bytes_of(host)), CopyKind::device_to_host);
    } else {
        CUKERN_TRY(receive(first, piece, dense));
    }
    busy_ = false;
    return CUKERN_OK;
}

Status Staging::wait_for_slot(int slot) noexcept {
    if (!lane_->in_flight[slot]) return CUKERN_OK;
    CUKERN_TRY(context_->runtime.synchronize_event(lane_->events[slot]));
    lane_->in_flight[slot] = false;
    return CUKERN_OK;
}

// Chunks that fill a slot, but smaller ones of an array that has few, so that filling and copying overlap.
std::int64_t Staging::chunk_elements(const TensorView &host) const noexcept {
    const std::int64_t bytes = std::clamp(bytes_of(host) / 4, std::min(kLeastChunk, slot_bytes_), slot_bytes_);
    return bytes / size_of(host.type);
}

Status Staging::send(const TensorView &host, bool dense, void *device) noexcept {
    Runtime &runtime = context_->runtime;
    busy_ = true;
    CUKERN_TRY(context_->lanes.prepare_slots(*lane_));
    const std::int64_t size = size_of(host.type);
    const std::int64_t count = count_of(host);
    const std::int64_t step = chunk_elements(host);
    int slot = 0;
    for (std::int64_t begin = 0; begin < count; begin += step, slot = (slot + 1) % kSlots) {
        const std::int64_t end = std::min(begin + step, count);
        CUKERN_TRY(wait_for_slot(slot));
        fill_slot(host, dense, begin, end, lane_->slots[slot]);
        CUKERN_TRY(runtime.copy(static_cast<char *>(device) + begin * size, lane_->slots[slot],
                                static_cast<std::size_t>((end - begin) * size), CopyKind::host_to_device,
                                stream_.handle));
        CUKERN_TRY(runtime.record(lane_->events[slot], stream_.handle));
        lane_->in_flight[slot] = true;
    }
    return CUKERN_OK;
}

Status Staging::receive(const void *device, const TensorView &host, bool dense) noexcept {
    Runtime &runtime = context_->runtime;
    busy_ = true;
    CUKERN_TRY(context_->lanes.prepare_slots(*lane_));
    const std::int64_t size = size_of(host.type);
    const std::int64_t count = count_of(host);
    const std::int64_t step = chunk_elements(host);
    const auto drain = [&](std::int64_t chunk) {
        const int slot = static_cast<int>(chunk % kSlots);
        CUKERN_TRY(wait_for_slot(slot));
        drain_slot(host, dense, chunk * step, std::min((chunk + 1) * step, count), lane_->slots[slot]);
        return CUKERN_OK;
    };
    const std::int64_t chunks = (count + step - 1) / step;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int slot = static_cast<int>(chunk % kSlots);
        if (chunk >= kSlots)
            CUKERN_TRY(drain(chunk - kSlots));
        else
            CUKERN_TRY(wait_for_slot(slot));  // an upload may still be reading it
        const std::int64_t begin = chunk * step;
        const std::int64_t end = std::min(begin + step, count);
        CUKERN_TRY(runtime.copy(lane_->slots[slot], static_cast<const char *>(device) + begin * size,
                                static_cast<std::size_t>((end - begin) * size), CopyKind::device_to_host,
                                stream_.handle));
        CUKERN_TRY(runtime.record(lane_->events[slot], stream_.handle));
        lane_->in_flight[slot] = true;
    }
    for (std::int64_t chunk = std::max<std::int64_t>(0, chunks - kSlots); chunk < chunks; ++chunk)
        CUKERN_TRY(drain(chunk));
    return CUKERN_OK;
}

}  // namespace cukern
