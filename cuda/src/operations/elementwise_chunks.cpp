// Idea: the dimensions are ordered as `out` lies in memory, merged where all operands allow it, and cut: a chunk
// is a range of one dimension for one index of each outer one, with all of the inner ones. What an operand has for
// a chunk is packed, sent, computed with and brought back by the transfer engine. An operand whose elements
// several chunks need, since it is broadcast along an outer dimension, is brought to the device once and as a
// whole before.
#include "operations/elementwise_chunks.h"

#include <algorithm>

#include "operations/chunk_cut.h"
#include "operations/device_budget.h"
#include "operations/execute.h"
#include "plan/layout.h"
#include "transfer/bulk_copy.h"
#include "transfer/pipeline.h"

namespace cukern {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kMostShare = 64;  // of a slot, where the device has little memory
constexpr int kMostArrays = kMaxInputs + 1;

std::int64_t aligned(std::int64_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::int64_t bytes_to_move(const ElementwiseCall &call) noexcept {
    std::int64_t bytes = bytes_of(*call.out);
    for (int i = 0; i < kMaxInputs && call.inputs[i] != nullptr; ++i)
        if (!call.inputs[i]->immediate) bytes += Packing(*call.inputs[i]).bytes();
    return bytes;
}

class Chunks final : public ChunkedWork {
public:
    Chunks(const ElementwiseCall &call, Context &context, int device) noexcept
        : call_(call), context_(context), device_(device) {
        merge_dimensions();
    }

    // `share`: what the sizes of chunks are divided by.
    Status run(std::int64_t share, bool *untouched) noexcept {
        const std::int64_t bytes = bytes_to_move(call_);
        const std::int64_t slot = std::min(pipeline_chunk(bytes, ChunkOf::download),
                                           static_cast<std::int64_t>(kSlotBytes) - kMostArrays * kAlignment);
        // Without packing the link is faster by larger pieces.
        cut(std::max(slot, std::min(4 * slot, bytes / pipeline_workers())) / share);
        const auto is_direct = [](const Operand &own) { return own.is_direct || own.is_whole; };
        if (!std::all_of(arrays_, arrays_ + num_arrays_, is_direct)) cut(slot / share);
        Staging staging;
        CUKERN_TRY(staging.begin(Staging::Uses::many, device_));
        for (int i = 1; i < num_arrays_; ++i) CUKERN_TRY(bring_whole(staging, arrays_[i]));
        lay_out_slot();
        // What was sent is there: uploads of whole operands are in the staging's stream.
        if (has_whole_) CUKERN_TRY(context_.runtime.synchronize(staging.stream().handle));
        PipelineShape shape;
        shape.device = staging.stream().device;
        shape.chunks = cut_.chunks();
        shape.device_bytes = static_cast<std::size_t>(slot_used_);
        shape.most_workers = device_budget(context_, shape.device, 0) / (kSlots * slot_used_);
        return run_pipeline(context_, shape, *this, untouched);
    }

    Status enqueue(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        Runtime &runtime = context_.runtime;
        ElementwiseCall call = call_;
        TensorView views[kMostArrays];
        std::int64_t packed_begin = 0;  // what is packed in the slot and not sent yet
        std::int64_t packed_end = 0;
        const auto send = [&](std::int64_t begin, std::int64_t end, const void *from) {
            return begin == end
                       ? CUKERN_OK
                       : runtime.copy(worker.device(slot) + begin, from, static_cast<std::size_t>(end - begin),
                                      CopyKind::host_to_device, worker.stream.handle);
        };
        for (int i = 1; i < num_arrays_; ++i) {
            const Operand &own = arrays_[i];
            const TensorView part = cut_.part_of(own.view, chunk);
            if (own.is_whole) {
                views[i] = part;
                continue;
            }
            const Packing packing(part);
            views[i] = packing.at(worker.device(slot) + own.place);
            if (own.is_direct) {
                CUKERN_TRY(send(own.place, own.place + packing.bytes(), packing.first()));
                continue;
            }
            packing.pack(0, packing.count(), worker.pinned(slot) + own.place);
            if (packed_begin < packed_end && own.place != packed_end) {
                CUKERN_TRY(send(packed_begin, packed_end, worker.pinned(slot) + packed_begin));
                packed_begin = packed_end = own.place;
            }
            if (packed_begin == packed_end) packed_begin = own.place;  // what lies beside each other goes as one
            packed_end = own.place + packing.bytes();
        }
        CUKERN_TRY(send(packed_begin, packed_end, worker.pinned(slot) + packed_begin));
        for (int i = 0; i < kMaxInputs && call_.inputs[i] != nullptr; ++i)
            if (input_of_[i] > 0) call.inputs[i] = &views[input_of_[i]];
        const Packing result(cut_.part_of(arrays_[0].view, chunk));
        char *const there = worker.device(slot) + arrays_[0].place;
        views[0] = result.at(there);
        call.out = &views[0];
        ElementwiseLaunch launch;
        plan_elementwise(call, &launch);
        if (!does_nothing(launch)) CUKERN_TRY(runtime.launch_elementwise(launch, worker.stream.handle));
        void *const to = arrays_[0].is_direct ? result.first() : worker.pinned(slot) + arrays_[0].place;
        return runtime.copy(to, there, static_cast<std::size_t>(result.bytes()), CopyKind::device_to_host,
                            worker.stream.handle);
    }

    Status collect(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        if (arrays_[0].is_direct) return CUKERN_OK;
        const Packing result(cut_.part_of(arrays_[0].view, chunk));
        result.unpack(0, result.count(), worker.pinned(slot) + arrays_[0].place);
        return CUKERN_OK;
    }

private:
    struct Operand {
        TensorView view;            // of the merged dimensions; on the device, where it is whole
        bool may_be_whole = false;  // the device has memory for it; else it goes with each chunk that needs it
        bool is_whole = false;      // on the device before the first chunk
        bool is_pinned = false;
        bool is_direct = false;  // pinned, and what a chunk has of it lies together: it is not packed
        std::int64_t place = 0;  // in a slot
    };

    // `out` is array 0; inputs that are the same view, as in add(a, a), are one array.
    void merge_dimensions() noexcept {
        const TensorView &out = *call_.out;
        arrays_[num_arrays_++].view = out;
        for (int i = 0; i < kMaxInputs && call_.inputs[i] != nullptr; ++i) {
            const TensorView &input = *call_.inputs[i];
            if (input.immediate) continue;
            for (int j = 0; j < i && input_of_[i] == 0; ++j)
                if (same_view(input, *call_.inputs[j])) input_of_[i] = input_of_[j];
            if (input_of_[i] > 0) continue;
            input_of_[i] = num_arrays_;
            TensorView &view = arrays_[num_arrays_++].view;
            view = input;
            spread(out, &view);
        }
        std::int64_t *strides[kMostArrays] = {};
        for (int i = 0; i < num_arrays_; ++i) strides[i] = arrays_[i].view.strides;
        std::copy_n(out.shape, out.ndim, shape_);
        ndim_ = coalesce_dimensions(shape_, strides, num_arrays_, out.ndim);
        if (ndim_ == 0) {  // a single element
            shape_[ndim_++] = 1;
            for (std::int64_t *stride : strides)
                if (stride != nullptr) stride[0] = 1;
        }
        for (int i = 0; i < num_arrays_; ++i) {
            TensorView &view = arrays_[i].view;
            view.ndim = ndim_;
            std::copy_n(shape_, ndim_, view.shape);
            const Packing packing(view);
            arrays_[i].is_pinned = travels_directly(context_.runtime, packing);
            arrays_[i].may_be_whole =
                packing.bytes() <= device_budget(context_, device_, packing.bytes()) / kMostArrays;
        }
    }

    // An input with the dimensions of `out`, to whose shape it broadcasts.
    static void spread(const TensorView &out, TensorView *input) noexcept {
        const int lead = out.ndim - input->ndim;
        for (int i = out.ndim - 1; i >= 0; --i) {
            const bool repeats = i < lead || (input->shape[i - lead] == 1 && out.shape[i] != 1);
            input->strides[i] = repeats ? 0 : input->strides[i - lead];
            input->shape[i] = out.shape[i];
        }
        input->ndim = out.ndim;
    }

    // Chunks of at most so many bytes.
    void cut(std::int64_t slot_bytes) noexcept {
        std::int64_t element = 0;
        for (int i = 0; i < num_arrays_; ++i) element += size_of(arrays_[i].view.type);
        // By multiples of kAlignment operands lie beside each other without gaps.
        cut_.cut(shape_, ndim_, std::max<std::int64_t>(1, slot_bytes / element), kAlignment);
        for (int i = 0; i < num_arrays_; ++i) {
            Operand &own = arrays_[i];
            own.is_direct = own.is_pinned && Packing(cut_.part_of(own.view, 0)).dense();
            own.is_whole = i > 0 && own.may_be_whole && cut_.repeats(own.view);
        }
    }

    // What several chunks need.
    Status bring_whole(Staging &staging, Operand &own) noexcept {
        if (!own.is_whole) return CUKERN_OK;
        TensorView there;
        CUKERN_TRY(staging.upload(own.view, &there));
        own.view = there;
        has_whole_ = true;
        return CUKERN_OK;
    }

    void lay_out_slot() noexcept {
        for (int i = 1; i < num_arrays_; ++i) give_place(arrays_[i]);
        give_place(arrays_[0]);
    }
    void give_place(Operand &own) noexcept {
        if (own.is_whole) return;
        own.place = slot_used_;
        slot_used_ += aligned(Packing(cut_.part_of(own.view, 0)).bytes());
    }

    const ElementwiseCall &call_;
    Context &context_;
    const int device_;
    int ndim_ = 0;
    std::int64_t shape_[kMaxDims];
    Operand arrays_[kMostArrays];
    int num_arrays_ = 0;
    int input_of_[kMaxInputs] = {};  // the array that an input is; 0: a value
    bool has_whole_ = false;
    ChunkCut cut_;
    std::int64_t slot_used_ = 0;
};

}  // namespace

bool is_in_chunks(const ElementwiseCall &call, int device) noexcept {
    return is_worth_a_pipeline(bytes_to_move(call)) || !fits_on_device(call, device);
}

Status elementwise_in_chunks(const ElementwiseCall &call, int device) noexcept {
    Context *context = nullptr;
    CUKERN_TRY(cukern::context(&context));
    if (device < 0) CUKERN_TRY(context->runtime.current_device(&device));
    const DeviceGuard guard(context->runtime, device);
    CUKERN_TRY(guard.status());
    for (std::int64_t share = 1;; share *= 2) {
        bool untouched = true;
        const Status status = Chunks(call, *context, device).run(share, &untouched);
        if (status == CUKERN_OUT_OF_MEMORY && untouched && share < kMostShare) continue;
        if (status == CUKERN_OK || untouched) return status;
        add_to_message("; the result may have been written in part");
        // Another try, which want of memory is worth, would compute from operands that are written to already.
        return status == CUKERN_OUT_OF_MEMORY ? CUKERN_CUDA_ERROR : status;
    }
}

}  // namespace cukern
