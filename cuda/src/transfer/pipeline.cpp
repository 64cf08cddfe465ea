#include "transfer/pipeline.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "host/thread_pool.h"
#include "memory/transfer_options.h"
#include "transfer/work_monitor.h"

namespace cukern {
namespace {

constexpr std::int64_t kMostUpload = 2 << 20;
constexpr std::int64_t kLeastChunk = 512 << 10;

class Pipeline {
public:
    Pipeline(Context &context, const PipelineShape &shape, ChunkedWork &work) noexcept
        : context_(context), runtime_(context.runtime), shape_(shape), work_(work) {}

    Status run(bool *untouched) noexcept {
        const auto most = static_cast<int>(std::min(
            {std::int64_t{pipeline_workers()}, shape_.chunks, std::max<std::int64_t>(1, shape_.most_workers)}));
        parallel_for(most, 1, [this](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) use(workers_[i]);
        });
        const bool failed = stopped_.load() || collected_.load() < shape_.chunks;
        for (Worker &worker : workers_)
            if (worker.lane != nullptr) give_back(worker, failed);
        if (!failed) return report_end(shape_.chunks);
        if (untouched != nullptr) *untouched = next_.load() == 0;
        set_last_error(cause_);
        return cause_.status;
    }

private:
    // What it needs it takes also where others have left no chunk: the next call finds as much.
    void use(Worker &worker) noexcept {
        if (stopped_.load()) return;
        const DeviceGuard guard(runtime_, shape_.device);
        Status status = guard.status();
        if (status == CUKERN_OK) status = prepare(worker);
        if (status != CUKERN_OK) return note(false);  // others may have what they need
        status = work_on_chunks(worker);
        if (status != CUKERN_OK) note(true);
    }

    Status prepare(Worker &worker) noexcept {
        std::fill_n(worker.chunks, kSlots, -1);
        CUKERN_TRY(context_.lanes.acquire(shape_.device, &worker.lane));
        CUKERN_TRY(context_.lanes.prepare_slots(*worker.lane));
        worker.stream = worker.lane->stream->ref();
        for (int slot = 0; shape_.device_bytes > 0 && slot < kSlots; ++slot)
            CUKERN_TRY(worker.blocks[slot].acquire(context_, shape_.device_bytes, worker.stream));
        return work_.begin(worker);
    }

    Status work_on_chunks(Worker &worker) noexcept {
        int slot = 0;
        while (!stopped_.load(std::memory_order_relaxed)) {
            const std::int64_t chunk = next_.fetch_add(1);
            if (chunk >= shape_.chunks) break;
            CUKERN_TRY(collect(worker, slot));
            CUKERN_TRY(context_.lanes.wait_for_slot(*worker.lane, slot));
            worker.chunks[slot] = chunk;
            CUKERN_TRY(work_.enqueue(worker, slot, chunk));
            CUKERN_TRY(context_.lanes.record_slot(*worker.lane, slot, worker.stream.handle));
            slot = (slot + 1) % kSlots;
            if (caller_ == std::this_thread::get_id()) CUKERN_TRY(report_work(collected_.load(), shape_.chunks));
        }
        for (int i = 0; i < kSlots && !stopped_.load(std::memory_order_relaxed); ++i)
            CUKERN_TRY(collect(worker, (slot + i) % kSlots));
        return CUKERN_OK;
    }

    Status collect(Worker &worker, int slot) noexcept {
        if (worker.chunks[slot] < 0) return CUKERN_OK;
        CUKERN_TRY(context_.lanes.wait_for_slot(*worker.lane, slot));
        CUKERN_TRY(work_.collect(worker, slot, worker.chunks[slot]));
        worker.chunks[slot] = -1;
        collected_.fetch_add(1);
        return CUKERN_OK;
    }

    // Keeps the first cause. One that stops the others comes before one that does not, and an interrupt before
    // all: who has asked for it has an exception on its way.
    void note(bool stops) noexcept {
        {
            const std::lock_guard lock(mutex_);
            const bool is_first = cause_.status == CUKERN_OK || (stops && !stopped_.load());
            if (is_first || last_error().status == CUKERN_INTERRUPTED) cause_ = last_error();
            if (stops) stopped_.store(true);
        }
        if (stops) work_.stop();
    }

    void give_back(Worker &worker, bool failed) noexcept {
        const DeviceGuard guard(runtime_, shape_.device);
        if (failed) context_.lanes.wait_for_all(*worker.lane, worker.lane->stream->handle());
        for (ScratchBuffer &block : worker.blocks) block.reset();
        context_.lanes.release(worker.lane);
    }

    Context &context_;
    Runtime &runtime_;
    const PipelineShape shape_;
    ChunkedWork &work_;
    const std::thread::id caller_ = std::this_thread::get_id();
    Worker workers_[kMostTransferWorkers];
    std::atomic<std::int64_t> next_{0};
    std::atomic<std::int64_t> collected_{0};
    std::atomic<bool> stopped_{false};
    std::mutex mutex_;
    ErrorRecord cause_;  // guarded by the mutex
};

}  // namespace

// As many as are asked for, also where there are fewer threads, which then take turns.
int pipeline_workers() noexcept {
    const int asked = staging_options().workers;
    return asked > 0 ? asked : std::min(pool_threads(), kMostTransferWorkers);
}

std::int64_t pipeline_chunk(std::int64_t bytes, ChunkOf kind) noexcept {
    const std::int64_t most = kind == ChunkOf::upload ? kMostUpload : static_cast<std::int64_t>(kSlotBytes);
    const std::int64_t slot = std::min(staging_options().slot_bytes, most);
    const std::int64_t share = bytes / (std::int64_t{kSlots} * pipeline_workers());
    return std::clamp(share, std::min(kLeastChunk, slot), slot);
}

bool is_worth_a_pipeline(std::int64_t bytes) noexcept { return bytes > staging_options().slot_bytes; }

Status run_pipeline(Context &context, const PipelineShape &shape, ChunkedWork &work, bool *untouched) noexcept {
    return Pipeline(context, shape, work).run(untouched);
}

}  // namespace cukern
