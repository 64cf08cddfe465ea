#include "context/scratch_buffer.h"

#include <utility>

namespace cukern {

Status ScratchBuffer::acquire(Context &context, std::size_t bytes, const StreamRef &stream) noexcept {
    reset();
    context.graph_blocks.collect();
    Capture capture;
    if (stream.id != 0) CUKERN_TRY(context.runtime.find_capture(stream.handle, &capture));
    if (capture.is_active) {
        CUKERN_TRY(context.graph_blocks.acquire(capture, stream, bytes, &graph_block_));
        data_ = graph_block_->data;
        context_ = &context;
        return CUKERN_OK;
    }
    bool may_be_in_use = false;
    CUKERN_TRY(context.blocks.acquire(MemoryKind::device, bytes, stream, &data_, &may_be_in_use));
    context_ = &context;
    bytes_ = bytes;
    stream_ = stream;
    if (stream.owner != nullptr) stream.owner->retain();
    return CUKERN_OK;
}

void ScratchBuffer::reset() noexcept {
    if (data_ == nullptr) return;
    if (graph_block_ != nullptr) {
        context_->graph_blocks.give_back(std::exchange(graph_block_, nullptr));
        data_ = nullptr;
        return;
    }
    const std::uint64_t list = BlockPool::list_of(stream_);
    Events events;
    if (list == BlockPool::kIdle) {
        const DeviceGuard guard(context_->runtime, stream_.device);
        Event event = nullptr;
        Status status = context_->events.acquire(stream_.device, &event);
        if (status == CUKERN_OK) status = context_->runtime.record(event, stream_.handle);
        if (event != nullptr) events.add(event, stream_.device);
        if (status != CUKERN_OK) context_->runtime.synchronize(stream_.handle);
    }
    context_->blocks.release(MemoryKind::device, data_, bytes_, stream_.device, list, events);
    if (stream_.owner != nullptr) stream_.owner->release();
    data_ = nullptr;
}

}  // namespace cukern
