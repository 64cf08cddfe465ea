// What changes or copies an Array's elements: fill, assignment, astype, copy.
#include "base/python.h"

#include "array/array.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "array/signatures.h"
#include "base/signature.h"
#include "call/operand.h"
#include "call/result.h"
#include "streams/streams.h"
#include "types/element_types.h"
#include "view/shapes.h"

#include "cukern/overlap.h"

namespace cukern::py {
namespace {

bool check_writable(const Array *array) noexcept {
    if (!array->read_only) return true;
    PyErr_SetString(PyExc_ValueError, "the array is read-only");
    return false;
}

bool fill_number(const ModuleState &state, Array *array, PyObject *number, PyObject *given) noexcept {
    Immediate value{};
    ElementType type = array->type;
    HeldStream stream;
    return element_from("fill", number, array->type, false, &type, &value) &&
           stream_on(state, "fill", given, array->device(), &stream) &&
           fill_with(state, "fill", array, value, type, stream);
}

bool assign(const ModuleState &state, Array *target, PyObject *value) noexcept {
    if (!check_writable(target)) return false;
    if (is_number(value) || PyArray_IsScalar(value, Generic)) return fill_number(state, target, value, nullptr);
    PyRef list;
    if (is_plain(value)) {
        PyRef dtype = target->type == ElementType::bfloat16 ? PyRef() : numpy_dtype(state, target->type);
        list = PyRef::steal(
            PyArray_FromAny(value, reinterpret_cast<PyArray_Descr *>(dtype.release()), 0, 0, 0, nullptr));
        if (!list) return false;
        value = list.get();
    }
    Operand source;
    if (!source.read_memory({state, "assignment", "the value"}, value, false)) return false;
    TrackedView from = source.access();
    drop_leading(from.view, target->ndim);
    const Shape shape(target->ndim, target->shape());
    if (!broadcast_view(shape, &from.view)) {
        const PyRef a = shape_text(from.view.ndim, from.view.shape);
        const PyRef b = shape_text(shape.ndim, shape.lengths);
        if (a && b)
            PyErr_Format(PyExc_ValueError, "assignment: shape %U does not broadcast to %U", a.get(), b.get());
        return false;
    }
    TrackedView to;
    tracked_view_of(target, &to);
    HeldStream stream;
    return choose_stream(state, "assignment", nullptr, target->device(), {&from}, &stream) &&
           copy_apart(state, "assignment", from, to, stream);
}

}  // namespace

bool parse_order(const char *function, PyObject *object, MemoryOrder *order) noexcept {
    if (object == nullptr || Py_IsNone(object) != 0) return true;
    constexpr const char *kLetters[] = {"C", "F", "A", "K"};
    for (int i = 0; PyUnicode_Check(object) && i < 4; ++i) {
        if (PyUnicode_CompareWithASCIIString(object, kLetters[i]) != 0) continue;
        *order = static_cast<MemoryOrder>(i);
        return true;
    }
    PyErr_Format(PyExc_ValueError, "%s: order is %R; expected 'C', 'F', 'A' or 'K'", function, object);
    return false;
}

void strides_in_order(const TensorView &view, MemoryOrder order, std::int64_t *strides) noexcept {
    int axes[kMaxDims] = {};  // from the slowest to the fastest
    if (order == MemoryOrder::any)
        order = is_f_contiguous(view.ndim, view.shape, view.strides) &&
                        !is_c_contiguous(view.ndim, view.shape, view.strides)
                    ? MemoryOrder::fortran
                    : MemoryOrder::c;
    for (int i = 0; i < view.ndim; ++i) axes[i] = order == MemoryOrder::fortran ? view.ndim - 1 - i : i;
    if (order == MemoryOrder::keep)  // equal strides, as of broadcast dimensions, stay in C order
        std::sort(axes, axes + view.ndim, [&](int a, int b) {
            return std::make_pair(-std::abs(view.strides[a]), a) < std::make_pair(-std::abs(view.strides[b]), b);
        });
    std::int64_t stride = 1;
    for (int i = view.ndim - 1; i >= 0; --i) {
        strides[axes[i]] = stride;
        stride *= std::max<std::int64_t>(view.shape[axes[i]], 1);
    }
}

PyRef converted(const ModuleState &state, const char *function, Array *array, ElementType type, MemoryOrder order,
                PyObject *given) noexcept {
    HeldStream stream;
    if (!stream_on(state, function, given, array->device(), &stream)) return {};
    TrackedView source;
    tracked_view_of(array, &source);
    std::int64_t strides[kMaxDims];
    strides_in_order(source.view, order, strides);
    return new_copy(state, function, source, array->kind(), type, strides, stream);
}

PyRef new_copy(const ModuleState &state, const char *function, const TrackedView &source, MemoryKind kind,
               ElementType type, const std::int64_t *strides, const StreamRef &stream) noexcept {
    PyRef result = new_array(state, function, kind, type, source.view.ndim, source.view.shape, strides, stream);
    if (!result) return {};
    TrackedView destination;
    tracked_view_of(array_of(result.get()), &destination);
    return copy_into(state, function, source, destination, stream) ? std::move(result) : PyRef();
}

PyRef new_copy(const ModuleState &state, const char *function, const Operand &source, MemoryKind kind,
               ElementType type, MemoryOrder order, const StreamRef &stream) noexcept {
    const TensorView &view = source.view();
    const int ndim = view.immediate ? 0 : view.ndim;
    std::int64_t strides[kMaxDims];
    if (!view.immediate) strides_in_order(view, order, strides);
    PyRef result = new_array(state, function, kind, type, ndim, view.shape, strides, stream);
    if (!result || !source.check_unchanged(function)) return {};  // the garbage collector may have run code
    TrackedView destination;
    tracked_view_of(array_of(result.get()), &destination);
    return copy_into(state, function, source.access(), destination, stream) ? std::move(result) : PyRef();
}

int array_assign_subscript(PyObject *self, PyObject *key, PyObject *value) {
    if (value == nullptr) {
        PyErr_SetString(PyExc_TypeError, "elements of an array cannot be deleted");
        return -1;
    }
    const PyRef target = indexed(array_of(self), key);
    return target && assign(state_of_type(self), array_of(target.get()), value) ? 0 : -1;
}

PyObject *array_fill(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ARRAY_FILL);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("fill", self, values, count, names, arguments) || !check_writable(array_of(self)) ||
        !fill_number(state_of_type(self), array_of(self), arguments[1], arguments[2]))
        return nullptr;
    Py_RETURN_NONE;
}

PyObject *array_astype(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ARRAY_ASTYPE);
    PyObject *arguments[Signature::kMost];
    bool copy = true;
    if (!kSignature.parse("astype", self, values, count, names, arguments) || !parse_flag(arguments[2], &copy))
        return nullptr;
    const ModuleState &state = state_of_type(self);
    ElementType type;
    if (!parse_dtype(state, "astype", arguments[1], &type)) return nullptr;
    if (type == array_of(self)->type && !copy) return PyRef::borrow(self).release();
    return converted(state, "astype", array_of(self), type, MemoryOrder::keep, arguments[3]).release();
}

PyObject *array_copy(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ARRAY_COPY);
    PyObject *arguments[Signature::kMost];
    MemoryOrder order = MemoryOrder::c;
    if (!kSignature.parse("copy", self, values, count, names, arguments) ||
        !parse_order("copy", arguments[1], &order))
        return nullptr;
    Array *array = array_of(self);
    return converted(state_of_type(self), "copy", array, array->type, order, arguments[2]).release();
}

PyObject *array_shallow_copy(PyObject *self, PyObject *) {
    Array *array = array_of(self);
    return converted(state_of_type(self), "copy", array, array->type, MemoryOrder::keep, nullptr).release();
}

PyObject *array_deepcopy(PyObject *self, PyObject *) { return array_shallow_copy(self, nullptr); }

bool copy_apart(const ModuleState &state, const char *function, const TrackedView &source,
                const TrackedView &destination, const StreamRef &stream) noexcept {
    if (!source.view.immediate && source.view.type == destination.view.type &&
        identical(layout_of(source.view), layout_of(destination.view)))
        return true;  // as in a[1:] += b, which assigns what it has already written
    if (source.view.immediate || !overlaps(layout_of(source.view), layout_of(destination.view)))
        return copy_into(state, function, source, destination, stream);
    const MemoryKind kind = source.location.reachable ? source.location.kind : MemoryKind::pinned;
    const PyRef between = new_copy(state, function, source, kind, source.view.type, nullptr, stream);
    if (!between) return false;
    TrackedView middle;
    tracked_view_of(array_of(between.get()), &middle);
    return copy_into(state, function, middle, destination, stream);
}

}  // namespace cukern::py
