// Idea: see panel_schedule.h for the order. The transfer engine's workers take pieces of panels and tiles by
// turns; who enqueues the last piece that a product needs launches it, on one stream for all of them. Copies and
// products wait for each other by events on the device; the host waits only where an event is not recorded yet.
#include "operations/matmul_panels.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "operations/device_budget.h"
#include "operations/matmul.h"
#include "operations/panel_schedule.h"
#include "operations/partial_results.h"
#include "plan/layout.h"
#include "transfer/bulk_copy.h"
#include "transfer/pipeline.h"

namespace cukern {
namespace {

// Sides of a panel: below the least cuBLAS is slower, above the most the first product begins late.
constexpr std::int64_t kLeastSide = 2048;
constexpr std::int64_t kMostSide = 8192;
constexpr std::int64_t kGranule = 256;
constexpr std::int64_t kLeastOutOfCore = 32;

// Elements that lie beside each other come last, so that a panel is packed by rows of them.
bool is_column_major(const TensorView &view) noexcept {
    return view.strides[0] < view.strides[1] && view.strides[0] >= 0 && view.shape[0] > 1;
}
TensorView transposed(const TensorView &view) noexcept {
    TensorView other = view;
    std::swap(other.shape[0], other.shape[1]);
    std::swap(other.strides[0], other.strides[1]);
    return other;
}

// A part of a matrix, as it travels and as it is on the device.
class Panel {
public:
    Panel(const TensorView &part) noexcept
        : is_column_major_(is_column_major(part)), packing_(is_column_major_ ? transposed(part) : part) {}
    const Packing &packing() const noexcept { return packing_; }
    TensorView at(void *data) const noexcept {
        const TensorView view = packing_.at(data);
        return is_column_major_ ? transposed(view) : view;
    }

private:
    const bool is_column_major_;
    const Packing packing_;
};

class Panels final : public ChunkedWork {
public:
    // `share`: what it takes at most of the device's memory is divided by this.
    Panels(const MatmulCall &call, Context &context, int share) noexcept
        : call_(call), context_(context), share_(share) {}

    Status run(int device, bool *untouched) noexcept {
        if (device < 0) CUKERN_TRY(context_.runtime.current_device(&device));
        const DeviceGuard guard(context_.runtime, device);
        CUKERN_TRY(guard.status());
        CUKERN_TRY(context_.lanes.acquire(device, &lane_));
        stream_ = lane_->stream->ref();
        Status status = plan();
        if (status == CUKERN_OK) status = run_planned(untouched);
        if (status != CUKERN_OK) context_.lanes.wait_for_all(*lane_, stream_.handle);
        for (Event event : events_) context_.events.release(device, event);
        for (std::vector<ScratchBuffer> &side : buffers_) side.clear();
        context_.lanes.release(lane_);
        return status;
    }

    // How long the sums may be: all of k where panels of some width fit, else about as long as panels are wide.
    std::int64_t longest_sum(int device) const noexcept {
        const std::int64_t k = call_.inputs[0]->shape[1];
        const std::int64_t most = device_budget(context_, device, bytes_of_panels(kGranule, k));
        if (bytes_of_panels(kGranule, k) <= most) return k;
        std::int64_t side = kLeastSide;
        const auto longest = [&](std::int64_t s) {
            const std::int64_t tiles = bytes_of_panels(s, 0);
            return (most - tiles) / (bytes_of_panels(s, 1) - tiles);
        };
        while (side > kLeastOutOfCore && longest(side) < side) side /= 2;
        return longest(side) < kLeastOutOfCore ? 0 : std::min(longest(side), k);
    }

    Status begin(const Worker &worker) noexcept override {
        return context_.runtime.wait_event(worker.stream.handle, events_.back());
    }

    Status enqueue(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        Runtime &runtime = context_.runtime;
        std::size_t index = 0;
        while (chunk >= first_chunk_[index + 1]) ++index;
        const PanelStep &step = schedule_.steps[index];
        const Panel panel(part_of(step));
        const Packing &packing = panel.packing();
        const auto [begin, end] = range_of(step.side, packing, chunk - first_chunk_[index]);
        const bool is_download = step.side == Side::out;
        if (!is_download && !is_direct(step.side, packing)) packing.pack(begin, end, worker.pinned(slot));
        CUKERN_TRY(wait_for_launch(worker.stream, step.after));
        char *here = worker.pinned(slot);
        if (is_direct(step.side, packing))
            here = static_cast<char *>(packing.first()) + begin * packing.item_size();
        char *const there = buffer_of(step.side, step.buffer) + begin * packing.item_size();
        const auto bytes = static_cast<std::size_t>((end - begin) * packing.item_size());
        CUKERN_TRY(runtime.copy(is_download ? here : there, is_download ? there : here, bytes,
                                is_download ? CopyKind::device_to_host : CopyKind::host_to_device,
                                worker.stream.handle));
        CUKERN_TRY(context_.lanes.record_slot(*worker.lane, slot, worker.stream.handle));
        const std::lock_guard lock(mutex_);
        CUKERN_TRY(runtime.wait_event(stream_.handle, worker.lane->events[slot]));
        --pieces_left_[index];
        return launch_what_can_be();
    }

    Status collect(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        std::size_t index = 0;
        while (chunk >= first_chunk_[index + 1]) ++index;
        const PanelStep &step = schedule_.steps[index];
        if (step.side != Side::out) return CUKERN_OK;
        const Panel panel(part_of(step));
        const auto [begin, end] = range_of(step.side, panel.packing(), chunk - first_chunk_[index]);
        if (!is_direct(step.side, panel.packing())) panel.packing().unpack(begin, end, worker.pinned(slot));
        return CUKERN_OK;
    }

    void stop() noexcept override {
        const std::lock_guard lock(mutex_);
        is_stopped_ = true;
        launched_more_.notify_all();
    }

private:
    const TensorView &matrix(Side side) const noexcept {
        return side == Side::out ? *call_.out : *call_.inputs[static_cast<int>(side)];
    }

    // Bytes of the device's memory for an element of a side: it may be converted there.
    std::int64_t device_bytes(Side side) const noexcept {
        const ElementType type = matrix(side).type;
        const ElementType compute = computed_in(context_, call_);
        return size_of(type) + (type == compute ? 0 : size_of(compute));
    }

    // Of two panels of each matrix and two tiles, of at most `side` rows and columns.
    std::int64_t bytes_of_panels(std::int64_t side, std::int64_t k) const noexcept {
        const std::int64_t m = std::min(side, call_.out->shape[0]);
        const std::int64_t n = std::min(side, call_.out->shape[1]);
        return 2 * (k * (m * device_bytes(Side::a) + n * device_bytes(Side::b)) + m * n * device_bytes(Side::out));
    }

    // The least memory with which it goes on is two panels of kLeastOutOfCore a side.
    Status plan() noexcept {
        try {
            const std::int64_t m = call_.out->shape[0];
            const std::int64_t n = call_.out->shape[1];
            const std::int64_t k = call_.inputs[0]->shape[1];
            const std::int64_t a = device_bytes(Side::a);
            const std::int64_t b = device_bytes(Side::b);
            const std::int64_t c = device_bytes(Side::out);
            const std::int64_t all = m * k * a + k * n * b + m * n * c;
            const std::int64_t asked = share_ > 1 ? PTRDIFF_MAX : all;
            const std::int64_t most = device_budget(context_, stream_.device, asked) / share_;
            if (all <= most) {
                const std::int64_t quarter = (std::max(m, n) / 4 + kGranule - 1) / kGranule * kGranule;
                schedule_.cut(m, n, std::clamp(quarter, kLeastSide, kMostSide), true);
                schedule_.plan_in_core();
            } else {
                std::int64_t side = kMostSide;
                while (side > kGranule && bytes_of_panels(side, k) > most) side -= kGranule;
                while (side > kLeastOutOfCore && bytes_of_panels(side, k) > most) side /= 2;
                schedule_.cut(m, n, side, false);
                schedule_.plan_out_of_core();
            }
            return prepare();
        } catch (...) {
            return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
        }
    }

    Status prepare() {
        for (const Side side : {Side::a, Side::b, Side::out}) {
            const auto at = static_cast<std::size_t>(side);
            const TensorView &own = matrix(side);
            const std::int64_t height = side == Side::b ? own.shape[0] : schedule_.most_rows();
            const std::int64_t width = side == Side::a ? own.shape[1] : schedule_.most_columns();
            const std::int64_t bytes = height * width * size_of(own.type);
            buffers_[at] = std::vector<ScratchBuffer>(static_cast<std::size_t>(schedule_.buffers[at]));
            for (ScratchBuffer &buffer : buffers_[at])
                CUKERN_TRY(buffer.acquire(context_, static_cast<std::size_t>(bytes), stream_));
            is_pinned_[at] = travels_directly(context_.runtime, Panel(own).packing());
        }
        first_chunk_.push_back(0);
        for (PanelStep &step : schedule_.steps) {
            const Panel panel(part_of(step));
            const std::int64_t count = elements_in_piece(step.side, panel.packing());
            step.pieces = static_cast<int>((panel.packing().count() + count - 1) / count);
            pieces_left_.push_back(step.pieces);
            first_chunk_.push_back(first_chunk_.back() + step.pieces);
        }
        // One for each product, and one for what the buffers are still used for.
        for (std::size_t i = 0; i <= schedule_.products.size(); ++i) {
            events_.reserve(events_.size() + 1);
            Event event = nullptr;
            CUKERN_TRY(context_.events.acquire(stream_.device, &event));
            events_.push_back(event);
        }
        return context_.runtime.record(events_.back(), stream_.handle);
    }

    Status run_planned(bool *untouched) noexcept {
        PipelineShape shape;
        shape.device = stream_.device;
        shape.chunks = first_chunk_.back();
        return run_pipeline(context_, shape, *this, untouched);
    }

    TensorView part_of(const PanelStep &step) const noexcept { return part(step.side, step.row, step.column); }
    TensorView part(Side side, int row, int column) const noexcept {
        TensorView view = matrix(side);
        const auto cut = [&](int axis, const std::vector<std::int64_t> &bounds, int panel) {
            const std::int64_t *const at = bounds.data() + panel;
            view = part_along(view, axis, at[0], at[1]);
        };
        if (side != Side::b) cut(0, schedule_.row_bounds, row);
        if (side != Side::a) cut(1, schedule_.column_bounds, column);
        return view;
    }

    static std::int64_t elements_in_piece(Side side, const Packing &packing) noexcept {
        const ChunkOf kind = side == Side::out ? ChunkOf::download : ChunkOf::upload;
        return std::max<std::int64_t>(1, pipeline_chunk(packing.bytes(), kind) / packing.item_size());
    }
    static std::pair<std::int64_t, std::int64_t> range_of(Side side, const Packing &packing,
                                                          std::int64_t piece) noexcept {
        const std::int64_t count = elements_in_piece(side, packing);
        return {piece * count, std::min((piece + 1) * count, packing.count())};
    }
    bool is_direct(Side side, const Packing &packing) const noexcept {
        return is_pinned_[static_cast<int>(side)] && packing.dense();
    }
    char *buffer_of(Side side, int buffer) const noexcept {
        return static_cast<char *>(buffers_[static_cast<int>(side)][static_cast<std::size_t>(buffer)].data());
    }

    // Makes later copies on a worker's stream wait for a product.
    Status wait_for_launch(const StreamRef &worker, int product) noexcept {
        if (product < 0) return CUKERN_OK;
        std::unique_lock lock(mutex_);
        launched_more_.wait(lock, [&] { return is_stopped_ || launched_ > product; });
        if (is_stopped_) return fail(CUKERN_INTERNAL, "another worker has failed");
        return context_.runtime.wait_event(worker.handle, events_[static_cast<std::size_t>(product)]);
    }

    // With the mutex held: each product whose panels are all on their way.
    Status launch_what_can_be() noexcept {
        const auto count = static_cast<int>(schedule_.products.size());
        while (launched_ < count) {
            const PanelProduct &own = schedule_.products[static_cast<std::size_t>(launched_)];
            while (enqueued_ < own.steps && pieces_left_[static_cast<std::size_t>(enqueued_)] == 0) ++enqueued_;
            if (enqueued_ < own.steps) break;
            const TensorView a = on_device(Side::a, own);
            const TensorView b = on_device(Side::b, own);
            const TensorView out = on_device(Side::out, own);
            MatmulCall call = call_;
            call.inputs[0] = &a;
            call.inputs[1] = &b;
            call.out = &out;
            CUKERN_TRY(multiply(context_, call, stream_));
            CUKERN_TRY(context_.runtime.record(events_[static_cast<std::size_t>(launched_)], stream_.handle));
            ++launched_;
            launched_more_.notify_all();
        }
        return CUKERN_OK;
    }

    TensorView on_device(Side side, const PanelProduct &own) const noexcept {
        return Panel(part(side, own.row, own.column)).at(buffer_of(side, own.buffers[static_cast<int>(side)]));
    }

    const MatmulCall &call_;
    Context &context_;
    const int share_;
    StagingLane *lane_ = nullptr;  // whose stream computes
    StreamRef stream_;
    PanelSchedule schedule_;
    std::vector<std::int64_t> first_chunk_;  // of each step, and the number of all
    std::vector<ScratchBuffer> buffers_[3];
    std::vector<Event> events_;
    bool is_pinned_[3] = {};
    std::mutex mutex_;
    std::condition_variable launched_more_;
    // Guarded by the mutex:
    std::vector<int> pieces_left_;
    int enqueued_ = 0;  // steps whose pieces are all enqueued, without a gap
    int launched_ = 0;
    bool is_stopped_ = false;
};

}  // namespace

bool is_in_panels(const MatmulCall &call, int device) noexcept {
    std::int64_t bytes = bytes_of(*call.out);
    for (int i = 0; i < 2; ++i) bytes += bytes_of(*call.inputs[i]);
    return call.inputs[0]->shape[1] > 0 && (is_worth_a_pipeline(bytes) || !product_fits(call, device));
}

Status longest_sum(const MatmulCall &call, int device, std::int64_t *longest) noexcept {
    Context *context = nullptr;
    CUKERN_TRY(cukern::context(&context));
    if (device < 0) CUKERN_TRY(context->runtime.current_device(&device));
    const DeviceGuard guard(context->runtime, device);
    CUKERN_TRY(guard.status());
    MatmulCall sums = call;
    TensorView out = *call.out;
    out.type = type_of_sums(call.compute);
    sums.out = &out;
    *longest = Panels(sums, *context, 1).longest_sum(device);
    return CUKERN_OK;
}

Status matmul_in_panels(const MatmulCall &call, int device, bool *untouched) noexcept {
    Context *context = nullptr;
    CUKERN_TRY(cukern::context(&context));
    constexpr int kMostShare = 16;
    for (int share = 1;; share *= 2) {
        *untouched = true;
        const Status status = Panels(call, *context, share).run(device, untouched);
        if (status != CUKERN_OUT_OF_MEMORY || !*untouched || share == kMostShare) return status;
    }
}

}  // namespace cukern
