// Arrays made of others: asarray, copy, from_dlpack.
#include "base/python.h"

#include "create/make.h"

#include "array/array.h"
#include "base/backend.h"
#include "base/methods.h"
#include "base/signature.h"
#include "call/result.h"
#include "interop/array_exchange.h"
#include "streams/streams.h"
#include "types/element_types.h"

namespace cukern::py {
namespace {

// A copy of an array that has been read, in memory of ours.
PyRef copied(const ModuleState &state, const char *function, Operand &source, PyObject *dtype, MemoryOrder order,
             const Options &options) noexcept {
    if (source.on_host() || source.family() == Family::number)
        return from_host(state, function, source, dtype, order, options);
    ElementType type;
    MemoryKind kind = source.access().location.kind;
    if (!element_type_or(state, function, dtype, source.type(), &type) ||
        (is_given(options.memory) && !parse_memory(function, options.memory, &kind)))
        return {};
    HeldStream stream;
    if (is_given(options.device) || is_given(options.stream)) {
        if (!stream_for_new(state, function, options.device, options.stream, &stream)) return {};
    } else if (!choose_stream(state, function, nullptr, source.access().location.device, {&source.access()},
                              &stream)) {
        return {};
    }
    return new_copy(state, function, source, kind, type, order, stream);
}

// The same of any library's array.
PyRef copied(const ModuleState &state, const char *function, PyObject *object, PyObject *dtype, MemoryOrder order,
             const Options &options) noexcept {
    Operand source;
    return source.read_memory({state, function, "a"}, object, false)
               ? copied(state, function, source, dtype, order, options)
               : PyRef();
}

// Whether an Array is what the options ask for.
bool fits(const ModuleState &state, const char *function, const Array *array, const Options &options,
          bool *result) noexcept {
    ElementType type;
    MemoryKind kind = array->kind();
    int device = array->device();
    if (!element_type_or(state, function, options.dtype, array->type, &type) ||
        (is_given(options.memory) && !parse_memory(function, options.memory, &kind)) ||
        (is_given(options.device) && !parse_device(state, function, options.device, &device)))
        return false;
    *result = type == array->type && kind == array->kind() && device == array->device();
    return true;
}

// Whether an object's __dlpack__ is of memory that a device reaches, without a call of it.
bool lends_device_memory(const ModuleState &state, PyObject *object, bool *lends) noexcept {
    HeldRecord record;
    if (!find_record(const_cast<ModuleState &>(state), object, &record)) return false;
    if (record->protocol != Protocol::dlpack) return true;
    dlpack::Device device{};
    if (!ask_device({state, "asarray", "a"}, object, &device)) return false;
    *lends = device.type != dlpack::kCPU;
    return true;
}

#define CUKERN_ASARRAY "(a, dtype=None, *, memory=None, device=None, stream=None, copy=None)"
#define CUKERN_COPY "(a, order='K', *, memory=None, device=None, stream=None)"
#define CUKERN_FROM_DLPACK "(x, /, *, device=None, copy=None, stream=None)"

PyObject *asarray_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ASARRAY);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("asarray", nullptr, values, count, names, arguments)) return nullptr;
    PyObject *const object = arguments[0];
    const Options options{arguments[1], arguments[2], arguments[3], arguments[4]};
    PyObject *const copy = arguments[5];
    const ModuleState &state = state_of(module);
    if (!choose_backend(module, "asarray")) return nullptr;
    bool always = false;
    bool never = false;
    if (!parse_copy("asarray", copy, &always, &never)) return nullptr;
    PyRef source = PyRef::borrow(object);
    if (is_plain(object)) {
        PyRef dtype;
        if (is_given(options.dtype)) {  // numbers are checked against the type that is asked for
            ElementType type;
            if (!parse_dtype(state, "asarray", options.dtype, &type)) return nullptr;
            if (type != ElementType::bfloat16) dtype = numpy_dtype(state, type);
        }
        source = PyRef::steal(
            PyArray_FromAny(object, reinterpret_cast<PyArray_Descr *>(dtype.release()), 0, 0, 0, nullptr));
        if (!source) return nullptr;
    }
    // Another library's object is read once: by __dlpack__ where its memory is shared, else as what is copied.
    Operand operand;
    const bool is_foreign = !is_plain(object) && !is_array(state, object) && !PyArray_Check(object);
    if (is_foreign) {
        bool shares = false;
        if (!lends_device_memory(state, object, &shares) ||
            (!shares && !operand.read_memory({state, "asarray", "a"}, object, false)))
            return nullptr;
        shares = shares || (operand.family() != Family::number && !operand.on_host());
        if (shares) source = shared_array(state, "asarray", object, options.stream);
        if (!source) return nullptr;
    }
    if (is_array(state, source.get())) {
        bool as_it_is = false;
        if (!fits(state, "asarray", array_of(source.get()), options, &as_it_is)) return nullptr;
        if (as_it_is && !always) return source.release();
    }
    if (never) {
        PyErr_SetString(
            PyExc_ValueError,
            "asarray: copy=False, but the elements are not in such memory, or not of that type, already");
        return nullptr;
    }
    if (is_foreign && source.get() == object)
        return copied(state, "asarray", operand, options.dtype, MemoryOrder::c, options).release();
    return copied(state, "asarray", source.get(), options.dtype, MemoryOrder::c, options).release();
}

PyObject *copy_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_COPY);
    PyObject *arguments[Signature::kMost];
    MemoryOrder order = MemoryOrder::keep;
    if (!kSignature.parse("copy", nullptr, values, count, names, arguments) ||
        !parse_order("copy", arguments[1], &order) || !choose_backend(module, "copy"))
        return nullptr;
    PyObject *const object = arguments[0];
    const Options options{nullptr, arguments[2], arguments[3], arguments[4]};
    PyRef source = PyRef::borrow(object);
    if (is_plain(object)) source = PyRef::steal(PyArray_FromAny(object, nullptr, 0, 0, 0, nullptr));
    return source ? copied(state_of(module), "copy", source.get(), nullptr, order, options).release() : nullptr;
}

PyObject *from_dlpack_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_FROM_DLPACK);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("from_dlpack", nullptr, values, count, names, arguments)) return nullptr;
    PyObject *const object = arguments[0];
    const Options options{nullptr, nullptr, arguments[1], arguments[3]};
    const ModuleState &state = state_of(module);
    if (!choose_backend(module, "from_dlpack")) return nullptr;
    const ArgumentInfo argument{state, "from_dlpack", "x"};
    bool always = false;
    bool never = false;
    if (!parse_copy("from_dlpack", arguments[2], &always, &never)) return nullptr;
    PyObject *const copy = always ? Py_True : never ? Py_False : Py_None;
    const bool is_capsule = PyCapsule_CheckExact(object) != 0;
    ForeignArray foreign;
    if (is_capsule) {
        ImportStream consumer;
        consumer.is_named = is_given(options.stream);
        if (!stream_for_new(state, "from_dlpack", nullptr, options.stream, &consumer.stream)) return nullptr;
        if (leave_graph(&consumer.stream)) consumer.is_named = false;
        if (!read_capsule(argument, object, CapsuleUse::array, &consumer, &foreign)) return nullptr;
        foreign.producer = consumer.stream;
    } else {
        HeldRecord record;
        if (!find_record(const_cast<ModuleState &>(state), object, &record) ||
            !import_dlpack(argument, object, *record, options.stream, copy, &foreign))
            return nullptr;
    }
    Location location;
    if (!locate(argument, foreign.device, &location)) return nullptr;
    foreign.has_producer = location.reachable;
    PyRef result;
    if (location.reachable || is_host_in_use()) {
        result =
            adopt_array(argument, foreign, foreign.keeper.get(), is_capsule || foreign.is_copy ? nullptr : object);
    } else if (never) {
        PyErr_SetString(PyExc_BufferError,
                        "from_dlpack: copy=False, but x is in host memory, which has to be copied to a device");
        return nullptr;
    } else {  // the host's own memory: its view, and then a copy
        TrackedView source;
        source.view.data = foreign.data;
        source.view.type = foreign.type;
        source.view.ndim = foreign.ndim;
        for (int i = 0; i < foreign.ndim; ++i) {
            source.view.shape[i] = foreign.shape[i];
            source.view.strides[i] = foreign.strides[i] / size_of(foreign.type);
        }
        HeldStream stream;
        if (!stream_for_new(state, "from_dlpack", options.device, options.stream, &stream)) return nullptr;
        return new_copy(state, "from_dlpack", source, MemoryKind::device, foreign.type, nullptr, stream).release();
    }
    const bool copies = always && !foreign.is_copy;
    if (!result || (!is_given(options.device) && !copies)) return result.release();
    bool as_it_is = false;
    if (!fits(state, "from_dlpack", array_of(result.get()), options, &as_it_is)) return nullptr;
    if (as_it_is && !copies) return result.release();
    if (never) {
        PyErr_SetString(PyExc_BufferError, "from_dlpack: copy=False, but x is on another device");
        return nullptr;
    }
    return copied(state, "from_dlpack", result.get(), nullptr, MemoryOrder::c, options).release();
}

// _convert_like(like, array): an Array or ndarray as one of the library whose array `like` is.
PyObject *convert_like_method(PyObject *module, PyObject *args) {
    PyObject *like = nullptr;
    PyObject *array = nullptr;
    if (PyArg_ParseTuple(args, "OO:_convert_like", &like, &array) == 0) return nullptr;
    if (!is_array(state_of(module), array) && PyArray_Check(array) == 0)
        return PyErr_Format(PyExc_TypeError, "_convert_like: expected an Array or ndarray");
    return convert_like(state_of(module), like, array).release();
}

// _address(array): where the first element of an array of any library is.
PyObject *address_method(PyObject *module, PyObject *array) {
    const ModuleState &state = state_of(module);
    if (is_array(state, array)) return PyLong_FromVoidPtr(array_of(array)->data);
    Backend backend;
    ReadContext reading;
    Operand operand;
    if (!ensure_backend(state_of(module), "_address", &backend) ||
        !operand.read_address({state, "_address", "the argument"}, array, reading))
        return nullptr;
    return PyLong_FromVoidPtr(const_cast<void *>(operand.layout().data));
}

}  // namespace

PyMethodDef kImportMethods[] = {
    {"_convert_like", convert_like_method, METH_VARARGS,
     "_convert_like(like, array, /)\n--\n\nReturn an Array or ndarray as one of the library whose array `like` "
     "is."},
    {"_address", address_method, METH_O,
     "_address(array, /)\n--\n\nReturn where the first element of an array of any library is."},
    {"asarray", as_method(asarray_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_COPY_DOC(
         "asarray" CUKERN_ASARRAY,
         "Return an Array of what is given: itself, a view of another library's memory, or a copy.\n\n"
         "What a device reaches already (another library's array on a GPU) is shared. NumPy arrays, buffers,\n"
         "lists, numbers and other arrays on the host are copied.",
         "a : array of any kind, buffer, list or number\ndtype : optional\n    That of `a` by default.\n"
         "copy : bool, optional\n    True always copies; False raises ValueError where a copy is needed.\n",
         ">>> cukern.asarray([1, 2, 3], 'float32')\nArray([1., 2., 3.], dtype=float32)")},
    {"copy", as_method(copy_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_COPY_DOC("copy" CUKERN_COPY, "Return a copy of an array as Array.",
                     "a : array of any kind, buffer, list or number\norder : {'K', 'C', 'F', 'A'}\n"
                     "    The memory order of the copy: that of `a`, C, Fortran, or Fortran if `a` is.\n",
                     ">>> a = cukern.zeros(2)\n>>> b = cukern.copy(a)\n>>> b += 1\n>>> a\nArray([0., 0.])")},
    {"from_dlpack", as_method(from_dlpack_method), METH_FASTCALL | METH_KEYWORDS,
     "from_dlpack" CUKERN_FROM_DLPACK "\n--\n\nReturn an Array of another library's "
     "array, by "
     "DLPack.\n\nMemory that a device reaches is shared, which "
     "includes torch's\npinned tensors, and on the host back-end that of the CPU. With a GPU, what is in other "
     "host\nmemory is copied to it.\n\n"
     "Parameters\n----------\nx : object with __dlpack__, or DLPack capsule\n"
     "device : int or Device, optional\n"
     "copy : bool, optional\n    True always copies, False never.\n"
     "stream : optional\n    The stream on which the memory will be used first.\n\n"
     "Returns\n-------\nArray\n\n"
     "Raises\n------\nBufferError\n    ``copy=False`` and a copy is needed; a capsule of another major version.\n"
     "TypeError\n    An element type or a device that is not ours.\n"
     "ValueError\n    A capsule that has been used.\n\n"
     "Examples\n--------\n>>> import cukern, numpy\n>>> cukern.from_dlpack(numpy.arange(3.0))\nArray([0., 1., "
     "2.])\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
