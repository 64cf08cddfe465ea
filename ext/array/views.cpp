// Views of an Array with another shape: reshaping, transposing, broadcasting. None of them waits.
#include "base/python.h"

#include "array/array.h"

#include "array/signatures.h"
#include "base/methods.h"
#include "base/signature.h"
#include "interop/frameworks.h"
#include "streams/streams.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

// A length of -1 becomes what the others leave over.
bool complete_shape(std::int64_t size, int item_size, Shape *shape) noexcept {
    int open = -1;
    std::int64_t known = 1;
    bool fits = true;
    for (int i = 0; i < shape->ndim; ++i) {
        if (shape->lengths[i] == -1 && open < 0) {
            open = i;
        } else if (shape->lengths[i] < 0 || __builtin_mul_overflow(known, shape->lengths[i], &known)) {
            fits = false;
        }
    }
    if (fits && open >= 0 && known > 0 && size % known == 0) shape->lengths[open] = size / known;
    const bool matches = fits && (open >= 0 ? known > 0 && size % known == 0 : known == size);
    std::int64_t bytes = 0;
    if (matches && checked_bytes(shape->lengths, shape->ndim, item_size, &bytes)) return true;
    const PyRef text = shape_text(shape->ndim, shape->lengths);
    if (text)
        PyErr_Format(PyExc_ValueError, "reshape: %lld elements do not fit the shape %U",
                     static_cast<long long>(size), text.get());
    return false;
}

// Strides of a new shape over the same memory, if there are any: runs of dimensions of both shapes with the same
// number of elements are matched, and each old run must lie in memory as one dimension would.
bool strides_for(const Array *array, const Shape &shape, std::int64_t *strides) noexcept {
    std::int64_t old_shape[kMaxDims];
    std::int64_t old_strides[kMaxDims];
    int old_ndim = 0;
    for (int i = 0; i < array->ndim; ++i) {
        if (array->shape()[i] == 1) continue;
        old_shape[old_ndim] = array->shape()[i];
        old_strides[old_ndim++] = array->strides()[i];
    }
    int old_begin = 0;
    int begin = 0;
    while (old_begin < old_ndim && begin < shape.ndim) {
        int old_end = old_begin + 1;
        int end = begin + 1;
        std::int64_t old_count = old_shape[old_begin];
        std::int64_t count = shape.lengths[begin];
        while (old_count != count) {
            if (count < old_count)
                count *= shape.lengths[end++];
            else
                old_count *= old_shape[old_end++];  // NOLINT(clang-analyzer-core.uninitialized.Assign)
        }
        for (int i = old_begin; i + 1 < old_end; ++i)
            if (old_strides[i] != old_strides[i + 1] * old_shape[i + 1]) return false;
        strides[end - 1] = old_strides[old_end - 1];
        for (int i = end - 1; i > begin; --i) strides[i - 1] = strides[i] * shape.lengths[i];
        old_begin = old_end;
        begin = end;
    }
    for (; begin < shape.ndim; ++begin) strides[begin] = 1;  // lengths of 1
    return true;
}

// `copy`: -1 where needed, 0 never, 1 always.
PyRef reshaped(Array *array, Shape shape, int copy) noexcept {
    const std::int64_t size = array->size();
    if (!complete_shape(size, size_of(array->type), &shape)) return {};
    const ModuleState &state = state_of_type(object_of(array));
    std::int64_t strides[kMaxDims];
    const bool views = size == 0 || strides_for(array, shape, strides);
    if (views && copy != 1) {
        TensorView packed;
        packed.ndim = shape.ndim;
        for (int i = 0; i < shape.ndim; ++i) packed.shape[i] = shape.lengths[i];
        set_contiguous(packed);
        return array_view(array, array->data, shape.ndim, shape.lengths, size == 0 ? packed.strides : strides);
    }
    if (copy == 0) {
        PyErr_SetString(PyExc_ValueError, "reshape: the strides do not allow a view, and copy=False was given");
        return {};
    }
    HeldStream stream;
    if (!stream_on(state, "reshape", nullptr, array->device(), &stream)) return {};
    TrackedView source;
    tracked_view_of(array, &source);
    const PyRef fresh = new_copy(state, "reshape", source, array->kind(), array->type, nullptr, stream);
    return fresh ? reshaped(array_of(fresh.get()), shape, 0) : PyRef();
}

PyRef transposed(Array *array, const int *axes) noexcept {
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxDims];
    for (int i = 0; i < array->ndim; ++i) {
        shape[i] = array->shape()[axes[i]];
        strides[i] = array->strides()[axes[i]];
    }
    return array_view(array, array->data, array->ndim, shape, strides);
}

PyRef squeezed(Array *array, PyObject *axis) noexcept {
    bool dropped[kMaxDims] = {};
    if (axis == nullptr || Py_IsNone(axis) != 0) {
        for (int i = 0; i < array->ndim; ++i) dropped[i] = array->shape()[i] == 1;
    } else {
        int axes[kMaxDims];
        int count = 0;
        if (!parse_axes(state_of_type(object_of(array)), "squeeze", axis, array->ndim, axes, &count)) return {};
        for (int i = 0; i < count; ++i) {
            if (array->shape()[axes[i]] != 1) {
                PyErr_Format(PyExc_ValueError, "squeeze: dimension %d has length %lld, not 1", axes[i],
                             static_cast<long long>(array->shape()[axes[i]]));
                return {};
            }
            dropped[axes[i]] = true;
        }
    }
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxDims];
    int ndim = 0;
    for (int i = 0; i < array->ndim; ++i) {
        if (dropped[i]) continue;
        shape[ndim] = array->shape()[i];
        strides[ndim++] = array->strides()[i];
    }
    return array_view(array, array->data, ndim, shape, strides);
}

PyRef broadcast_array(Array *array, const Shape &shape) noexcept {
    TensorView view;
    view_of(array, &view);
    if (!broadcast_view(shape, &view)) {
        const PyRef from = shape_text(array->ndim, array->shape());
        const PyRef to = shape_text(shape.ndim, shape.lengths);
        if (from && to)
            PyErr_Format(PyExc_ValueError, "broadcast_to: shape %U does not broadcast to %U", from.get(),
                         to.get());
        return {};
    }
    std::int64_t bytes = 0;
    if (!checked_size("broadcast_to", "a view", shape.ndim, shape.lengths, size_of(array->type), &bytes))
        return {};
    PyRef result = array_view(array, array->data, shape.ndim, shape.lengths, view.strides);
    if (result) array_of(result.get())->read_only = true;  // one element may stand for many
    return result;
}

// The first argument of a function of the module as an Array.
Array *array_argument(PyObject *module, const char *function, PyObject *object) noexcept {
    if (is_array(state_of(module), object)) return array_of(object);
    PyErr_Format(PyExc_TypeError, "%s: expected a cukern.Array, got %R; asarray() makes one", function,
                 reinterpret_cast<PyObject *>(Py_TYPE(object)));
    return nullptr;
}

// -1: where needed.
bool wants_copy(PyObject *copy, int *wanted) noexcept {
    bool always = false;
    bool never = false;
    if (!parse_copy("reshape", copy, &always, &never)) return false;
    *wanted = always ? 1 : never ? 0 : -1;
    return true;
}

#define CUKERN_RESHAPE "(a, shape, *, copy=None)"
#define CUKERN_TRANSPOSE "(a, axes=None)"
#define CUKERN_SQUEEZE "(a, axis=None)"
#define CUKERN_EXPAND_DIMS "(a, axis)"
#define CUKERN_BROADCAST_TO "(a, shape)"

PyObject *reshape_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_RESHAPE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("reshape", nullptr, values, count, names, arguments)) return nullptr;
    Array *array = array_argument(module, "reshape", arguments[0]);
    Shape shape;
    if (array == nullptr || !parse_shape("reshape", arguments[1], &shape)) return nullptr;
    int wanted = -1;
    if (!wants_copy(arguments[2], &wanted)) return nullptr;
    return reshaped(array, shape, wanted).release();
}

PyObject *ravel_method(PyObject *module, PyObject *object) {
    Array *array = array_argument(module, "ravel", object);
    return array != nullptr ? raveled(array).release() : nullptr;
}

PyObject *transpose_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_TRANSPOSE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("transpose", nullptr, values, count, names, arguments)) return nullptr;
    if (array_argument(module, "transpose", arguments[0]) == nullptr) return nullptr;
    const PyRef packed = PyRef::steal(is_given(arguments[1]) ? PyTuple_Pack(1, arguments[1]) : PyTuple_New(0));
    return packed ? array_transpose(arguments[0], packed.get()) : nullptr;
}

PyObject *matrix_transpose_method(PyObject *module, PyObject *object) {
    constexpr const char *kName = "matrix_transpose";
    return array_argument(module, kName, object) != nullptr ? array_matrix_transpose(kName, object) : nullptr;
}

PyObject *squeeze_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_SQUEEZE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("squeeze", nullptr, values, count, names, arguments)) return nullptr;
    Array *array = array_argument(module, "squeeze", arguments[0]);
    return array != nullptr ? squeezed(array, arguments[1]).release() : nullptr;
}

PyObject *expand_dims_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_EXPAND_DIMS);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("expand_dims", nullptr, values, count, names, arguments)) return nullptr;
    Array *array = array_argument(module, "expand_dims", arguments[0]);
    return array != nullptr ? expanded("expand_dims", array, arguments[1]).release() : nullptr;
}

PyObject *broadcast_to_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_BROADCAST_TO);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("broadcast_to", nullptr, values, count, names, arguments)) return nullptr;
    Array *array = array_argument(module, "broadcast_to", arguments[0]);
    Shape shape;
    if (array == nullptr || !parse_shape("broadcast_to", arguments[1], &shape)) return nullptr;
    return broadcast_array(array, shape).release();
}

}  // namespace

PyRef raveled(Array *array) noexcept {
    const std::int64_t size = array->size();
    return reshaped(array, Shape(1, &size), -1);
}

PyRef expanded(const char *function, Array *array, PyObject *axis) noexcept {
    // The axes are those of the result.
    int axes[kMaxDims];
    int count = PyTuple_Check(axis) ? static_cast<int>(PyTuple_Size(axis)) : 1;
    const int ndim = array->ndim + count;
    if (ndim > kMaxDims) {
        PyErr_Format(PyExc_ValueError, "%s: the result has %d dimensions; at most %d are supported", function,
                     ndim, kMaxDims);
        return {};
    }
    if (!parse_axes(state_of_type(object_of(array)), function, axis, ndim, axes, &count)) return {};
    bool fresh[kMaxDims] = {};
    for (int i = 0; i < count; ++i) fresh[axes[i]] = true;
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxDims];
    for (int i = 0, own = 0; i < ndim; ++i) {
        shape[i] = fresh[i] ? 1 : array->shape()[own];
        strides[i] = fresh[i] ? 0 : array->strides()[own];
        if (!fresh[i]) ++own;
    }
    return array_view(array, array->data, ndim, shape, strides);
}

PyObject *array_reshape(PyObject *self, PyObject *args, PyObject *keywords) {
    PyObject *copy = Py_None;
    if (!parse_only_keyword("reshape", keywords, "copy", &copy)) return nullptr;
    // reshape(2, 3) and reshape((2, 3)) are the same.
    PyObject *lengths = args;
    if (PyTuple_Size(args) == 1) lengths = PyTuple_GetItem(args, 0);
    Shape shape;
    if (!parse_shape("reshape", lengths, &shape)) return nullptr;
    int wanted = -1;
    if (!wants_copy(copy, &wanted)) return nullptr;
    return reshaped(array_of(self), shape, wanted).release();
}

PyObject *array_ravel(PyObject *self, PyObject *) { return raveled(array_of(self)).release(); }

PyObject *array_matrix_transpose(const char *function, PyObject *self) noexcept {
    const int ndim = array_of(self)->ndim;
    if (ndim < 2)
        return PyErr_Format(PyExc_ValueError, "%s: the array has %d dimensions; a matrix has two", function, ndim);
    int axes[kMaxDims];
    for (int d = 0; d < ndim; ++d) axes[d] = d < ndim - 2 ? d : 2 * ndim - 3 - d;
    return transposed(array_of(self), axes).release();
}

PyObject *array_transpose(PyObject *self, PyObject *args) {
    Array *array = array_of(self);
    int axes[kMaxDims];
    PyObject *given = args;
    if (given != nullptr && PyTuple_Size(given) == 1 &&
        (Py_IsNone(PyTuple_GetItem(given, 0)) != 0 || PySequence_Check(PyTuple_GetItem(given, 0)) != 0))
        given = PyTuple_GetItem(given, 0);
    if (given == nullptr || Py_IsNone(given) != 0 ||
        (PyTuple_Check(given) && PyTuple_Size(given) == 0 && given == args)) {
        for (int i = 0; i < array->ndim; ++i) axes[i] = array->ndim - 1 - i;
        return transposed(array, axes).release();
    }
    const PyRef tuple = PyRef::steal(PySequence_Tuple(given));
    int count = 0;
    if (!tuple ||
        !parse_axes(state_of_type(object_of(array)), "transpose", tuple.get(), array->ndim, axes, &count))
        return nullptr;
    if (count != array->ndim) {
        PyErr_Format(PyExc_ValueError, "transpose: %d axes were given for %d dimensions", count, array->ndim);
        return nullptr;
    }
    return transposed(array, axes).release();
}

PyObject *array_squeeze(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ARRAY_SQUEEZE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("squeeze", self, values, count, names, arguments)) return nullptr;
    return squeezed(array_of(self), arguments[1]).release();
}

#define CUKERN_VIEW_EXAMPLE(call, result) \
    "\nExamples\n--------\n>>> import cukern\n>>> a = cukern.arange(6)\n>>> cukern." call "\n" result "\n"

PyMethodDef kViewMethods[] = {
    {"reshape", as_method(reshape_method), METH_FASTCALL | METH_KEYWORDS,
     "reshape" CUKERN_RESHAPE "\n--\n\nReturn the elements of an Array, in C order, with another shape.\n\n"
     "Parameters\n----------\na : Array\nshape : int or tuple of int\n    One length may be -1: what is left "
     "over.\n"
     "copy : bool, optional\n    By default a view where the strides allow it.\n\n"
     "Returns\n-------\nArray\n\n"
     "Raises\n------\nValueError\n    The elements do not fit; or ``copy=False`` and a copy is "
     "needed.\n" CUKERN_VIEW_EXAMPLE("reshape(a, (2, -1)).shape", "(2, 3)")},
    {"ravel", ravel_method, METH_O,
     "ravel(a, /)\n--\n\nReturn the elements of an Array in C order as one dimension; a view where possible.\n\n"
     "Returns\n-------\nArray\n" CUKERN_VIEW_EXAMPLE("ravel(a[::2]).shape", "(3,)")},
    {"matrix_transpose", matrix_transpose_method, METH_O,
     "matrix_transpose(a, /)\n--\n\nReturn a view of an Array with the last two dimensions swapped.\n\n"
     "Parameters\n----------\na : Array\n    Of two dimensions at least.\n\n"
     "Returns\n-------\nArray\n\n"
     "Raises\n------\nTypeError\n    `a` is no Array.\nValueError\n    It has fewer dimensions.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.matrix_transpose(cukern.ones((2, 3, 4))).shape\n"
     "(2, 4, 3)\n"},
    {"transpose", as_method(transpose_method), METH_FASTCALL | METH_KEYWORDS,
     "transpose" CUKERN_TRANSPOSE "\n--\n\nReturn a view of an Array with its dimensions in another order.\n\n"
     "Parameters\n----------\na : Array\naxes : tuple of int, optional\n    By default the opposite order.\n\n"
     "Returns\n-------\nArray\n" CUKERN_VIEW_EXAMPLE("transpose(a.reshape(2, 3)).shape", "(3, 2)")},
    {"squeeze", as_method(squeeze_method), METH_FASTCALL | METH_KEYWORDS,
     "squeeze" CUKERN_SQUEEZE "\n--\n\nReturn a view of an Array without dimensions of length 1.\n\n"
     "Parameters\n----------\na : Array\naxis : int or tuple of int, optional\n    By default all of length 1.\n\n"
     "Returns\n-------\nArray\n" CUKERN_VIEW_EXAMPLE("squeeze(a.reshape(1, 6)).shape", "(6,)")},
    {"expand_dims", as_method(expand_dims_method), METH_FASTCALL | METH_KEYWORDS,
     "expand_dims" CUKERN_EXPAND_DIMS "\n--\n\nReturn a view of an Array with further dimensions of length 1.\n\n"
     "Parameters\n----------\na : Array\naxis : int or tuple of int\n    Where they are in the result.\n\n"
     "Returns\n-------\nArray\n" CUKERN_VIEW_EXAMPLE("expand_dims(a, 0).shape", "(1, 6)")},
    {"broadcast_to", as_method(broadcast_to_method), METH_FASTCALL | METH_KEYWORDS,
     "broadcast_to" CUKERN_BROADCAST_TO
     "\n--\n\nReturn a read-only view of an Array with a shape that it broadcasts to.\n\n"
     "Parameters\n----------\na : Array\nshape : int or tuple of int\n\n"
     "Returns\n-------\nArray\n" CUKERN_VIEW_EXAMPLE("broadcast_to(a, (2, 6)).strides", "(0, 8)")},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
