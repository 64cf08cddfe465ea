// Arrays joined to one: concat and stack.
#include "base/python.h"

#include "create/make.h"

#include <memory>
#include <new>
#include <utility>

#include "base/methods.h"
#include "base/signature.h"
#include "streams/streams.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

struct Parts {
    Operand *operands;
    Py_ssize_t count;
};

// The element type, memory and device of arrays that are joined.
bool common_place(const char *function, const Parts &parts, ElementType *type, MemoryKind *kind,
                  int *device) noexcept {
    bool seen[kNumElementTypes] = {};
    ElementType types[kNumElementTypes];
    int num_types = 0;
    *kind = MemoryKind::pinned;
    *device = -1;
    for (Py_ssize_t i = 0; i < parts.count; ++i) {
        const Operand &part = parts.operands[i];
        if (!std::exchange(seen[static_cast<int>(part.type())], true)) types[num_types++] = part.type();
        const Location &location = part.access().location;
        if (location.kind == MemoryKind::managed && *kind == MemoryKind::pinned) *kind = MemoryKind::managed;
        if (location.kind != MemoryKind::device) continue;
        if (*kind == MemoryKind::device && *device != location.device) {
            PyErr_Format(PyExc_ValueError,
                         "%s: an array is on device %d and another on device %d; copy one of them", function,
                         *device, location.device);
            return false;
        }
        *kind = MemoryKind::device;
        *device = location.device;
    }
    *type = promote_all(types, num_types);
    if (*device < 0) *device = parts.operands[0].access().location.device;
    return true;
}

// The shape of parts put one after the other along an axis; they agree in the other lengths.
bool joined_shape(const char *function, const Parts &parts, int axis, Shape *shape) noexcept {
    const TensorView &first = parts.operands[0].view();
    *shape = Shape(first.ndim, first.shape);
    for (Py_ssize_t i = 1; i < parts.count; ++i) {
        const TensorView &view = parts.operands[i].view();
        bool same = view.ndim == first.ndim;
        for (int d = 0; same && d < first.ndim; ++d) same = d == axis || view.shape[d] == first.shape[d];
        if (!same) {
            const PyRef a = shape_text(first.ndim, first.shape);
            const PyRef b = shape_text(view.ndim, view.shape);
            if (a && b)
                PyErr_Format(PyExc_ValueError, "%s: shapes differ: the first array is %U, number %zd is %U",
                             function, a.get(), i, b.get());
            return false;
        }
        if (__builtin_add_overflow(shape->lengths[axis], view.shape[axis], &shape->lengths[axis])) {
            raise_too_large(function, "the result", 0, nullptr);
            return false;
        }
    }
    return true;
}

PyRef join(const ModuleState &state, const char *function, const Parts &parts, int axis,
           PyObject *given_stream) noexcept {
    ElementType type;
    MemoryKind kind;
    int device = 0;
    Shape shape;
    HeldStream stream;
    if (!common_place(function, parts, &type, &kind, &device) || !joined_shape(function, parts, axis, &shape) ||
        !stream_on(state, function, given_stream, device, &stream))
        return {};
    PyRef result = new_array(state, function, kind, type, shape.ndim, shape.lengths, nullptr, stream);
    if (!result) return {};
    TrackedView whole;
    tracked_view_of(array_of(result.get()), &whole);
    std::int64_t begin = 0;
    for (Py_ssize_t i = 0; i < parts.count; ++i) {
        const TrackedView &part = parts.operands[i].access();
        TrackedView place = whole;
        place.view.shape[axis] = part.view.shape[axis];
        place.view.data = static_cast<char *>(whole.view.data) + begin * whole.view.strides[axis] * size_of(type);
        begin += part.view.shape[axis];
        if (count_of(place.view) > 0 && !copy_into(state, function, part, place, stream)) return {};
    }
    return result;
}

#define CUKERN_JOIN "(arrays, axis=0, *, stream=None)"

PyObject *join_arrays(PyObject *module, const char *function, bool stacks, PyObject *const *values,
                      Py_ssize_t given, PyObject *names) noexcept {
    static constexpr Signature kSignature(CUKERN_JOIN);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse(function, nullptr, values, given, names, arguments)) return nullptr;
    PyObject *const axis = arguments[1];
    const ModuleState &state = state_of(module);
    const PyRef tuple = choose_backend(module, function) ? PyRef::steal(PySequence_Tuple(arguments[0])) : PyRef();
    if (!tuple) return nullptr;
    const Py_ssize_t count = PyTuple_Size(tuple.get());
    if (count == 0) {
        PyErr_Format(PyExc_ValueError, "%s: expected at least one array", function);
        return nullptr;
    }
    const PyRef changed = PyRef::steal(PyTuple_New(count));  // what the operands look at
    for (Py_ssize_t i = 0; changed && i < count; ++i) {
        PyObject *part = PyTuple_GetItem(tuple.get(), i);
        if (!is_array(state, part)) {
            PyErr_Format(PyExc_TypeError, "%s: array number %zd is of type %R; expected cukern.Array", function, i,
                         reinterpret_cast<PyObject *>(Py_TYPE(part)));
            return nullptr;
        }
        PyRef own = PyRef::borrow(part);
        if (stacks) {
            const PyRef where = axis != nullptr ? PyRef::borrow(axis) : PyRef::steal(PyLong_FromLong(0));
            own = where ? expanded(function, array_of(part), where.get()) : PyRef();
        } else if (axis != nullptr && Py_IsNone(axis) != 0) {
            own = raveled(array_of(part));
        }
        if (!own || PyTuple_SetItem(changed.get(), i, own.release()) != 0) return nullptr;
    }
    if (!changed) return nullptr;
    int at[kMaxDims] = {};
    int number = 0;
    const int ndim = array_of(PyTuple_GetItem(changed.get(), 0))->ndim;
    const PyRef zero = PyRef::steal(PyLong_FromLong(0));
    PyObject *where = axis == nullptr || Py_IsNone(axis) != 0 ? zero.get() : axis;
    if (PyTuple_Check(where)) {
        PyErr_Format(PyExc_TypeError, "%s: axis is %R; expected an int", function, where);
        return nullptr;
    }
    if (!zero || !parse_axes(state, function, where, ndim, at, &number)) return nullptr;
    std::unique_ptr<Operand[]> operands(new (std::nothrow) Operand[static_cast<std::size_t>(count)]);
    if (!operands) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; ++i)
        if (!operands[i].read_memory({state, function, "an array"}, PyTuple_GetItem(changed.get(), i), false))
            return nullptr;
    return join(state, function, {operands.get(), count}, at[0], arguments[2]).release();
}

PyObject *concat_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return join_arrays(module, "concat", false, values, count, names);
}
PyObject *stack_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return join_arrays(module, "stack", true, values, count, names);
}

}  // namespace

PyMethodDef kJoinMethods[] = {
    {"concat", as_method(concat_method), METH_FASTCALL | METH_KEYWORDS,
     "concat" CUKERN_JOIN "\n--\n\nReturn Arrays put one after the other along an axis.\n\n"
     "Parameters\n----------\narrays : sequence of Array\n    They agree in all lengths but the axis's.\n"
     "axis : int or None\n    None joins the elements of all, in C order.\n"
     "stream : optional\n\nReturns\n-------\nArray\n    Of the promoted element type.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.concat([cukern.zeros(2), cukern.ones(1)])\nArray([0., 0., "
     "1.])\n"},
    {"stack", as_method(stack_method), METH_FASTCALL | METH_KEYWORDS,
     "stack" CUKERN_JOIN "\n--\n\nReturn Arrays put one after the other along a new axis.\n\n"
     "Parameters\n----------\narrays : sequence of Array\n    They have one shape.\naxis : int\n    Where the new "
     "axis is.\n"
     "stream : optional\n\nReturns\n-------\nArray\n    Of the promoted element type.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.stack([cukern.zeros(2), cukern.ones(2)])\n"
     "Array([[0., 0.],\n       [1., 1.]])\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
