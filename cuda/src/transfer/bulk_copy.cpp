#include "transfer/bulk_copy.h"

#include <algorithm>

#include "transfer/pipeline.h"

namespace cukern {
namespace {

constexpr std::int64_t kLeastDirect = 64 << 10;  // bytes for which it is worth asking whether memory is pinned

class BulkCopy final : public ChunkedWork {
public:
    BulkCopy(Context &context, const Packing &host, char *device, CopyKind kind) noexcept
        : context_(context), host_(host), device_(device), kind_(kind) {}

    Status run(const StreamRef &stream) noexcept {
        CUKERN_TRY(context_.events.acquire(stream.device, &before_));
        Status status = context_.runtime.record(before_, stream.handle);
        PipelineShape shape;
        shape.device = stream.device;
        shape.chunks = (host_.count() + step_ - 1) / step_;
        if (status == CUKERN_OK) status = run_pipeline(context_, shape, *this);
        context_.events.release(stream.device, before_);
        return status;
    }

    Status begin(const Worker &worker) noexcept override {
        return context_.runtime.wait_event(worker.stream.handle, before_);
    }

    Status enqueue(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        const std::int64_t begin = chunk * step_;
        const std::int64_t end = std::min(begin + step_, host_.count());
        const auto bytes = static_cast<std::size_t>((end - begin) * host_.item_size());
        char *const here = worker.pinned(slot);
        char *const there = device_ + begin * host_.item_size();
        const bool is_upload = kind_ == CopyKind::host_to_device;
        if (is_upload) host_.pack(begin, end, here);
        return context_.runtime.copy(is_upload ? there : here, is_upload ? here : there, bytes, kind_,
                                     worker.stream.handle);
    }

    Status collect(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        const std::int64_t begin = chunk * step_;
        if (kind_ == CopyKind::device_to_host)
            host_.unpack(begin, std::min(begin + step_, host_.count()), worker.pinned(slot));
        return CUKERN_OK;
    }

private:
    Context &context_;
    const Packing &host_;
    char *const device_;
    const CopyKind kind_;
    const std::int64_t step_ = std::max<std::int64_t>(
        1, pipeline_chunk(host_.bytes(), kind_ == CopyKind::host_to_device ? ChunkOf::upload : ChunkOf::download) /
               host_.item_size());
    Event before_ = nullptr;
};

}  // namespace

bool travels_directly(Runtime &runtime, const Packing &packing) noexcept {
    return packing.dense() && packing.bytes() >= kLeastDirect &&
           runtime.is_pinned(packing.first(), static_cast<std::size_t>(packing.bytes()));
}

Status upload_in_bulk(Context &context, const StreamRef &stream, const Packing &host, void *device) noexcept {
    return BulkCopy(context, host, static_cast<char *>(device), CopyKind::host_to_device).run(stream);
}

Status download_in_bulk(Context &context, const StreamRef &stream, const void *device,
                        const Packing &host) noexcept {
    auto *const from = const_cast<char *>(static_cast<const char *>(device));
    return BulkCopy(context, host, from, CopyKind::device_to_host).run(stream);
}

}  // namespace cukern
