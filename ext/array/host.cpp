// From an Array to the host as ndarrays, and copies between any two places. The host waits here.
#include "base/python.h"

#include <algorithm>

#include "array/array.h"

#include "array/signatures.h"
#include "base/backend.h"
#include "base/errors.h"
#include "base/methods.h"
#include "base/numpy_memory.h"
#include "base/signature.h"
#include "call/operand.h"
#include "call/result.h"
#include "interop/array_exchange.h"
#include "streams/streams.h"
#include "types/element_types.h"
#include "view/shapes.h"

#include "cukern/transfer.h"

namespace cukern::py {
namespace {

// An ndarray of an array's shape and element type, in its memory order where that is dense.
PyRef empty_numpy(const ModuleState &state, const char *function, Array *array) noexcept {
    PyRef dtype = numpy_dtype(state, array->type);
    if (!dtype) {
        raise_no_bfloat16(function);
        return {};
    }
    npy_intp shape[kMaxDims];
    for (int i = 0; i < array->ndim; ++i) shape[i] = array->shape()[i];
    const bool fortran = !is_c_contiguous(array->ndim, array->shape(), array->strides()) &&
                         is_f_contiguous(array->ndim, array->shape(), array->strides());
    return new_ndarray(std::move(dtype), array->ndim, shape, nullptr, fortran ? NPY_ARRAY_F_CONTIGUOUS : 0);
}

void end_export(PyObject *capsule) {
    auto *self = static_cast<PyObject *>(PyCapsule_GetPointer(capsule, nullptr));
    array_of(self)->storage->remove_export();
    Py_DECREF(self);
}

// What keeps `self`, and has launches wait while somebody looks.
PyRef make_export(PyObject *self) noexcept {
    PyRef capsule = PyRef::steal(PyCapsule_New(self, nullptr, end_export));
    if (!capsule) return {};
    Py_INCREF(self);
    array_of(self)->storage->add_export();
    return capsule;
}

// An ndarray over memory that the host sees; it counts as an export of `self`.
PyRef numpy_view(const ModuleState &state, const char *function, PyObject *self) noexcept {
    Array *array = array_of(self);
    PyRef dtype = numpy_dtype(state, array->type);
    if (!dtype) {
        raise_no_bfloat16(function);
        return {};
    }
    npy_intp shape[kMaxDims];
    npy_intp strides[kMaxDims];
    for (int i = 0; i < array->ndim; ++i) {
        shape[i] = array->shape()[i];
        strides[i] = array->strides()[i] * size_of(array->type);
    }
    PyRef view = PyRef::steal(
        PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr *>(dtype.release()), array->ndim, shape,
                             strides, array->data, array->read_only ? 0 : NPY_ARRAY_WRITEABLE, nullptr));
    PyRef exported = view ? make_export(self) : PyRef();
    if (!exported || PyArray_SetBaseObject(as_array(view), exported.release()) != 0) return {};
    return view;
}

PyRef copy_to_numpy(const ModuleState &state, const char *function, Array *array,
                    const StreamRef &stream) noexcept {
    PyRef result = empty_numpy(state, function, array);
    if (!result) return {};
    TrackedView source;
    tracked_view_of(array, &source);
    Operand destination;
    if (!destination.read_memory({state, function, "the result"}, result.get(), true)) return {};
    return copy_into(state, function, source, destination.access(), stream) ? std::move(result) : PyRef();
}

// asnumpy with `out`: an ndarray, a buffer, a pinned or managed Array.
PyRef copy_to_out(const ModuleState &state, const char *function, Array *array, PyObject *out, bool blocking,
                  const StreamRef &stream) noexcept {
    TrackedView source;
    tracked_view_of(array, &source);
    return copy_to_object(state, function, source, out, blocking, stream) ? PyRef::borrow(out) : PyRef();
}

PyRef asnumpy(const ModuleState &state, const char *function, Array *array, PyObject *out, PyObject *given,
              bool blocking) noexcept {
    HeldStream stream;
    if (!stream_on(state, function, given, array->device(), &stream)) return {};
    if (out != nullptr && Py_IsNone(out) == 0) return copy_to_out(state, function, array, out, blocking, stream);
    if (!blocking) {
        PyErr_Format(PyExc_ValueError,
                     "%s: blocking=False needs out= in pinned memory, such as a view of cukern.empty(..., "
                     "memory='pinned')",
                     function);
        return {};
    }
    return copy_to_numpy(state, function, array, stream);
}

// Of an operand in the host's own memory: NumPy's array itself, the elements of others.
PyRef host_ndarray(const ModuleState &state, const Operand &operand) noexcept {
    if (PyArray_Check(operand.object())) return operand.ndarray();
    const TensorView &view = operand.view();
    PyRef dtype = numpy_dtype(state, view.type);
    if (!dtype) {
        raise_no_bfloat16("asnumpy");
        return {};
    }
    npy_intp shape[kMaxDims];
    for (int i = 0; i < view.ndim; ++i) shape[i] = view.shape[i];
    PyRef result = new_ndarray(std::move(dtype), view.ndim, shape, nullptr, 0);
    return result && copy_to_object(state, "asnumpy", operand.access(), result.get(), true, {}) ? std::move(result)
                                                                                                : PyRef();
}

#define CUKERN_ASNUMPY "(a, *, out=None, stream=None, blocking=True)"
#define CUKERN_COPYTO "(dst, src, stream=None, blocking=True)"

PyObject *asnumpy_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ASNUMPY);
    PyObject *arguments[Signature::kMost];
    bool blocking = true;
    if (!kSignature.parse("asnumpy", nullptr, values, count, names, arguments) ||
        !parse_flag(arguments[3], &blocking))
        return nullptr;
    PyObject *const object = arguments[0];
    PyObject *const out = arguments[1];
    const ModuleState &state = state_of(module);
    Backend backend;
    if (!ensure_backend(state_of(module), "asnumpy", &backend)) return nullptr;
    PyRef array = PyRef::borrow(object);
    if (!is_array(state, object)) {
        Operand operand;  // other libraries' arrays are looked at in place
        if (!operand.read_memory({state, "asnumpy", "a"}, object, false)) return nullptr;
        if (!operand.access().location.reachable) {  // on the host already
            if (!is_given(out)) return host_ndarray(state, operand).release();
            Operand to;
            if (!to.read_memory({state, "asnumpy", "the destination"}, out, true) ||
                !operand.check_unchanged("asnumpy") ||
                !copy_checked(state, "asnumpy", operand.access(), to, blocking, {}))
                return nullptr;
            return PyRef::borrow(out).release();
        }
        array = shared_array(state, "asnumpy", object, nullptr);
        if (!array) return nullptr;
    }
    return asnumpy(state, "asnumpy", array_of(array.get()), out, arguments[2], blocking).release();
}

// NEP 50: a Python number goes into a type of its own kind or a later one.
bool fits_kind(PyObject *number, ElementType type) noexcept {
    if (!is_number(number) || PyBool_Check(number) != 0) return true;
    const char kind = kind_of(type);
    const bool fits = PyComplex_Check(number) ? kind == 'c'
                      : PyFloat_Check(number) ? kind == 'c' || kind == 'f'
                                              : kind != 'b';
    if (!fits)
        PyErr_Format(PyExc_TypeError, "copyto: %R does not go into element type %s (casting 'same_kind')", number,
                     name_of(type));
    return fits;
}

PyObject *copyto_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_COPYTO);
    PyObject *arguments[Signature::kMost];
    bool blocking = true;
    if (!kSignature.parse("copyto", nullptr, values, count, names, arguments) ||
        !parse_flag(arguments[3], &blocking))
        return nullptr;
    PyObject *source = arguments[1];
    const ModuleState &state = state_of(module);
    Backend backend;
    if (!ensure_backend(state_of(module), "copyto", &backend)) return nullptr;
    Operand to;
    if (!to.read_memory({state, "copyto", "dst"}, arguments[0], true)) return nullptr;
    Operand from;
    PyRef list;
    if (is_plain(source)) {  // Python's numbers take the type of `dst`
        if (!fits_kind(source, to.type())) return nullptr;
        PyRef dtype = is_number(source) ? numpy_dtype(state, to.type()) : PyRef();
        list = PyRef::steal(
            PyArray_FromAny(source, reinterpret_cast<PyArray_Descr *>(dtype.release()), 0, 0, 0, nullptr));
        if (!list) return nullptr;
        source = list.get();
    }
    if (!from.read_memory({state, "copyto", "src"}, source, false)) return nullptr;
    const Location &place = to.access().location.reachable ? to.access().location : from.access().location;
    HeldStream stream;
    if (!choose_stream(state, "copyto", arguments[2], place.reachable ? place.device : -1,
                       {&from.access(), &to.access()}, &stream))
        return nullptr;
    if (!to.check_unchanged("copyto") || !from.check_unchanged("copyto") ||
        !copy_checked(state, "copyto", from.access(), to, blocking, stream))
        return nullptr;
    Py_RETURN_NONE;
}

}  // namespace

PyRef to_numpy(const ModuleState &state, const char *function, Array *array, bool share) noexcept {
    if (share && on_host(array->kind())) {
        PyRef view = numpy_view(state, function, object_of(array));  // an export, before the wait gives up the GIL
        return view && wait_for_host(state, function, array->storage, !array->read_only) ? std::move(view)
                                                                                         : PyRef();
    }
    HeldStream stream;
    return stream_on(state, function, nullptr, array->device(), &stream)
               ? copy_to_numpy(state, function, array, stream)
               : PyRef();
}

bool copy_to_object(const ModuleState &state, const char *function, const TrackedView &source,
                    PyObject *destination, bool blocking, const StreamRef &stream) noexcept {
    Operand to;
    return to.read_memory({state, function, "the destination"}, destination, true) &&
           copy_checked(state, function, source, to, blocking, stream);
}

namespace {

bool check_same_kind(const char *function, ElementType from, ElementType to) noexcept {
    if (can_cast_same_kind(from, to)) return true;
    PyErr_Format(PyExc_TypeError, "%s: element type %s does not go into %s (casting 'same_kind')", function,
                 name_of(from), name_of(to));
    return false;
}

// Of most copies, whose views need no change for it.
bool have_one_shape(const TensorView &a, const TensorView &b) noexcept {
    return !a.immediate && a.ndim == b.ndim && std::equal(a.shape, a.shape + a.ndim, b.shape);
}

}  // namespace

bool copy_checked(const ModuleState &state, const char *function, const TrackedView &source, Operand &to,
                  bool blocking, const StreamRef &stream) noexcept {
    if (!check_same_kind(function, source.view.type, to.type())) return false;
    if (blocking && have_one_shape(source.view, to.view()))
        return copy_apart(state, function, source, to.access(), stream) && to.finish_out();
    TrackedView target = to.access();
    TrackedView from = source;
    Shape shape(target.view.ndim, target.view.shape);
    drop_leading(from.view, shape.ndim);
    if (!broadcast_view(shape, &from.view)) {
        const PyRef a = shape_text(source.view.ndim, source.view.shape);
        const PyRef b = shape_text(shape.ndim, shape.lengths);
        if (a && b)
            PyErr_Format(PyExc_ValueError, "%s: shape %U does not broadcast to %U, that of the destination",
                         function, a.get(), b.get());
        return false;
    }
    if (blocking) return copy_apart(state, function, from, target, stream) && to.finish_out();
    // Nobody waits: both sides must be memory that the device reaches by itself.
    for (TrackedView *access : {&from, &target}) {
        if (access->location.reachable || access->view.immediate) continue;
        PointerInfo where;
        const Status status = pointer_info(access->view.data, &where);
        if (status != CUKERN_OK) {
            raise_status(state, function, status);
            return false;
        }
        if (!where.known || !on_host(where.kind) || access->holder == nullptr) {
            PyErr_Format(
                PyExc_ValueError,
                "%s: blocking=False needs host memory to be pinned, as in cukern.empty(..., memory='pinned')",
                function);
            return false;
        }
        access->location = {true, where.kind, stream.device};
    }
    if (!from.view.immediate && overlaps(layout_of(from.view), layout_of(target.view)))
        return copy_apart(state, function, from, target, stream);
    if (!wait_before_use(state, function, from, stream, false) ||
        !wait_before_use(state, function, target, stream, true))
        return false;
    const Status status = transfer(from.view, from.location, target.view, target.location, stream);
    if (status != CUKERN_OK) {
        raise_status(state, function, status);
        return false;
    }
    return record_use(state, function, from, stream, false) && record_use(state, function, target, stream, true);
}

PyObject *array_get(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ARRAY_GET);
    PyObject *arguments[Signature::kMost];
    bool blocking = true;
    if (!kSignature.parse("get", self, values, count, names, arguments) || !parse_flag(arguments[3], &blocking))
        return nullptr;
    return asnumpy(state_of_type(self), "get", array_of(self), arguments[1], arguments[2], blocking).release();
}

PyObject *array_as_numpy(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ARRAY_ARRAY);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("__array__", self, values, count, names, arguments)) return nullptr;
    PyObject *const dtype = arguments[1] != nullptr ? arguments[1] : Py_None;
    PyObject *const copy = arguments[2] != nullptr ? arguments[2] : Py_None;
    Array *array = array_of(self);
    if (!on_host(array->kind())) {
        PyErr_SetString(
            PyExc_TypeError,
            "NumPy does not see device memory, and it is not copied unasked; cukern.asnumpy(a) copies it");
        return nullptr;
    }
    const PyRef shared_view = to_numpy(state_of_type(self), "__array__", array, true);
    if (!shared_view) return nullptr;
    if (Py_IsNone(dtype) != 0 && (Py_IsNone(copy) != 0 || Py_IsFalse(copy) != 0))
        return PyRef::borrow(shared_view.get()).release();
    const PyRef numpy_array = PyRef::steal(PyObject_GetAttrString(state_of_type(self).numpy, "array"));
    const PyRef positional = PyRef::steal(PyTuple_Pack(1, shared_view.get()));
    const PyRef options = PyRef::steal(Py_BuildValue("{s:O,s:O}", "dtype", dtype, "copy", copy));
    if (!numpy_array || !positional || !options) return nullptr;
    return PyObject_Call(numpy_array.get(), positional.get(), options.get());
}

PyMethodDef kHostMethods[] = {
    {"asnumpy", as_method(asnumpy_method), METH_FASTCALL | METH_KEYWORDS,
     "asnumpy" CUKERN_ASNUMPY "\n--\n\nCopy an array to the host.\n\n"
     "Parameters\n----------\na : Array, or another library's array\n    One that is on the host already is not "
     "copied.\n"
     "out : ndarray or writable buffer, optional\n    Takes the elements, and is returned. It has the shape that "
     "`a` "
     "broadcasts to.\n"
     "stream : optional\n    The stream in whose order the copy is made; by default the current one.\n"
     "blocking : bool\n    False returns at once; `out` must then be in pinned memory, and holds the elements "
     "when "
     "the\n    stream has come so far.\n\n"
     "Returns\n-------\nndarray or `out`\n\n"
     "Raises\n------\nTypeError\n    bfloat16 without the package ml_dtypes.\n"
     "ValueError\n    ``blocking=False`` without pinned memory; shapes do not fit.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.asnumpy(cukern.arange(3))\narray([0, 1, 2])\n"},
    {"copyto", as_method(copyto_method), METH_FASTCALL | METH_KEYWORDS,
     "copyto" CUKERN_COPYTO "\n--\n\nCopy elements from anywhere to anywhere, with "
     "broadcasting.\n\n"
     "Parameters\n----------\ndst, src : Array, another library's array, ndarray or buffer\n"
     "    `src` broadcasts to `dst`, and its element type goes into that of `dst` by 'same_kind' casting.\n"
     "stream : optional\n    The stream in whose order the copy is made.\n"
     "blocking : bool\n    False returns at once; host memory must then be pinned. Between arrays that a device\n"
     "    reaches nothing waits in any case.\n\n"
     "Raises\n------\nTypeError\n    The element type does not fit.\n"
     "ValueError\n    The shape does not fit, `dst` is read-only, or ``blocking=False`` without pinned memory.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> a = cukern.zeros(3)\n>>> cukern.copyto(a, [1.0, 2.0, 3.0])\n>>> "
     "a\n"
     "Array([1., 2., 3.])\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
