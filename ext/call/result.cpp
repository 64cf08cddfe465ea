#include "base/python.h"

#include "call/result.h"

#include "array/array.h"
#include "base/errors.h"
#include "base/numpy_memory.h"
#include "call/arguments.h"
#include "streams/streams.h"
#include "streams/with_blocks.h"
#include "types/element_types.h"
#include "view/shapes.h"

#include <cstdlib>

#include "cukern/graph.h"
#include "cukern/overlap.h"

namespace cukern::py {
namespace {

std::int64_t stride_along(const Operand &operand, int ndim, int axis) noexcept {
    if (!operand.has_memory()) return 0;
    const ByteLayout layout = operand.layout();
    const int own = axis - (ndim - layout.ndim);
    return own < 0 || layout.shape[own] == 1 ? 0 : layout.stride(own);
}

// Whether axis x is slower than y in memory, over all operands: NumPy's rule for order='K', by which C order
// wins where operands disagree. `stride_of(operand, axis)` is 0 where the axis has one element.
enum class Comparison { slower, faster, undecided };
template <typename StrideOf>
Comparison compare_axes(int num_operands, const StrideOf &stride_of, int x, int y) noexcept {
    Comparison result = Comparison::undecided;
    for (int i = 0; i < num_operands; ++i) {
        const std::int64_t sx = std::llabs(stride_of(i, x));
        const std::int64_t sy = std::llabs(stride_of(i, y));
        if (sx == 0 || sy == 0) continue;
        if (sx <= sy)
            result = Comparison::faster;
        else if (result == Comparison::undecided)
            result = Comparison::slower;
    }
    return result;
}

// Strides in bytes of a fresh result that keeps the operands' memory order; false, without any, where that is C
// order.
template <typename StrideOf>
bool keep_order(int num_operands, const StrideOf &stride_of, const Shape &shape, int item_size,
                npy_intp *strides) noexcept {
    if (shape.ndim < 2) return false;
    bool is_c_order = true;
    int axes[kMaxDims];  // from the fastest to the slowest
    for (int i = 0; i < shape.ndim; ++i) {
        const int axis = shape.ndim - 1 - i;
        int at = i;
        for (int j = i - 1; j >= 0; --j) {
            const Comparison c = compare_axes(num_operands, stride_of, axes[j], axis);
            if (c == Comparison::faster) break;
            if (c == Comparison::slower) at = j;
        }
        for (int j = i; j > at; --j) axes[j] = axes[j - 1];
        axes[at] = axis;
        is_c_order = is_c_order && at == i;
    }
    if (is_c_order) return false;
    npy_intp stride = item_size;
    for (int i = 0; i < shape.ndim; ++i) {
        strides[axes[i]] = stride;
        stride *= shape.lengths[axes[i]] > 0 ? shape.lengths[axes[i]] : 1;
    }
    return true;
}

}  // namespace

namespace {

bool refuse_shapes(const char *function, const Operand &a, const Shape &shape, const Operand &b) noexcept {
    const PyRef x = shape_text(shape.ndim, shape.lengths);
    const PyRef y = shape_text(b.view().ndim, b.view().shape);
    if (x && y)
        PyErr_Format(PyExc_ValueError, "%s: shapes do not broadcast: %s is %U, %s is %U", function, a.name(),
                     x.get(), b.name(), y.get());
    return false;
}

}  // namespace

bool broadcast_onto(const char *function, const Operand &a, const Operand &b, Shape *shape) noexcept {
    const TensorView &y = b.view();
    const int lead = y.ndim - shape->ndim;  // dimensions that only b has
    for (int i = lead > 0 ? lead : 0; i < y.ndim; ++i) {
        const std::int64_t nx = shape->lengths[i - lead];
        if (nx != y.shape[i] && nx != 1 && y.shape[i] != 1) return refuse_shapes(function, a, *shape, b);
    }
    if (lead > 0) {
        for (int i = shape->ndim - 1; i >= 0; --i) shape->lengths[i + lead] = shape->lengths[i];
        for (int i = 0; i < lead; ++i) shape->lengths[i] = y.shape[i];
        shape->ndim = y.ndim;
    }
    for (int i = 0; i < y.ndim; ++i) {
        std::int64_t &length = shape->lengths[i + shape->ndim - y.ndim];
        if (length == 1) length = y.shape[i];
    }
    return true;
}

bool consumer_of(const Request &request, ReadContext &reading) noexcept {
    int device = 0;
    bool is_active = false;
    const bool is_found =
        request.stream == nullptr
            ? active_stream(request.state, &reading.consumer, &is_active)
            : parse_device(request.state, request.function, nullptr, &device) &&
                  parse_stream(request.state, request.function, request.stream, device, &reading.consumer);
    leave_graph(&reading.consumer);
    return is_found;
}

bool Result::prepare(const Request &request, const Shape &shape, ElementType type, Operand *const *operands,
                     int num_operands, Overlap overlap, ReadContext &reading, const TensorView *order) noexcept {
    const std::uint64_t collections_before = collections();
    std::int64_t bytes = 0;
    if (!checked_size(request.function, "the result", shape.ndim, shape.lengths, size_of(type), &bytes))
        return false;
    if (request.out != nullptr) {
        object_ = PyRef::borrow(request.out);
        if (!operand_.read_out({request.state, request.function, "out"}, request.out, reading) ||
            !check_out(request.function, shape, type, operands, num_operands, overlap) ||
            !choose_execution(request, operands, num_operands))
            return false;
    } else if (!choose_execution(request, operands, num_operands) ||
               !make(request, shape, type, operands, num_operands, overlap, reading, order)) {
        return false;
    }
    const bool ran_code = reading.ran_code || may_run_code(request.stream) || collections() != collections_before;
    return !ran_code || check_unchanged(request, operands, num_operands);
}

bool Result::check_unchanged(const Request &request, Operand *const *operands, int num_operands) const noexcept {
    for (int i = 0; i < num_operands; ++i)
        if (!operands[i]->check_unchanged(request.function)) return false;
    return request.out == nullptr || operand_.check_unchanged(request.function);
}

bool Result::is_brief(Operand *const *operands, int num_operands) const noexcept {
    if (count_of(operand_.view()) > kBriefCount) return false;
    for (int i = 0; i < num_operands; ++i)
        if (count_of(operands[i]->view()) > kBriefCount) return false;
    return true;
}

namespace {

// "a is in host memory, b on device 0".
bool refuse_mix(const char *function, const Operand &host, const Operand &device) noexcept {
    PyErr_Format(PyExc_TypeError,
                 "%s: %s is in host memory and %s in memory of device %d; copy it there first, as by "
                 "cukern.asarray(%s)",
                 function, host.name(), device.name(), device.access().location.device, host.name());
    return false;
}

}  // namespace

namespace {

// RuntimeError for an array on the host where calls are captured: a graph holds no work of the host.
bool refuse_captured(const Request &request, const Operand &host) noexcept {
    HeldStream stream;
    bool is_active = false;
    if (!any_graph_captured()) return true;
    if (!active_stream(request.state, &stream, &is_active)) return false;
    if (!is_active || Graph::captured_on(stream) == nullptr) return true;
    PyErr_Format(
        PyExc_RuntimeError,
        "%s: %s is in host memory, whose work a graph cannot hold; copy it to the device before the capture, "
        "as by cukern.asarray(%s)",
        request.function, host.name(), host.name());
    return false;
}

}  // namespace

bool Result::choose_execution(const Request &request, Operand *const *operands, int num_operands) noexcept {
    const Operand *device = nullptr;   // one that only its device reaches
    const Operand *foreign = nullptr;  // one that both sides reach, but whose library may work on it
    const Operand *shared = nullptr;   // an Array that both sides reach
    const Operand *host = nullptr;
    const TrackedView *accesses[kMaxInputs + 1] = {};
    for (int i = 0; i <= num_operands; ++i) {
        const bool is_out = i == num_operands;
        if (is_out && request.out == nullptr) break;
        const Operand &operand = is_out ? operand_ : *operands[i];
        const Location &location = operand.access().location;
        accesses[i] = &operand.access();
        if (operand.on_host()) {
            if (host == nullptr) host = &operand;
        } else if (operand.family() != Family::number && location.kind == MemoryKind::device) {
            if (device != nullptr && device->access().location.device != location.device) {
                PyErr_Format(PyExc_ValueError,
                             "%s: %s is on device %d and %s on device %d; copy one of them, as by "
                             "cukern.asarray(%s, device=%d)",
                             request.function, device->name(), device->access().location.device, operand.name(),
                             location.device, operand.name(), device->access().location.device);
                return false;
            }
            if (device == nullptr) device = &operand;
        } else if (operand.family() != Family::number) {
            const Operand *&first = operand.family() == Family::array ? shared : foreign;
            if (first == nullptr) first = &operand;
        }
    }
    if (device == nullptr) device = foreign;
    if (device != nullptr && host != nullptr) return refuse_mix(request.function, *host, *device);
    const Operand *place = device != nullptr ? device : host == nullptr ? shared : nullptr;
    execution_.on_device = place != nullptr;
    execution_.is_shared = shared != nullptr;
    bool is_active = false;
    if (place == nullptr)
        return (host == nullptr || refuse_captured(request, *host)) &&
               active_device(request.state, &execution_.host_device, &is_active);
    if (!choose_stream(request.state, request.function, request.stream, place->access().location.device,
                       {accesses[0], accesses[1], accesses[2], accesses[3]}, &held_stream_))
        return false;
    execution_.stream = held_stream_;
    return true;
}

namespace {

// CuPy makes arrays on the current device.
PyRef make_by_cupy(const Request &request, const Operand *lead, PyObject *lengths, PyObject *dtype) noexcept {
    const DeviceScope scope(lead->access().location.device);
    if (scope.status() != CUKERN_OK) {
        raise_status(request.state, request.function, scope.status());
        return {};
    }
    return PyRef::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject *>(Py_TYPE(lead->object())),
                                                     lengths, dtype, nullptr));
}

// `strides` null: C order.
PyRef make_ndarray(const Request &request, ElementType type, const Shape &shape,
                   const npy_intp *strides) noexcept {
    PyRef dtype = numpy_dtype(request.state, type);
    if (!dtype) {
        raise_no_bfloat16(request.function);
        return {};
    }
    return new_ndarray(std::move(dtype), shape.ndim, shape.lengths, strides, 0);
}

}  // namespace

bool Result::make(const Request &request, const Shape &shape, ElementType type, Operand *const *operands,
                  int num_operands, Overlap overlap, ReadContext &reading, const TensorView *order) noexcept {
    reading.earlier = reading.consumer;
    reading.consumer = execution_.stream;
    const Operand *lead = nullptr;  // the first array decides
    MemoryKind kind = MemoryKind::pinned;
    for (int i = 0; i < num_operands; ++i) {
        if (operands[i]->family() == Family::number) continue;
        if (lead == nullptr) lead = operands[i];
        const Location &location = operands[i]->access().location;
        if (!location.reachable) continue;
        if (location.kind == MemoryKind::device) kind = MemoryKind::device;
        if (location.kind == MemoryKind::managed && kind == MemoryKind::pinned) kind = MemoryKind::managed;
    }
    npy_intp strides[kMaxDims];
    bool has_order = false;
    if (order != nullptr) {
        const auto stride_of = [&](int, int axis) { return order->shape[axis] == 1 ? 0 : order->strides[axis]; };
        has_order = keep_order(1, stride_of, shape, size_of(type), strides);
    } else if (overlap == Overlap::same_allowed) {
        const auto stride_of = [&](int i, int axis) { return stride_along(*operands[i], shape.ndim, axis); };
        has_order = keep_order(num_operands, stride_of, shape, size_of(type), strides);
    }
    const Family family = lead == nullptr ? Family::numpy : lead->family();
    if (family == Family::exchange) {
        const ArgumentInfo argument{request.state, request.function, "the result"};
        ForeignArray fresh;
        object_ = make_by_exchange(argument, lead->api(), lead->foreign_device(), type, shape, &fresh);
        return object_ && operand_.take_fresh(argument, object_.get(), fresh, *lead);
    } else if (family == Family::cupy) {
        const PyRef lengths = PyRef::steal(PyTuple_New(shape.ndim));
        for (int i = 0; lengths && i < shape.ndim; ++i)
            if (PyTuple_SetItem(lengths.get(), i, PyLong_FromLongLong(shape.lengths[i])) != 0) return false;
        const PyRef dtype = numpy_dtype(request.state, type);
        if (!dtype) raise_no_bfloat16(request.function);
        if (!lengths || !dtype) return false;
        object_ = make_by_cupy(request, lead, lengths.get(), dtype.get());
        reading.ran_code = true;
        return object_ &&
               operand_.read_out({request.state, request.function, "the result"}, object_.get(), reading);
    } else if (execution_.on_device || family == Family::array) {
        if (family == Family::dlpack) like_ = lead->object();
        HeldStream stream;
        stream = execution_.stream;
        if (!execution_.on_device &&
            !stream_on(request.state, request.function, nullptr, lead->access().location.device, &stream))
            return false;
        std::int64_t own[kMaxDims];
        for (int i = 0; has_order && i < shape.ndim; ++i) own[i] = strides[i] / size_of(type);
        object_ = new_array(request.state, request.function, family == Family::array ? kind : MemoryKind::device,
                            type, shape.ndim, shape.lengths, has_order ? own : nullptr, stream);
    } else {
        if (family == Family::dlpack) like_ = lead->object();
        object_ = make_ndarray(request, type, shape, has_order ? strides : nullptr);
    }
    return object_ && operand_.take_result({request.state, request.function, "the result"}, object_.get(), type);
}

bool Result::begin(const Request &request, Operand *const *operands, int num_operands) noexcept {
    if (!execution_.on_device) {  // the host is about to look
        for (int i = 0; i < num_operands; ++i)
            if (Storage *storage = operands[i]->access().storage; storage != nullptr)
                if (!wait_for_host(request.state, request.function, storage, false)) return false;
        Storage *storage = operand_.access().storage;
        return storage == nullptr || wait_for_host(request.state, request.function, storage, true);
    }
    for (int i = 0; i < num_operands; ++i)
        if (!wait_before_use(request.state, request.function, operands[i]->access(), execution_.stream, false))
            return false;
    return wait_before_use(request.state, request.function, operand_.access(), execution_.stream, true);
}

bool Result::end(const Request &request, Operand *const *operands, int num_operands) noexcept {
    if (!execution_.on_device) return true;
    for (int i = 0; i < num_operands; ++i)
        if (!record_use(request.state, request.function, operands[i]->access(), execution_.stream, false))
            return false;
    return record_use(request.state, request.function, operand_.access(), execution_.stream, true) &&
           wait_if_exported(request.state, request.function, operand_.access());
}

void Result::wait_after_failure(Backend backend) const noexcept {
    if (execution_.on_device && backend == Backend::cuda) synchronize_after_failure(execution_.stream);
}

bool Result::check_out(const char *function, const Shape &shape, ElementType type, Operand *const *operands,
                       int num_operands, Overlap overlap) noexcept {
    const TensorView &view = operand_.view();
    if (!can_cast_same_kind(type, view.type)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: the result is of element type %s, which out's %s cannot take (casting 'same_kind')%s",
                     function, name_of(type), name_of(view.type), operand_.advice());
        return false;
    }
    bool same = view.ndim == shape.ndim;
    for (int i = 0; same && i < shape.ndim; ++i) same = view.shape[i] == shape.lengths[i];
    if (!same) {
        const PyRef got = shape_text(view.ndim, view.shape);
        const PyRef expected = shape_text(shape.ndim, shape.lengths);
        if (got && expected)
            PyErr_Format(PyExc_ValueError, "%s: out has shape %U; the result has %U", function, got.get(),
                         expected.get());
        return false;
    }
    const ByteLayout own = operand_.layout();
    if (overlaps_itself(own)) {
        PyErr_Format(PyExc_ValueError,
                     "%s: elements of out overlap each other; pass an array without repeated "
                     "elements (strides of 0)",
                     function);
        return false;
    }
    for (int i = 0; i < num_operands; ++i) {
        if (!operands[i]->has_memory()) continue;
        if (are_apart(operand_.access().storage, operands[i]->access().storage)) continue;
        const ByteLayout other = operands[i]->layout();
        if (overlap == Overlap::same_allowed && identical(own, other)) continue;
        if (!overlaps(own, other)) continue;
        const char *allowed = overlap == Overlap::same_allowed
                                  ? "it may be exactly that array, or share no memory with it"
                                  : "it must share no memory with it";
        PyErr_Format(PyExc_ValueError, "%s: out overlaps %s; %s", function, operands[i]->name(), allowed);
        return false;
    }
    return true;
}

PyObject *Result::finish(const ModuleState &state) noexcept {
    if (!operand_.finish_out()) return nullptr;
    return like_ == nullptr ? object_.release() : convert_like(state, like_, object_.get()).release();
}

bool choose_stream(const ModuleState &state, const char *function, PyObject *given, int device,
                   std::initializer_list<const TrackedView *> accesses, HeldStream *stream) noexcept {
    int current = device;
    if (current < 0 && !parse_device(state, function, nullptr, &current)) return false;
    if (given != nullptr && Py_IsNone(given) == 0)
        return parse_stream(state, function, given, current, stream) &&
               (device < 0 || check_stream_device(function, *stream, device));
    bool is_active = false;
    if (!active_stream(state, stream, &is_active)) return false;
    if (is_active && (device < 0 || (*stream)->device == device)) return true;
    for (const TrackedView *access : accesses) {
        if (access == nullptr || !access->has_producer || access->producer.device != current) continue;
        *stream = access->producer;
        return true;
    }
    stream->set_default(current);
    return true;
}

}  // namespace cukern::py
