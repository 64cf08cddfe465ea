#include "cukern/transfer.h"

#include "context/scratch_buffer.h"
#include "host/kernels.h"
#include "plan/layout.h"
#include "transfer/staging.h"

namespace cukern {
namespace {

// Two views whose elements lie in memory in the same order without gaps: where each of them begins.
bool same_dense_layout(const TensorView &a, const TensorView &b, const void **a_first,
                       const void **b_first) noexcept {
    if (a.type != b.type || a.immediate) return false;
    for (int i = 0; i < a.ndim; ++i)
        if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
    return is_dense(a, a_first) && is_dense(b, b_first);
}

// Dense memory as one row.
TensorView row_of(const TensorView &view, const void *first) noexcept {
    TensorView row;
    row.data = const_cast<void *>(first);
    row.type = view.type;
    row.ndim = 1;
    row.shape[0] = count_of(view);
    row.strides[0] = 1;
    return row;
}

class Copy {
public:
    Copy(Context &context, const TensorView &source, const Location &from, const TensorView &destination,
         const Location &to, const StreamRef &stream) noexcept
        : context_(context),
          runtime_(context.runtime),
          source_(source),
          from_(from),
          destination_(destination),
          to_(to),
          stream_(stream) {}

    Status run() noexcept {
        if (!to_.reachable && (source_.immediate || !from_.reachable)) {
            host::run_elementwise(plan_copy(source_, destination_));
            return CUKERN_OK;
        }
        const DeviceGuard guard(runtime_, stream_.device);
        CUKERN_TRY(guard.status());
        if (source_.immediate) return launch(source_, destination_, stream_.handle);
        if (from_.reachable && to_.reachable) {
            // A kernel of the stream's device reaches no device memory of another.
            if (to_.kind == MemoryKind::device && to_.device != stream_.device)
                return fail(CUKERN_INTERNAL, "a copy runs on the device that it writes to");
            const bool apart = from_.kind == MemoryKind::device && from_.device != stream_.device;
            return apart ? across_devices() : on_device();
        }
        bool capturing = false;
        CUKERN_TRY(stream_is_capturing(stream_, &capturing));
        if (capturing)
            return fail(CUKERN_CAPTURING,
                        "the stream is being captured, and a copy between host memory and a device goes through "
                        "memory that "
                        "later calls use again; copy before the capture, or from pinned memory");
        return to_.reachable ? upload() : download();
    }

private:
    Status launch(const TensorView &source, const TensorView &destination, Stream stream) noexcept {
        return runtime_.launch_elementwise(plan_copy(source, destination), stream);
    }

    std::size_t bytes() const noexcept { return static_cast<std::size_t>(bytes_of(destination_)); }

    Status on_device() noexcept {
        const bool reads_host = from_.kind == MemoryKind::pinned;
        const bool writes_host = to_.kind == MemoryKind::pinned;
        if (reads_host == writes_host) return launch(source_, destination_, stream_.handle);
        const CopyKind kind = reads_host ? CopyKind::host_to_device : CopyKind::device_to_host;
        const void *from = nullptr;
        const void *to = nullptr;
        if (same_dense_layout(source_, destination_, &from, &to))
            return runtime_.copy(const_cast<void *>(to), from, bytes(), kind, stream_.handle);
        Runtime::count_moved(bytes(), kind);
        return launch(source_, destination_, stream_.handle);
    }

    // Kernels reach the memory of their own device alone: what is not dense is packed there, copied, and unpacked.
    Status across_devices() noexcept {
        const Status status = enqueue_across_devices();
        if (status != CUKERN_OK) {  // the temporaries must not be used again under what is in flight
            const ErrorKeeper cause;
            runtime_.synchronize(stream_.handle);
        }
        return status;
    }

    Status enqueue_across_devices() noexcept {
        const void *from = nullptr;
        const void *to = nullptr;
        if (same_dense_layout(source_, destination_, &from, &to))
            return runtime_.copy(const_cast<void *>(to), from, bytes(), CopyKind::on_device, stream_.handle);
        const std::int64_t size = count_of(source_) * size_of(source_.type);
        const StreamRef beside{nullptr, 0, nullptr, from_.device};
        CUKERN_TRY(stream_wait_stream(beside, stream_));
        ScratchBuffer &packed = blocks_[0];
        TensorView there;
        {
            const DeviceGuard guard(runtime_, from_.device);
            CUKERN_TRY(guard.status());
            CUKERN_TRY(packed.acquire(context_, static_cast<std::size_t>(size), beside));
            there = packed_like(source_, source_.type, packed.data());
            CUKERN_TRY(launch(source_, there, nullptr));
        }
        CUKERN_TRY(stream_wait_stream(stream_, beside));
        ScratchBuffer &arrived = blocks_[1];
        CUKERN_TRY(arrived.acquire(context_, static_cast<std::size_t>(size), stream_));
        CUKERN_TRY(runtime_.copy(arrived.data(), there.data, static_cast<std::size_t>(size), CopyKind::on_device,
                                 stream_.handle));
        CUKERN_TRY(launch(packed_like(source_, source_.type, arrived.data()), destination_, stream_.handle));
        return stream_wait_stream(beside, stream_);  // before the block there is used again
    }

    Status upload() noexcept {
        Staging staging;
        CUKERN_TRY(staging.begin_on(stream_));
        if (staging.passes_through()) {
            Runtime::count_moved(bytes(), CopyKind::host_to_device);
            return launch(source_, destination_, stream_.handle);
        }
        const void *from = nullptr;
        const void *to = nullptr;
        if (same_dense_layout(source_, destination_, &from, &to)) {
            CUKERN_TRY(staging.send(Packing(row_of(source_, from)), const_cast<void *>(to)));
        } else {
            TensorView arrived;
            CUKERN_TRY(staging.upload(source_, &arrived));
            CUKERN_TRY(launch(arrived, destination_, stream_.handle));
        }
        staging.finished();
        return CUKERN_OK;
    }

    Status download() noexcept {
        Staging staging;
        CUKERN_TRY(staging.begin_on(stream_));
        if (staging.passes_through()) {
            Runtime::count_moved(bytes(), CopyKind::device_to_host);
            return launch(source_, destination_, stream_.handle);
        }
        const void *from = nullptr;
        const void *to = nullptr;
        if (same_dense_layout(source_, destination_, &from, &to)) {
            CUKERN_TRY(staging.receive(from, Packing(row_of(destination_, to))));
            staging.finished();
            return CUKERN_OK;
        }
        TensorView leaving;
        CUKERN_TRY(staging.reserve(destination_, &leaving));
        CUKERN_TRY(launch(source_, leaving, stream_.handle));
        return staging.download(leaving, destination_);
    }

    Context &context_;
    Runtime &runtime_;
    const TensorView &source_;
    const Location &from_;
    const TensorView &destination_;
    const Location &to_;
    const StreamRef &stream_;
    ScratchBuffer blocks_[2];
};

}  // namespace

Status transfer(const TensorView &source, const Location &from, const TensorView &destination, const Location &to,
                const StreamRef &stream) noexcept {
    if (count_of(destination) == 0) return CUKERN_OK;
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    return Copy(*active, source, from, destination, to, stream).run();
}

}  // namespace cukern
