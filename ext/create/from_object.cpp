// Arrays made of others: asarray, copy, from_dlpack; and another library's memory as an Array.
#include "base/python.h"

#include "create/make.h"

#include <cstring>
#include <vector>

#include "array/array.h"
#include "base/errors.h"
#include "base/methods.h"
#include "call/result.h"
#include "interop/array_exchange.h"
#include "streams/streams.h"
#include "streams/with_blocks.h"
#include "types/element_types.h"

namespace cukern::py {
namespace {

// False: there is no memory for it.
bool appended(std::vector<PyObject *> *list, PyObject *object) noexcept {
    try {
        list->push_back(object);
        return true;
    } catch (...) {
        return false;
    }
}

// Owners whose memory another owner's array is over, and so on, go one after the other instead of one inside the
// other: a long chain of them would use up the stack.
void release_keeper(void *keeper) noexcept {
    constexpr int kDeepest = 32;
    thread_local int depth = 0;
    thread_local std::vector<PyObject *> later;
    if (Py_IsInitialized() == 0) return;  // the interpreter is gone, and with it what the object needs
    const GilHold gil;
    auto *object = static_cast<PyObject *>(keeper);
    if (depth == kDeepest && appended(&later, object)) return;  // else one level more
    ++depth;
    Py_DECREF(object);
    while (depth == 1 && !later.empty()) {
        object = later.back();
        later.pop_back();
        Py_DECREF(object);
    }
    --depth;
}

// An array over the memory of the Array that a capsule of ours has lent, as any view of it.
PyRef take_back(const ForeignArray &foreign) noexcept {
    Array *array = array_of(foreign.own);
    PyRef view = array_view(array, array->data, array->ndim, array->shape(), array->strides());
    if (!view) return {};
    array->storage->record_returned();
    array_of(view.get())->read_only = foreign.read_only || array->read_only;
    return view;
}

}  // namespace

PyRef adopt_array(const Place &place, const ForeignArray &foreign, PyObject *keeper, PyObject *base) noexcept {
    const ModuleState &state = place.state;
    if (foreign.own != nullptr && is_array(state, foreign.own)) return take_back(foreign);
    Location location;
    if (!locate(place, foreign.device, &location)) return {};
    Backend backend = Backend::host;
    active_backend(&backend);
    if (!location.reachable && backend == Backend::cuda) {
        PyErr_Format(PyExc_BufferError,
                     "%s: %s is in host memory, which an Array does not share with a GPU in use", place.function,
                     place.argument);
        return {};
    }
    std::int64_t bytes = 0;
    if (!check_memory(place, foreign, &bytes)) return {};
    std::int64_t strides[kMaxDims];
    for (int i = 0; i < foreign.ndim; ++i) strides[i] = foreign.strides[i] / size_of(foreign.type);
    Storage *storage = nullptr;
    PyRef held = PyRef::borrow(keeper);
    Status status =
        Storage::adopt(location.reachable ? location.kind : MemoryKind::device, foreign.data,
                       static_cast<std::size_t>(bytes), location.device, release_keeper, held.get(), &storage);
    if (status == CUKERN_OK) {
        (void)held.release();
        if (foreign.has_producer) status = storage->record_use(foreign.producer, true);
        if (status != CUKERN_OK) storage->release();
    }
    if (status != CUKERN_OK) {
        raise_status(state, place.function, status);
        return {};
    }
    return array_over(state, storage, static_cast<char *>(foreign.data), foreign.type, foreign.ndim, foreign.shape,
                      strides, base, foreign.read_only);
}

namespace {

// A copy of an array that has been read, in memory of ours.
PyRef copied(const ModuleState &state, const char *function, Operand &source, PyObject *dtype, MemoryOrder order,
             const Options &options) noexcept {
    if (source.on_host()) return from_host(state, function, source, dtype, order, options);
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
    const TensorView &view = source.view();
    std::int64_t strides[kMaxDims];
    if (!view.immediate) strides_in_order(view, order, strides);
    PyRef result =
        new_array(state, function, kind, type, view.immediate ? 0 : view.ndim, view.shape, strides, stream);
    if (!result || !source.check_unchanged(function)) return {};
    TrackedView destination;
    tracked_view_of(array_of(result.get()), &destination);
    return copy_into(state, function, source.access(), destination, stream) ? std::move(result) : PyRef();
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

bool is_pinned(const void *data) noexcept {
    Backend backend = Backend::host;
    PointerInfo where;
    return active_backend(&backend) == CUKERN_OK && backend == Backend::cuda &&
           pointer_info(data, &where) == CUKERN_OK && where.known && where.kind == MemoryKind::pinned;
}

// Asks for a capsule and reads it. The producer is asked to be ready for `stream`, if it is given, else for the
// innermost active one, else for its library's own, which needs no order (and a capture could not hold any).
bool import_dlpack(const Place &place, PyObject *object, const TypeRecord &record, PyObject *stream,
                   PyObject *copy, ForeignArray *foreign) noexcept {
    const ModuleState &state = place.state;
    HeldStream consumer;
    dlpack::Device where{};
    Location location;
    if (!stream_for_new(state, place.function, nullptr, stream, &consumer) || !ask_device(place, object, &where) ||
        !locate(place, where, &location))
        return false;
    if (location.reachable && consumer->device != location.device) consumer.set_default(location.device);
    void *handle = nullptr;
    HeldStream active;
    bool is_active = false;
    if (!active_stream(state, &active, &is_active)) return false;
    if (takes_stream(where) && record.api != nullptr && !is_given(stream) && !is_active &&
        record.api->current_stream(where.type, where.id, &handle) == 0) {
        StreamRef theirs;
        if (const Status status = stream_ref(handle, where.id, &theirs); status != CUKERN_OK) {
            raise_status(state, place.function, status);
            return false;
        }
        consumer = theirs;
    }
    const StreamRef &wanted = consumer;
    const PyRef capsule = call_dlpack(state, object, takes_stream(where) ? &wanted : nullptr, copy, nullptr);
    if (!capsule || !read_capsule(place, capsule.get(), CapsuleUse::array, foreign)) return false;
    // torch says of pinned memory where it is when it is asked, and in the capsule that it is the CPU's. That of a
    // copy is the CPU's.
    if (where.type == dlpack::kCUDAHost && foreign->device.type == dlpack::kCPU && is_pinned(foreign->data))
        foreign->device = where;
    foreign->has_producer = location.reachable;
    foreign->producer = consumer;
    foreign->read_only = foreign->read_only || (record.is_jax && !foreign->is_copy);
    return foreign->is_copy || check_foreign(place, record, object, *foreign);
}

}  // namespace

PyRef shared_array(const ModuleState &state, const char *function, PyObject *object, PyObject *stream) noexcept {
    const Place place{state, function, "a"};
    HeldRecord held;
    if (!find_record(const_cast<ModuleState &>(state), object, &held)) return {};
    const TypeRecord &record = *held;
    ForeignArray foreign;
    if (record.protocol == Protocol::cuda) {
        ReadContext reading;
        if (!read_foreign(place, record, object, reading, false, &foreign)) return {};
        return adopt_array(place, foreign, object, object);
    }
    if (!import_dlpack(place, object, record, stream, Py_None, &foreign)) return {};
    return adopt_array(place, foreign, foreign.keeper.get(), object);
}

namespace {

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

PyObject *asarray_method(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"a", "dtype", "memory", "device", "stream", "copy", nullptr};
    PyObject *object = nullptr;
    Options options;
    PyObject *copy = Py_None;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O$OOOO:asarray", const_cast<char **>(names), &object,
                                    &options.dtype, &options.memory, &options.device, &options.stream, &copy) == 0)
        return nullptr;
    const ModuleState &state = state_of(module);
    if (!ready(module, "asarray")) return nullptr;
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

PyObject *copy_method(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"a", "order", "memory", "device", "stream", nullptr};
    PyObject *object = nullptr;
    PyObject *given_order = nullptr;
    Options options;
    MemoryOrder order = MemoryOrder::keep;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O$OOO:copy", const_cast<char **>(names), &object,
                                    &given_order, &options.memory, &options.device, &options.stream) == 0 ||
        !parse_order("copy", given_order, &order) || !ready(module, "copy"))
        return nullptr;
    PyRef source = PyRef::borrow(object);
    if (is_plain(object)) source = PyRef::steal(PyArray_FromAny(object, nullptr, 0, 0, 0, nullptr));
    return source ? copied(state_of(module), "copy", source.get(), nullptr, order, options).release() : nullptr;
}

PyObject *from_dlpack_method(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"x", "device", "copy", "stream", nullptr};
    PyObject *object = nullptr;
    PyObject *copy = Py_None;
    Options options;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOO:from_dlpack", const_cast<char **>(names), &object,
                                    &options.device, &copy, &options.stream) == 0)
        return nullptr;
    const ModuleState &state = state_of(module);
    if (!ready(module, "from_dlpack")) return nullptr;
    const Place place{state, "from_dlpack", "x"};
    bool always = false;
    bool never = false;
    if (!parse_copy("from_dlpack", copy, &always, &never)) return nullptr;
    if (Py_IsNone(copy) == 0) copy = always ? Py_True : Py_False;
    const bool is_capsule = PyCapsule_CheckExact(object) != 0;
    ForeignArray foreign;
    if (is_capsule) {
        HeldStream consumer;
        if (!stream_for_new(state, "from_dlpack", nullptr, options.stream, &consumer) ||
            !read_capsule(place, object, CapsuleUse::array, &foreign))
            return nullptr;
        StreamRef producer = consumer;
        producer.device = foreign.device.id;
        foreign.producer = producer;
    } else {
        HeldRecord record;
        if (!find_record(const_cast<ModuleState &>(state), object, &record) ||
            !import_dlpack(place, object, *record, options.stream, copy, &foreign))
            return nullptr;
    }
    Location location;
    if (!locate(place, foreign.device, &location)) return nullptr;
    foreign.has_producer = location.reachable;
    Backend backend = Backend::host;
    active_backend(&backend);
    PyRef result;
    if (location.reachable || backend == Backend::host) {
        result =
            adopt_array(place, foreign, foreign.keeper.get(), is_capsule || foreign.is_copy ? nullptr : object);
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
        result = make(state, "from_dlpack", Shape(foreign.ndim, foreign.shape), nullptr, foreign.type, options,
                      &stream);
        if (!result) return nullptr;
        TrackedView destination;
        tracked_view_of(array_of(result.get()), &destination);
        return copy_into(state, "from_dlpack", source, destination, stream) ? result.release() : nullptr;
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

}  // namespace

PyMethodDef kImportMethods[] = {
    {"asarray", as_method(asarray_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_COPY_DOC(
         "asarray(a, dtype=None, *, memory=None, device=None, stream=None, copy=None)",
         "Return an Array of what is given: itself, a view of another library's memory, or a copy.\n\n"
         "What a device reaches already (another library's array on a GPU) is shared. NumPy arrays, buffers,\n"
         "lists, numbers and other arrays on the host are copied.",
         "a : array of any kind, buffer, list or number\ndtype : optional\n    That of `a` by default.\n"
         "copy : bool, optional\n    True always copies; False raises ValueError where a copy is needed.\n",
         ">>> cukern.asarray([1, 2, 3], 'float32')\nArray([1., 2., 3.], dtype=float32)")},
    {"copy", as_method(copy_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_COPY_DOC("copy(a, order='K', *, memory=None, device=None, stream=None)",
                     "Return a copy of an array as Array.",
                     "a : array of any kind, buffer, list or number\norder : {'K', 'C', 'F', 'A'}\n"
                     "    The memory order of the copy: that of `a`, C, Fortran, or Fortran if `a` is.\n",
                     ">>> a = cukern.zeros(2)\n>>> b = cukern.copy(a)\n>>> b += 1\n>>> a\nArray([0., 0.])")},
    {"from_dlpack", as_method(from_dlpack_method), METH_VARARGS | METH_KEYWORDS,
     "from_dlpack(x, /, *, device=None, copy=None, stream=None)\n--\n\nReturn an Array of another library's "
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
