// Idea: the dimensions of the batch are merged where all operands allow it, and cut: a chunk is a range of one of
// them for one index of each outer one. What an operand has for a chunk goes into a slot of the transfer engine's
// worker; an operand that several chunks need, since it repeats, is brought to the device once and as a whole
// before. Products of all chunks are enqueued on one stream, for which there is one handle of cuBLAS; it and the
// workers' streams wait for each other by events.
#include "operations/matmul_batches.h"

#include <algorithm>
#include <mutex>

#include "operations/chunk_cut.h"
#include "operations/device_budget.h"
#include "operations/matmul.h"
#include "plan/layout.h"
#include "transfer/bulk_copy.h"
#include "transfer/pipeline.h"
#include "transfer/staging.h"

namespace cukern {
namespace {

constexpr int kArrays = 3;  // a, b and out
constexpr int kOut = 2;
constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kSlot = static_cast<std::int64_t>(kSlotBytes) - kArrays * kAlignment;

std::int64_t aligned(std::int64_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

const TensorView &array_of(const MatmulCall &call, int i) noexcept {
    return i == kOut ? *call.out : *call.inputs[i];
}

// Of one matrix.
std::int64_t matrix_bytes(const TensorView &view) noexcept {
    return view.shape[view.ndim - 2] * view.shape[view.ndim - 1] * size_of(view.type);
}

std::int64_t bytes_to_move(const MatmulCall &call) noexcept {
    std::int64_t bytes = 0;
    for (int i = 0; i < kArrays; ++i) bytes += Packing(array_of(call, i)).bytes();
    return bytes;
}

class Batches final : public ChunkedWork {
public:
    Batches(const MatmulCall &call, Context &context, int device) noexcept
        : call_(call), context_(context), device_(device) {
        merge_dimensions();
        cut();
    }

    Status run(bool *untouched) noexcept {
        CUKERN_TRY(staging_.begin(Staging::Uses::many, device_));
        for (Operand &own : arrays_) {
            if (own.is_whole) {
                TensorView there;
                CUKERN_TRY(staging_.upload(own.view, &there));
                own.view = there;
            } else {
                own.place = slot_used_;
                slot_used_ += aligned(Packing(cut_.part_of(own.view, 0)).bytes());
            }
        }
        PipelineShape shape;
        shape.device = staging_.stream().device;
        shape.chunks = cut_.chunks();
        shape.device_bytes = static_cast<std::size_t>(slot_used_);
        shape.most_workers =
            (device_budget(context_, shape.device, 0) - cut_.rows() * converted_) / (kSlots * slot_used_);
        const Status status = run_pipeline(context_, shape, *this, untouched);
        // Whole operands and scratch memory go back to the pool with this stream; nothing is under way on it.
        if (status != CUKERN_OK) context_.runtime.synchronize(staging_.stream().handle);
        return status;
    }

    Status enqueue(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        Runtime &runtime = context_.runtime;
        TensorView views[kArrays];
        for (int i = 0; i < kOut; ++i) {
            const Operand &own = arrays_[i];
            const TensorView part = cut_.part_of(own.view, chunk);
            if (own.is_whole) {
                views[i] = part;
                continue;
            }
            const Packing packing(part);
            char *const there = worker.device(slot) + own.place;
            views[i] = packing.at(there);
            const void *from = packing.first();
            if (!own.is_direct) {
                packing.pack(0, packing.count(), worker.pinned(slot) + own.place);
                from = worker.pinned(slot) + own.place;
            }
            CUKERN_TRY(runtime.copy(there, from, static_cast<std::size_t>(packing.bytes()),
                                    CopyKind::host_to_device, worker.stream.handle));
        }
        const Packing result(cut_.part_of(arrays_[kOut].view, chunk));
        char *const there = worker.device(slot) + arrays_[kOut].place;
        views[kOut] = result.at(there);
        MatmulCall call = call_;
        call.inputs[0] = &views[0];
        call.inputs[1] = &views[1];
        call.out = &views[kOut];
        CUKERN_TRY(launch(call, worker));
        void *const to = arrays_[kOut].is_direct ? result.first() : worker.pinned(slot) + arrays_[kOut].place;
        return runtime.copy(to, there, static_cast<std::size_t>(result.bytes()), CopyKind::device_to_host,
                            worker.stream.handle);
    }

    Status collect(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        if (arrays_[kOut].is_direct) return CUKERN_OK;
        const Packing result(cut_.part_of(arrays_[kOut].view, chunk));
        result.unpack(0, result.count(), worker.pinned(slot) + arrays_[kOut].place);
        return CUKERN_OK;
    }

private:
    struct Operand {
        TensorView view;         // of the merged dimensions; on the device, where it is whole
        bool is_whole = false;   // on the device before the first chunk
        bool is_direct = false;  // pinned, and what a chunk has of it lies together: it is not packed
        std::int64_t place = 0;  // in a slot
    };

    // Makes the products' stream wait for the worker's, and the other way round.
    Status launch(const MatmulCall &call, const Worker &worker) noexcept {
        Runtime &runtime = context_.runtime;
        const StreamRef &products = staging_.stream();
        Event event = nullptr;
        CUKERN_TRY(context_.events.acquire(products.device, &event));
        Status status = runtime.record(event, worker.stream.handle);
        if (status == CUKERN_OK) {
            const std::lock_guard lock(mutex_);
            status = runtime.wait_event(products.handle, event);
            if (status == CUKERN_OK) status = multiply(context_, call, products);
            if (status == CUKERN_OK) status = runtime.record(event, products.handle);
        }
        if (status == CUKERN_OK) status = runtime.wait_event(worker.stream.handle, event);
        context_.events.release(products.device, event);
        return status;
    }

    void merge_dimensions() noexcept {
        const int batch = call_.out->ndim - 2;
        std::int64_t *strides[kArrays];
        for (int i = 0; i < kArrays; ++i) {
            arrays_[i].view = array_of(call_, i);
            strides[i] = arrays_[i].view.strides;
        }
        std::copy_n(call_.out->shape, batch, shape_);
        std::int64_t rows[kArrays][4];  // the matrices' own shapes and strides
        for (int i = 0; i < kArrays; ++i)
            for (int d = 0; d < 2; ++d) {
                rows[i][d] = arrays_[i].view.shape[batch + d];
                rows[i][2 + d] = arrays_[i].view.strides[batch + d];
            }
        std::int64_t *const from_out[] = {strides[kOut], strides[0], strides[1]};  // whose order decides
        ndim_ = coalesce_dimensions(shape_, from_out, kArrays, batch);
        if (ndim_ == 0) {
            shape_[ndim_++] = 1;
            for (std::int64_t *stride : strides) stride[0] = 0;
        }
        for (int i = 0; i < kArrays; ++i) {
            TensorView &view = arrays_[i].view;
            view.ndim = ndim_ + 2;
            std::copy_n(shape_, ndim_, view.shape);
            std::copy_n(rows[i], 2, view.shape + ndim_);
            std::copy_n(rows[i] + 2, 2, view.strides + ndim_);
        }
    }

    // Chunks of as many matrices as a slot takes.
    void cut() noexcept {
        std::int64_t each = 0;
        const ElementType compute = computed_in(context_, call_);
        for (const Operand &own : arrays_) {
            each += matrix_bytes(own.view);
            if (own.view.type != compute)
                converted_ += matrix_bytes(own.view) / size_of(own.view.type) * size_of(compute);
        }
        const std::int64_t bytes = bytes_to_move(call_);
        const std::int64_t room = device_budget(context_, device_, bytes) / 2;
        const std::int64_t most = std::max<std::int64_t>(
            1, std::min(pipeline_chunk(bytes, ChunkOf::download) / each, room / (kSlots * each + converted_)));
        cut_.cut(shape_, ndim_, most, 1);
        for (int i = 0; i < kArrays; ++i) {
            Operand &own = arrays_[i];
            const Packing packing(own.view);
            own.is_direct =
                travels_directly(context_.runtime, packing) && Packing(cut_.part_of(own.view, 0)).dense();
            own.is_whole = i != kOut && cut_.repeats(own.view) && cut_.chunks() > 1 &&
                           packing.bytes() <= device_budget(context_, device_, packing.bytes()) / kArrays;
        }
    }

    const MatmulCall &call_;
    Context &context_;
    const int device_;
    int ndim_ = 0;  // of the batch
    std::int64_t shape_[kMaxDims];
    Operand arrays_[kArrays];
    ChunkCut cut_;
    std::int64_t slot_used_ = 0;
    std::int64_t converted_ =
        0;             // bytes of a product's matrices in the type that it is computed in, where they are not
    Staging staging_;  // whose stream computes
    std::mutex mutex_;
};

// Whether the device holds a worker's slots of one product each.
bool fits_in_slots(const MatmulCall &call, int device, std::int64_t each) noexcept {
    Context *context = nullptr;
    if (cukern::context(&context) != CUKERN_OK) return true;  // which will be told
    const ElementType compute = computed_in(*context, call);
    std::int64_t needed = kSlots * each;
    for (int i = 0; i < kArrays; ++i) {
        const TensorView &view = array_of(call, i);
        if (view.type != compute) needed += matrix_bytes(view) / size_of(view.type) * size_of(compute);
    }
    return fits_in_budget(*context, device, needed);
}

}  // namespace

bool is_in_batches(const MatmulCall &call, int device) noexcept {
    std::int64_t each = 0;
    for (int i = 0; i < kArrays; ++i) each += matrix_bytes(array_of(call, i));
    return call.out->ndim > 2 && each > 0 && each <= kSlot && matrix_bytes(*call.inputs[0]) > 0 &&
           (is_worth_a_pipeline(bytes_to_move(call)) || !product_fits(call, device)) &&
           fits_in_slots(call, device, each);
}

Status matmul_in_batches(const MatmulCall &call, int device) noexcept {
    Context *context = nullptr;
    CUKERN_TRY(cukern::context(&context));
    if (device < 0) CUKERN_TRY(context->runtime.current_device(&device));
    const DeviceGuard guard(context->runtime, device);
    CUKERN_TRY(guard.status());
    bool untouched = true;
    const Status status = Batches(call, *context, device).run(&untouched);
    if (status != CUKERN_OK && !untouched) add_to_message("; the result may have been written in part");
    return status;
}

}  // namespace cukern
