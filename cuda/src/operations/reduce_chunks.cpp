// Idea: the array is cut into boxes, each of which goes to the device once and comes back as what it joins to: of
// a box along the reduced dimensions an element for each of the others. These parts are joined on the processor:
// by the same reduction, for means by their sums, for variances by Chan's formula for the mean and the variance of
// parts (T. F. Chan, G. H. Golub, R. J. LeVeque, 1979), and for indices by the largest or smallest element that
// each part has.
#include "operations/reduce_chunks.h"

#include <algorithm>
#include <cmath>

#include "memory/transfer_options.h"
#include "operations/device_budget.h"
#include "operations/partial_results.h"
#include "plan/layout.h"
#include "transfer/packing.h"
#include "transfer/pipeline.h"

namespace cukern {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kMostShare = 64;      // of a slot, where the device has little memory
constexpr std::int64_t kLeastSlot = 1024;    // bytes of a slot with which there would be no end of boxes
constexpr std::int64_t kScratch = 12 << 20;  // bytes that a kernel may take beside
constexpr std::int64_t kLeastRun = 256;      // elements that lie beside each other and are packed as one

std::int64_t aligned(std::int64_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class Boxes final : public ChunkedWork {
public:
    explicit Boxes(const ReduceCall &call, Context &context) noexcept : call_(call), context_(context) {
        const ElementType type = type_of_sums(widened(call));
        if (gives_index(call.op)) {
            add_part(call.op, call.compute);
            add_part(call.op == Op::argmax ? Op::max : Op::min, call.inputs[0]->type);
        } else if (is_variance(call.op)) {
            add_part(Op::mean, type);
            add_part(Op::var, type);
        } else {
            add_part(call.op == Op::mean ? Op::sum : call.op, type);
        }
    }

    // `share`: what the sizes of boxes are divided by.
    Status run(int device, std::int64_t share) noexcept {
        Context *processor = nullptr;
        CUKERN_TRY(processor_context(&processor));
        cut(pipeline_chunk(bytes_of(*call_.inputs[0]), ChunkOf::download) / share);
        for (Part &part : parts_) {
            if (!part.is_used) continue;
            CUKERN_TRY(part.memory.acquire(boxes_along_ * count_of(*call_.out) * size_of(part.type)));
        }
        if (device < 0) CUKERN_TRY(context_.runtime.current_device(&device));
        PipelineShape shape;
        shape.device = device;
        shape.chunks = boxes_;
        shape.device_bytes = static_cast<std::size_t>(slot_used_);
        shape.most_workers = device_budget(context_, device, 0) / (kSlots * slot_used_ + kScratch);
        CUKERN_TRY(run_pipeline(context_, shape, *this));
        if (gives_index(call_.op)) return join_indices(*processor);
        return is_variance(call_.op) ? join_variances(*processor) : join(*processor);
    }

    Status enqueue(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        const Box box = box_of(chunk);
        const Packing packing(box.view);
        packing.pack(0, packing.count(), worker.pinned(slot));
        Runtime &runtime = context_.runtime;
        CUKERN_TRY(runtime.copy(worker.device(slot), worker.pinned(slot),
                                static_cast<std::size_t>(packing.bytes()), CopyKind::host_to_device,
                                worker.stream.handle));
        const TensorView input = packing.at(worker.device(slot));
        for (const Part &part : parts_) {
            if (!part.is_used) continue;
            TensorView out = result_of(part, box);
            const std::int64_t bytes = bytes_of(out);
            out.data = worker.device(slot) + part.place;
            set_contiguous(out);
            ReduceCall call = call_;
            call.op = part.op;
            call.compute = part.compute;
            call.correction = 0;
            call.inputs[0] = &input;
            call.out = &out;
            CUKERN_TRY(run_reduction(context_, call, worker.stream));
            CUKERN_TRY(runtime.copy(worker.pinned(slot) + part.place, out.data, static_cast<std::size_t>(bytes),
                                    CopyKind::device_to_host, worker.stream.handle));
        }
        return CUKERN_OK;
    }

    Status collect(const Worker &worker, int slot, std::int64_t chunk) noexcept override {
        const Box box = box_of(chunk);
        for (const Part &part : parts_) {
            if (!part.is_used) continue;
            const TensorView result = result_of(part, box);
            scatter(result, 0, count_of(result), worker.pinned(slot) + part.place);
        }
        return CUKERN_OK;
    }

private:
    // Results of the boxes: of each along the reduced dimensions an array of the shape of `out`.
    struct Part {
        bool is_used = false;
        Op op = Op::sum;
        ElementType compute = ElementType::float32;
        ElementType type = ElementType::float32;
        HostBuffer memory;
        std::int64_t place = 0;  // in a slot
    };

    struct Box {
        TensorView view;
        std::int64_t along = 0;  // among those of the same results
        std::int64_t first[kMaxDims];
    };

    void add_part(Op op, ElementType compute) noexcept {
        Part &part = parts_[parts_[0].is_used ? 1 : 0];
        part.is_used = true;
        part.op = op;
        part.compute = compute;
        part.type = result_type(op, compute);
    }

    // Halves the sides until a box and its results fit into a slot: first of dimensions that stay.
    void cut(std::int64_t slot) noexcept {
        const TensorView &input = *call_.inputs[0];
        std::copy_n(input.shape, input.ndim, sides_);
        while (slot_bytes() > slot) {
            const int d = dimension_to_halve();
            if (d < 0) break;
            sides_[d] = (sides_[d] + 1) / 2;
        }
        boxes_ = boxes_along_ = 1;
        for (int d = 0; d < input.ndim; ++d) {
            grid_[d] = (input.shape[d] + sides_[d] - 1) / sides_[d];
            boxes_ *= grid_[d];
            if (call_.reduced[d]) boxes_along_ *= grid_[d];
        }
        slot_used_ = slot_bytes();
    }

    std::int64_t slot_bytes() noexcept {
        const TensorView &input = *call_.inputs[0];
        std::int64_t elements = 1;
        std::int64_t results = 1;
        for (int d = 0; d < input.ndim; ++d) {
            elements *= sides_[d];  // of broadcast dimensions too: scratch memory of kernels is by these
            if (!call_.reduced[d]) results *= sides_[d];
        }
        std::int64_t bytes = aligned(elements * size_of(input.type));
        for (Part &part : parts_) {
            if (!part.is_used) continue;
            part.place = bytes;
            bytes += aligned(results * size_of(part.type));
        }
        return bytes;
    }

    // Of those that may be: the one with the longest steps. Boxes of indices are ranges in the order in which
    // elements are counted.
    int dimension_to_halve() const noexcept {
        const TensorView &input = *call_.inputs[0];
        int found = -1;
        const auto longer = [&](int d) {
            return found < 0 || std::llabs(input.strides[d]) > std::llabs(input.strides[found]);
        };
        for (int d = 0; d < input.ndim; ++d) {
            const std::int64_t least = std::llabs(input.strides[d]) == 1 ? kLeastRun : 1;
            if (!call_.reduced[d] && sides_[d] > least && longer(d)) found = d;
        }
        for (int d = 0; found < 0 && gives_index(call_.op) && d < input.ndim; ++d)
            if (call_.reduced[d] && sides_[d] > 1) return d;
        if (found >= 0) return found;
        for (int d = 0; d < input.ndim; ++d)
            if (call_.reduced[d] && sides_[d] > 1 && longer(d)) found = d;
        for (int d = 0; found < 0 && d < input.ndim; ++d)
            if (sides_[d] > 1) return d;
        return found;
    }

    Box box_of(std::int64_t chunk) const noexcept {
        const TensorView &input = *call_.inputs[0];
        Box box;
        box.view = input;
        std::int64_t offset = 0;
        std::int64_t along_step = 1;
        for (int d = input.ndim - 1; d >= 0; --d) {
            const std::int64_t at = chunk % grid_[d];
            chunk /= grid_[d];
            box.first[d] = at * sides_[d];
            box.view.shape[d] = std::min(sides_[d], input.shape[d] - box.first[d]);
            offset += box.first[d] * input.strides[d];
            if (!call_.reduced[d]) continue;
            box.along += at * along_step;
            along_step *= grid_[d];
        }
        box.view.data = static_cast<char *>(input.data) + offset * size_of(input.type);
        return box;
    }

    // Where a box's results are.
    TensorView result_of(const Part &part, const Box &box) const noexcept {
        const TensorView &input = *call_.inputs[0];
        TensorView view = packed_like(*call_.out, part.type, nullptr);
        std::int64_t offset = box.along * count_of(*call_.out);
        int at = 0;
        for (int d = 0; d < input.ndim; ++d) {
            if (call_.reduced[d]) continue;
            offset += box.first[d] * view.strides[at];
            view.shape[at++] = box.view.shape[d];
        }
        view.data = static_cast<char *>(part.memory.data()) + offset * size_of(part.type);
        return view;
    }

    // All results of a part, one after the other along the first dimension.
    TensorView all_of(const Part &part) const noexcept {
        TensorView view;
        view.type = part.type;
        view.data = part.memory.data();
        view.ndim = 2;
        view.shape[0] = boxes_along_;
        view.shape[1] = count_of(*call_.out);
        set_contiguous(view);
        return view;
    }

    // Joins a part along the boxes into `memory`, as if the results were one row.
    Status join_part(Context &processor, const Part &part, Op op, ElementType compute, HostBuffer &memory,
                     TensorView *joined) noexcept {
        const TensorView input = all_of(part);
        const ElementType type = result_type(op, compute);
        CUKERN_TRY(memory.acquire(input.shape[1] * size_of(type)));
        joined->data = memory.data();
        joined->type = type;
        joined->ndim = 1;
        joined->shape[0] = input.shape[1];
        set_contiguous(*joined);
        ReduceCall call;
        call.op = op;
        call.compute = compute;
        call.inputs[0] = &input;
        call.out = joined;
        call.reduced[0] = true;
        return run_reduction(processor, call, StreamRef{});
    }

    // Into `out`, by way of the type that was asked for.
    Status store(Context &processor, const TensorView &row) noexcept {
        const TensorView shaped = packed_like(*call_.out, row.type, row.data);
        return convert_by(processor, shaped, result_type(call_.op, call_.compute), *call_.out, StreamRef{});
    }

    std::int64_t reduced_count() const noexcept { return count_of(*call_.inputs[0]) / count_of(*call_.out); }

    Status join(Context &processor) noexcept {
        HostBuffer memory;
        TensorView joined;
        CUKERN_TRY(join_part(processor, parts_[0], parts_[0].op, parts_[0].compute, memory, &joined));
        if (call_.op == Op::mean) {
            const TensorView count = number(joined.type, {static_cast<double>(reduced_count()), 0});
            CUKERN_TRY(change_on(processor, Op::divide, joined, count));
        }
        return store(processor, joined);
    }

    // A part's results as another element type.
    Status convert(Context &processor, const Part &part, ElementType type, HostBuffer &memory) noexcept {
        const TensorView all = all_of(part);
        CUKERN_TRY(memory.acquire(count_of(all) * size_of(type)));
        return processor.runtime.launch_elementwise(plan_copy(all, packed_like(all, type, memory.data())),
                                                    nullptr);
    }

    // Elements that a box along the reduced dimensions joins.
    double count_along(std::int64_t along) const noexcept {
        const TensorView &input = *call_.inputs[0];
        double count = 1;
        for (int d = input.ndim - 1; d >= 0; --d) {
            if (!call_.reduced[d]) continue;
            const std::int64_t first = along % grid_[d] * sides_[d];
            along /= grid_[d];
            count *= static_cast<double>(std::min(sides_[d], input.shape[d] - first));
        }
        return count;
    }

    Status join_variances(Context &processor) noexcept {
        HostBuffer means_memory;
        HostBuffer variances_memory;
        CUKERN_TRY(convert(processor, parts_[0], ElementType::complex128, means_memory));
        CUKERN_TRY(convert(processor, parts_[1], ElementType::float64, variances_memory));
        const auto *means = static_cast<const Complex128 *>(means_memory.data());
        auto *variances = static_cast<double *>(variances_memory.data());
        const std::int64_t results = count_of(*call_.out);
        const auto all = static_cast<double>(reduced_count());
        const double divisor = std::max(all - call_.correction, 0.0);
        for (std::int64_t i = 0; i < results; ++i) {
            double count = 0;
            double real = 0;
            double imag = 0;
            double squares = 0;
            for (std::int64_t j = 0; j < boxes_along_; ++j) {
                const double own = count_along(j);
                const Complex128 &mean = means[j * results + i];
                if (j == 0) {
                    real = mean.real;
                    imag = mean.imag;
                }
                const double real_apart = mean.real - real;
                const double imag_apart = mean.imag - imag;
                const double share = own / (count + own);
                squares += variances[j * results + i] * own +
                           (real_apart * real_apart + imag_apart * imag_apart) * count * share;
                real += real_apart * share;
                imag += imag_apart * share;
                count += own;
            }
            variances[i] = call_.op == Op::std ? std::sqrt(squares / divisor) : squares / divisor;
        }
        TensorView row;
        row.data = variances;
        row.type = ElementType::float64;
        return store(processor, row);
    }

    Status join_indices(Context &processor) noexcept {
        HostBuffer memory;
        TensorView best;
        CUKERN_TRY(join_part(processor, parts_[1], call_.op, parts_[1].type, memory, &best));
        auto *const along = static_cast<std::int64_t *>(best.data);
        const auto *indices = static_cast<const std::int64_t *>(parts_[0].memory.data());
        const std::int64_t results = count_of(*call_.out);
        for (std::int64_t i = 0; i < results; ++i)
            along[i] = first_along(along[i]) + indices[along[i] * results + i];
        return store(processor, best);
    }

    // The index of the first element of a box, among those that are joined.
    std::int64_t first_along(std::int64_t along) const noexcept {
        const TensorView &input = *call_.inputs[0];
        std::int64_t index = 0;
        std::int64_t step = 1;
        for (int d = input.ndim - 1; d >= 0; --d) {
            if (!call_.reduced[d]) continue;
            index += along % grid_[d] * sides_[d] * step;
            along /= grid_[d];
            step *= input.shape[d];
        }
        return index;
    }

    const ReduceCall &call_;
    Context &context_;
    Part parts_[2];
    std::int64_t sides_[kMaxDims];
    std::int64_t grid_[kMaxDims];
    std::int64_t boxes_ = 1;
    std::int64_t boxes_along_ = 1;
    std::int64_t slot_used_ = 0;
};

}  // namespace

Status reduce_in_chunks(const ReduceCall &call, int device) noexcept {
    Context *context = nullptr;
    CUKERN_TRY(cukern::context(&context));
    for (std::int64_t share = 1;; share *= 2) {
        const Status status = Boxes(call, *context).run(device, share);
        const bool may_be_smaller = share < kMostShare && staging_options().slot_bytes / share > kLeastSlot;
        if (status != CUKERN_OUT_OF_MEMORY || !may_be_smaller) return status;
    }
}

}  // namespace cukern
