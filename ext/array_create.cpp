// New Arrays: empty, filled, from numbers and lists, from other libraries' arrays, joined from others.
#include "python.h"

#include "array.h"

#include <cstring>
#include <memory>
#include <new>

#include "element_types.h"
#include "errors.h"
#include "lending.h"
#include "methods.h"
#include "operand.h"
#include "shapes.h"
#include "streams.h"

namespace cukern::py {
namespace {

// The arguments that every function of creation takes.
struct Options {
    PyObject *dtype = nullptr;
    PyObject *memory = nullptr;
    PyObject *device = nullptr;
    PyObject *stream = nullptr;
};

bool given(PyObject *object) noexcept { return object != nullptr && Py_IsNone(object) == 0; }

bool ready(PyObject *module, const char *function) noexcept {
    Backend backend;
    return ensure_backend(module, function, &backend);
}

PyRef make(const ModuleState &state, const char *function, const Shape &shape, ElementType type,
           const Options &options, StreamRef *stream) noexcept {
    MemoryKind kind;
    if (!parse_memory(function, options.memory, &kind) ||
        !stream_for_new(state, function, options.device, options.stream, stream))
        return {};
    return new_array(state, function, kind, type, shape.ndim, shape.lengths, nullptr, *stream);
}

bool element_type_or(const ModuleState &state, const char *function, PyObject *dtype, ElementType otherwise,
                     ElementType *type) noexcept {
    *type = otherwise;
    return !given(dtype) || parse_dtype(state, function, dtype, type);
}

// An array filled with a number; null: not filled.
PyRef make_filled(PyObject *module, const char *function, const Shape &shape, ElementType type, PyObject *number,
                  const Options &options) noexcept {
    const ModuleState &state = state_of(module);
    Immediate value{};
    ElementType own = type;
    if (number != nullptr && !element_from(state, number, &own, &value)) return {};
    StreamRef stream;
    PyRef array = make(state, function, shape, type, options, &stream);
    if (!array || number == nullptr) return array;
    return fill_with(state, function, array_of(array.get()), value, own, stream) ? std::move(array) : PyRef();
}

// empty, zeros, ones: f(shape, dtype=float64, *, memory, device, stream).
PyObject *make_by_shape(PyObject *module, const char *function, long number, PyObject *args,
                        PyObject *keywords) noexcept {
    static const char *const names[] = {"shape", "dtype", "memory", "device", "stream", nullptr};
    PyObject *lengths = nullptr;
    Options options;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O$OOO", const_cast<char **>(names), &lengths,
                                    &options.dtype, &options.memory, &options.device, &options.stream) == 0)
        return nullptr;
    Shape shape;
    ElementType type;
    if (!ready(module, function) || !parse_shape(function, lengths, &shape) ||
        !element_type_or(state_of(module), function, options.dtype, ElementType::float64, &type))
        return nullptr;
    const PyRef value = number < 0 ? PyRef() : PyRef::steal(PyLong_FromLong(number));
    return make_filled(module, function, shape, type, value.get(), options).release();
}

PyObject *empty_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return make_by_shape(module, "empty", -1, args, keywords);
}
PyObject *zeros_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return make_by_shape(module, "zeros", 0, args, keywords);
}
PyObject *ones_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return make_by_shape(module, "ones", 1, args, keywords);
}

// The element type that NumPy gives a number.
bool type_of_number(const ModuleState &state, const char *function, PyObject *number, ElementType *type) noexcept {
    const PyRef array = PyRef::steal(PyArray_FromAny(number, nullptr, 0, 0, 0, nullptr));
    if (!array) return false;
    if (element_type_of(state, PyArray_DESCR(as_array(array)), type)) return true;
    PyErr_Format(PyExc_TypeError, "%s: %R is no number of a supported element type: %s", function, number,
                 all_element_types());
    return false;
}

PyObject *full_method(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"shape", "fill_value", "dtype", "memory", "device", "stream", nullptr};
    PyObject *lengths = nullptr;
    PyObject *value = nullptr;
    Options options;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "OO|O$OOO:full", const_cast<char **>(names), &lengths, &value,
                                    &options.dtype, &options.memory, &options.device, &options.stream) == 0)
        return nullptr;
    const ModuleState &state = state_of(module);
    Shape shape;
    ElementType type;
    if (!ready(module, "full") || !parse_shape("full", lengths, &shape)) return nullptr;
    if (given(options.dtype) ? !parse_dtype(state, "full", options.dtype, &type)
                             : !type_of_number(state, "full", value, &type))
        return nullptr;
    return make_filled(module, "full", shape, type, value, options).release();
}

// The shape and the element type of what a `_like` form is like, and where it is.
bool read_like(const ModuleState &state, const char *function, PyObject *object, Shape *shape, ElementType *type,
               Options *options, PyRef *memory, PyRef *device) noexcept {
    Operand operand;
    if (!operand.read_memory({state, function, "a"}, object, false)) return false;
    const TensorView &view = operand.view();
    *shape = Shape(view.immediate ? 0 : view.ndim, view.shape);
    if (!element_type_or(state, function, options->dtype, view.type, type)) return false;
    if (!is_array(state, object)) return true;
    if (!given(options->memory)) {
        *memory = PyRef::steal(PyUnicode_FromString(name_of(array_of(object)->kind())));
        options->memory = memory->get();
    }
    if (!given(options->device) && !given(options->stream)) {
        *device = make_device(state, array_of(object)->device());
        options->device = device->get();
        if (!*device) return false;
    }
    return options->memory != nullptr;
}

PyObject *make_like(PyObject *module, const char *function, PyObject *object, PyObject *value, long number,
                    Options options) noexcept {
    Shape shape;
    ElementType type;
    PyRef memory;
    PyRef device;
    if (!ready(module, function) ||
        !read_like(state_of(module), function, object, &shape, &type, &options, &memory, &device))
        return nullptr;
    const PyRef own = value != nullptr ? PyRef::borrow(value)
                      : number < 0     ? PyRef()
                                       : PyRef::steal(PyLong_FromLong(number));
    return make_filled(module, function, shape, type, own.get(), options).release();
}

PyObject *make_like_by_keywords(PyObject *module, const char *function, long number, PyObject *args,
                                PyObject *keywords) noexcept {
    static const char *const names[] = {"a", "dtype", "memory", "device", "stream", nullptr};
    PyObject *object = nullptr;
    Options options;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O$OOO", const_cast<char **>(names), &object, &options.dtype,
                                    &options.memory, &options.device, &options.stream) == 0)
        return nullptr;
    return make_like(module, function, object, nullptr, number, options);
}

PyObject *empty_like_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return make_like_by_keywords(module, "empty_like", -1, args, keywords);
}
PyObject *zeros_like_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return make_like_by_keywords(module, "zeros_like", 0, args, keywords);
}
PyObject *ones_like_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return make_like_by_keywords(module, "ones_like", 1, args, keywords);
}

PyObject *full_like_method(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"a", "fill_value", "dtype", "memory", "device", "stream", nullptr};
    PyObject *object = nullptr;
    PyObject *value = nullptr;
    Options options;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "OO|O$OOO:full_like", const_cast<char **>(names), &object,
                                    &value, &options.dtype, &options.memory, &options.device,
                                    &options.stream) == 0)
        return nullptr;
    return make_like(module, "full_like", object, value, -1, options);
}

// An array of what is on the host.
PyRef from_host(const ModuleState &state, const char *function, Operand &source, PyObject *dtype,
                const Options &options) noexcept {
    ElementType type;
    if (!element_type_or(state, function, dtype, source.type(), &type)) return {};
    const TensorView &view = source.view();
    StreamRef stream;
    PyRef array = make(state, function, Shape(view.immediate ? 0 : view.ndim, view.shape), type, options, &stream);
    if (!array) return {};
    Access destination;
    access_of(array_of(array.get()), &destination);
    return copy_into(state, function, source.access(), destination, stream) ? std::move(array) : PyRef();
}

// arange, linspace, eye: NumPy makes the numbers, which are then copied. bfloat16 is made of float32.
PyObject *make_by_numpy(PyObject *module, const char *function, PyObject *args, PyObject *options_of_numpy,
                        const Options &options) noexcept {
    const ModuleState &state = state_of(module);
    if (!ready(module, function)) return nullptr;
    ElementType type;
    if (given(options.dtype)) {
        if (!parse_dtype(state, function, options.dtype, &type)) return nullptr;
        const PyRef dtype = numpy_dtype(state, type == ElementType::bfloat16 ? ElementType::float32 : type);
        if (!dtype || PyDict_SetItemString(options_of_numpy, "dtype", dtype.get()) != 0) return nullptr;
    }
    const PyRef maker = PyRef::steal(PyObject_GetAttrString(state.numpy, function));
    const PyRef numbers = maker ? PyRef::steal(PyObject_Call(maker.get(), args, options_of_numpy)) : PyRef();
    Operand source;
    if (!numbers || !source.read_memory({state, function, "the numbers"}, numbers.get(), false)) return nullptr;
    return from_host(state, function, source, options.dtype, options).release();
}

// Takes our own keywords out of a call that NumPy reads otherwise.
bool split_options(PyObject *keywords, PyObject *rest, Options *options) noexcept {
    if (keywords != nullptr && PyDict_Update(rest, keywords) != 0) return false;
    const auto take = [&](const char *name, PyObject **value) {
        const PyRef key = PyRef::steal(PyUnicode_FromString(name));
        if (!key) return false;
        *value = PyDict_GetItemWithError(rest, key.get());  // borrowed from `keywords` too
        return *value == nullptr ? PyErr_Occurred() == nullptr : PyDict_DelItem(rest, key.get()) == 0;
    };
    return take("dtype", &options->dtype) && take("memory", &options->memory) &&
           take("device", &options->device) && take("stream", &options->stream);
}

PyObject *make_by_numpy(PyObject *module, const char *function, PyObject *args, PyObject *keywords) noexcept {
    const PyRef rest = PyRef::steal(PyDict_New());
    Options options;
    if (!rest || !split_options(keywords, rest.get(), &options)) return nullptr;
    return make_by_numpy(module, function, args, rest.get(), options);
}

PyObject *arange_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return make_by_numpy(module, "arange", args, keywords);
}
PyObject *linspace_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return make_by_numpy(module, "linspace", args, keywords);
}
PyObject *eye_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return make_by_numpy(module, "eye", args, keywords);
}

// --- from other arrays ---

void release_keeper(void *keeper) noexcept {
    if (Py_IsInitialized() == 0) return;  // the interpreter is gone, and with it what the object needs
    const GilHold gil;
    Py_DECREF(static_cast<PyObject *>(keeper));
}

}  // namespace

PyRef adopt_array(const Place &place, const ForeignArray &foreign, PyObject *keeper, PyObject *base) noexcept {
    const ModuleState &state = place.state;
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
    const std::int64_t size = size_of(foreign.type);
    std::int64_t strides[kMaxDims];
    bool aligned =
        reinterpret_cast<std::uintptr_t>(foreign.data) % static_cast<std::uintptr_t>(alignment_of(foreign.type)) ==
        0;
    for (int i = 0; i < foreign.ndim; ++i) {
        if (foreign.shape[i] > 1 && foreign.strides[i] % size != 0) aligned = false;
        strides[i] = foreign.strides[i] / size;
    }
    if (!aligned) {
        PyErr_Format(PyExc_ValueError, "%s: %s is not aligned to its elements of %lld bytes", place.function,
                     place.argument, static_cast<long long>(size));
        return {};
    }
    std::int64_t bytes = 0;
    if (!checked_bytes(foreign.shape, foreign.ndim, static_cast<int>(size), &bytes)) {
        PyErr_Format(PyExc_ValueError, "%s: %s has a negative length, or more elements than memory can hold",
                     place.function, place.argument);
        return {};
    }
    Storage *storage = nullptr;
    PyRef held = PyRef::borrow(keeper);
    Status status =
        Storage::adopt(location.reachable ? location.kind : MemoryKind::device, foreign.data,
                       static_cast<std::size_t>(bytes), location.device, release_keeper, held.get(), &storage);
    if (status == CUKERN_OK) {
        (void)held.release();
        if (foreign.has_producer) status = storage->note(foreign.producer, true);
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

// A copy of an array, of any library, in memory of ours.
PyRef copied(const ModuleState &state, const char *function, PyObject *object, PyObject *dtype,
             const Options &options) noexcept {
    Operand source;
    if (!source.read_memory({state, function, "a"}, object, false)) return {};
    if (source.on_host()) return from_host(state, function, source, dtype, options);
    ElementType type;
    MemoryKind kind = source.access().location.kind;
    if (!element_type_or(state, function, dtype, source.type(), &type) ||
        (given(options.memory) && !parse_memory(function, options.memory, &kind)))
        return {};
    StreamRef stream;
    if (given(options.device) || given(options.stream)) {
        if (!stream_for_new(state, function, options.device, options.stream, &stream)) return {};
    } else if (!choose_stream(state, function, nullptr, source.access().location.device, {&source.access()},
                              &stream)) {
        return {};
    }
    const TensorView &view = source.view();
    PyRef result =
        new_array(state, function, kind, type, view.immediate ? 0 : view.ndim, view.shape, nullptr, stream);
    if (!result) return {};
    Access destination;
    access_of(array_of(result.get()), &destination);
    return copy_into(state, function, source.access(), destination, stream) ? std::move(result) : PyRef();
}

// Whether an Array is what the options ask for.
bool fits(const ModuleState &state, const char *function, const Array *array, const Options &options,
          bool *result) noexcept {
    ElementType type;
    MemoryKind kind = array->kind();
    int device = array->device();
    if (!element_type_or(state, function, options.dtype, array->type, &type) ||
        (given(options.memory) && !parse_memory(function, options.memory, &kind)) ||
        (given(options.device) && !parse_device(state, function, options.device, &device)))
        return false;
    *result = type == array->type && kind == array->kind() && device == array->device();
    return true;
}

// Asks for a capsule and reads it. The producer is asked to be ready for `stream`, if it is given, else for the
// innermost active one, else for its library's own, which needs no order (and a capture could not hold any).
bool import_dlpack(const Place &place, PyObject *object, const TypeRecord &record, PyObject *stream,
                   PyObject *copy, ForeignArray *foreign) noexcept {
    const ModuleState &state = place.state;
    StreamRef consumer;
    dlpack::Device where{};
    Location location;
    if (!stream_for_new(state, place.function, nullptr, stream, &consumer) || !ask_device(place, object, &where) ||
        !locate(place, where, &location))
        return false;
    if (location.reachable && consumer.device != location.device) {
        consumer = {};
        consumer.device = location.device;
    }
    void *handle = nullptr;
    StreamRef active;
    if (location.reachable && record.api != nullptr && !given(stream) && !active_stream(&active) &&
        record.api->current_stream(where.type, where.id, &handle) == 0) {
        if (const Status status = stream_ref(handle, where.id, &consumer); status != CUKERN_OK) {
            raise_status(state, place.function, status);
            return false;
        }
    }
    const PyRef capsule = call_dlpack(state, object, takes_stream(where) ? &consumer : nullptr, copy, nullptr);
    if (!capsule || !read_capsule(place, capsule.get(), foreign)) return false;
    foreign->has_producer = location.reachable;
    foreign->producer = consumer;
    foreign->read_only = foreign->read_only || (record.is_jax && !foreign->is_copy);
    return foreign->is_copy || check_foreign(place, record, object, *foreign);
}

// Another library's array as an Array that shares its memory, which a device reaches.
PyRef shared(const ModuleState &state, const char *function, PyObject *object, const Options &options) noexcept {
    const Place place{state, function, "a"};
    const TypeRecord *known = record_of(const_cast<ModuleState &>(state), object);
    if (known == nullptr) return {};
    const TypeRecord record = *known;
    ForeignArray foreign;
    if (record.protocol == Protocol::cuda) {
        Reading reading;
        if (!read_foreign(place, record, object, reading, false, &foreign)) return {};
        return adopt_array(place, foreign, object, object);
    }
    if (!import_dlpack(place, object, record, options.stream, Py_None, &foreign)) return {};
    return adopt_array(place, foreign, foreign.keeper.get(), object);
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
        if (given(options.dtype)) {  // numbers are checked against the type that is asked for
            ElementType type;
            if (!parse_dtype(state, "asarray", options.dtype, &type)) return nullptr;
            if (type != ElementType::bfloat16) dtype = numpy_dtype(state, type);
        }
        source = PyRef::steal(
            PyArray_FromAny(object, reinterpret_cast<PyArray_Descr *>(dtype.release()), 0, 0, 0, nullptr));
        if (!source) return nullptr;
    } else if (!is_array(state, object) && !PyArray_Check(object)) {
        Operand operand;
        if (!operand.read_memory({state, "asarray", "a"}, object, false)) return nullptr;
        if (operand.family() != Family::number && !operand.on_host()) {
            source = shared(state, "asarray", object, options);
            if (!source) return nullptr;
        }
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
    return copied(state, "asarray", source.get(), options.dtype, options).release();
}

PyObject *copy_method(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"a", "memory", "device", "stream", nullptr};
    PyObject *object = nullptr;
    Options options;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOO:copy", const_cast<char **>(names), &object,
                                    &options.memory, &options.device, &options.stream) == 0)
        return nullptr;
    if (!ready(module, "copy")) return nullptr;
    PyRef source = PyRef::borrow(object);
    if (is_plain(object)) source = PyRef::steal(PyArray_FromAny(object, nullptr, 0, 0, 0, nullptr));
    return source ? copied(state_of(module), "copy", source.get(), nullptr, options).release() : nullptr;
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
        StreamRef consumer;
        if (!stream_for_new(state, "from_dlpack", nullptr, options.stream, &consumer) ||
            !read_capsule(place, object, &foreign))
            return nullptr;
        foreign.producer = consumer;
        foreign.producer.device = foreign.device.id;
    } else {
        const TypeRecord *known = record_of(const_cast<ModuleState &>(state), object);
        if (known == nullptr) return nullptr;
        const TypeRecord record = *known;
        if (!import_dlpack(place, object, record, options.stream, copy, &foreign)) return nullptr;
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
        Access source;
        source.view.data = foreign.data;
        source.view.type = foreign.type;
        source.view.ndim = foreign.ndim;
        for (int i = 0; i < foreign.ndim; ++i) {
            source.view.shape[i] = foreign.shape[i];
            source.view.strides[i] = foreign.strides[i] / size_of(foreign.type);
        }
        StreamRef stream;
        result = make(state, "from_dlpack", Shape(foreign.ndim, foreign.shape), foreign.type, options, &stream);
        if (!result) return nullptr;
        Access destination;
        access_of(array_of(result.get()), &destination);
        return copy_into(state, "from_dlpack", source, destination, stream) ? result.release() : nullptr;
    }
    const bool copies = always && !foreign.is_copy;
    if (!result || (!given(options.device) && !copies)) return result.release();
    bool as_it_is = false;
    if (!fits(state, "from_dlpack", array_of(result.get()), options, &as_it_is)) return nullptr;
    if (as_it_is && !copies) return result.release();
    if (never) {
        PyErr_SetString(PyExc_BufferError, "from_dlpack: copy=False, but x is on another device");
        return nullptr;
    }
    return copied(state, "from_dlpack", result.get(), nullptr, options).release();
}

// --- joined ---

struct Parts {
    Operand *operands;
    Py_ssize_t count;
};

// The element type, memory and device of arrays that are joined.
bool common_place(const char *function, const Parts &parts, ElementType *type, MemoryKind *kind,
                  int *device) noexcept {
    *type = parts.operands[0].type();
    *kind = MemoryKind::pinned;
    *device = -1;
    for (Py_ssize_t i = 0; i < parts.count; ++i) {
        const Operand &part = parts.operands[i];
        *type = promote(*type, part.type());
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
            PyErr_Format(PyExc_ValueError, "%s: the result has more elements than memory can hold", function);
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
    StreamRef stream;
    if (!common_place(function, parts, &type, &kind, &device) || !joined_shape(function, parts, axis, &shape) ||
        !stream_on(state, function, given_stream, device, &stream))
        return {};
    PyRef result = new_array(state, function, kind, type, shape.ndim, shape.lengths, nullptr, stream);
    if (!result) return {};
    Access whole;
    access_of(array_of(result.get()), &whole);
    std::int64_t begin = 0;
    for (Py_ssize_t i = 0; i < parts.count; ++i) {
        const Access &part = parts.operands[i].access();
        Access place = whole;
        place.view.shape[axis] = part.view.shape[axis];
        place.view.data = static_cast<char *>(whole.view.data) + begin * whole.view.strides[axis] * size_of(type);
        begin += part.view.shape[axis];
        if (count_of(place.view) > 0 && !copy_into(state, function, part, place, stream)) return {};
    }
    return result;
}

PyObject *join_arrays(PyObject *module, const char *function, PyObject *args, PyObject *keywords,
                      bool stacks) noexcept {
    static const char *const names[] = {"arrays", "axis", "stream", nullptr};
    PyObject *sequence = nullptr;
    PyObject *axis = nullptr;
    PyObject *stream = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O$O", const_cast<char **>(names), &sequence, &axis,
                                    &stream) == 0)
        return nullptr;
    const ModuleState &state = state_of(module);
    const PyRef tuple = ready(module, function) ? PyRef::steal(PySequence_Tuple(sequence)) : PyRef();
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
            const PyRef expand = PyRef::steal(PyObject_GetAttrString(module, "expand_dims"));
            const PyRef where = axis != nullptr ? PyRef::borrow(axis) : PyRef::steal(PyLong_FromLong(0));
            own = expand && where
                      ? PyRef::steal(PyObject_CallFunctionObjArgs(expand.get(), part, where.get(), nullptr))
                      : PyRef();
        } else if (axis != nullptr && Py_IsNone(axis) != 0) {
            own = PyRef::steal(PyObject_CallMethod(part, "ravel", nullptr));
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
    if (!zero || !parse_axes(function, where, ndim, at, &number)) return nullptr;
    std::unique_ptr<Operand[]> operands(new (std::nothrow) Operand[static_cast<std::size_t>(count)]);
    if (!operands) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; ++i)
        if (!operands[i].read_memory({state, function, "an array"}, PyTuple_GetItem(changed.get(), i), false))
            return nullptr;
    return join(state, function, {operands.get(), count}, at[0], stream).release();
}

PyObject *concat_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return join_arrays(module, "concat", args, keywords, false);
}
PyObject *stack_method(PyObject *module, PyObject *args, PyObject *keywords) {
    return join_arrays(module, "stack", args, keywords, true);
}

#define CUKERN_PLACE_TEXT                                                 \
    "memory : {'device', 'managed', 'pinned'}, optional\n"                \
    "device : int or Device, optional\n    The current one by default.\n" \
    "stream : optional\n    The stream in whose order the memory is taken and written.\n"
#define CUKERN_NEW_DOC(signature, summary, parameters, example)                                                  \
    signature "\n--\n\n" summary "\n\nParameters\n----------\n" parameters CUKERN_PLACE_TEXT                     \
              "\nReturns\n-------\nArray\n\nRaises\n------\nOutOfMemoryError\n    There is not enough memory.\n" \
              "RuntimeError\n    The stream is being captured.\n"                                                \
              "\nExamples\n--------\n>>> import cukern\n" example "\n"
#define CUKERN_SHAPE_TEXT "shape : int or tuple of int\n"
#define CUKERN_DTYPE_TEXT "dtype : optional\n    float64 by default.\n"
#define CUKERN_LIKE_TEXT "a : Array, or another library's array\ndtype : optional\n    That of `a` by default.\n"

}  // namespace

PyMethodDef kCreationMethods[] = {
    {"empty", as_method(empty_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("empty(shape, dtype=None, *, memory=None, device=None, stream=None)",
                    "Return an array whose elements are not set.", CUKERN_SHAPE_TEXT CUKERN_DTYPE_TEXT,
                    ">>> cukern.empty((2, 3), 'float32').nbytes\n24")},
    {"zeros", as_method(zeros_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("zeros(shape, dtype=None, *, memory=None, device=None, stream=None)",
                    "Return an array of zeros.", CUKERN_SHAPE_TEXT CUKERN_DTYPE_TEXT,
                    ">>> cukern.zeros(2)\nArray([0., 0.])")},
    {"ones", as_method(ones_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("ones(shape, dtype=None, *, memory=None, device=None, stream=None)",
                    "Return an array of ones.", CUKERN_SHAPE_TEXT CUKERN_DTYPE_TEXT,
                    ">>> cukern.ones(2, 'int8')\nArray([1, 1], dtype=int8)")},
    {"full", as_method(full_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("full(shape, fill_value, dtype=None, *, memory=None, device=None, stream=None)",
                    "Return an array of one number.",
                    CUKERN_SHAPE_TEXT
                    "fill_value : number\ndtype : optional\n    That of the number by default.\n",
                    ">>> cukern.full(2, 7)\nArray([7, 7])")},
    {"empty_like", as_method(empty_like_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("empty_like(a, dtype=None, *, memory=None, device=None, stream=None)",
                    "Return an array of the shape of another one, whose elements are not set.", CUKERN_LIKE_TEXT,
                    ">>> cukern.empty_like(cukern.ones((2, 3))).shape\n(2, 3)")},
    {"zeros_like", as_method(zeros_like_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("zeros_like(a, dtype=None, *, memory=None, device=None, stream=None)",
                    "Return an array of zeros of the shape of another one.", CUKERN_LIKE_TEXT,
                    ">>> cukern.zeros_like(cukern.ones(2))\nArray([0., 0.])")},
    {"ones_like", as_method(ones_like_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("ones_like(a, dtype=None, *, memory=None, device=None, stream=None)",
                    "Return an array of ones of the shape of another one.", CUKERN_LIKE_TEXT,
                    ">>> cukern.ones_like(cukern.zeros(2))\nArray([1., 1.])")},
    {"full_like", as_method(full_like_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("full_like(a, fill_value, dtype=None, *, memory=None, device=None, stream=None)",
                    "Return an array of one number of the shape of another one.",
                    CUKERN_LIKE_TEXT "fill_value : number\n",
                    ">>> cukern.full_like(cukern.zeros(2), 7)\nArray([7., 7.])")},
    {"arange", as_method(arange_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("arange(start, /, stop=None, step=1, *, dtype=None, memory=None, device=None, stream=None)",
                    "Return evenly spaced numbers of a half-open interval; they are made by numpy.arange.",
                    "start, stop, step : number\n    As in numpy.arange.\ndtype : optional\n",
                    ">>> cukern.arange(3)\nArray([0, 1, 2])")},
    {"linspace", as_method(linspace_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC(
         "linspace(start, stop, /, num=50, *, endpoint=True, dtype=None, memory=None, device=None, stream=None)",
         "Return evenly spaced numbers of an interval; they are made by numpy.linspace.",
         "start, stop, num, endpoint\n    As in numpy.linspace.\ndtype : optional\n",
         ">>> cukern.linspace(0, 1, 3)\nArray([0. , 0.5, 1. ])")},
    {"eye", as_method(eye_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("eye(n, m=None, /, *, k=0, dtype=None, memory=None, device=None, stream=None)",
                    "Return a matrix with ones on a diagonal; it is made by numpy.eye.",
                    "n, m : int\n    Rows and columns; `m` is `n` by default.\nk : int\n    Which "
                    "diagonal.\ndtype : optional\n",
                    ">>> cukern.eye(2)\nArray([[1., 0.],\n       [0., 1.]])")},
    {"asarray", as_method(asarray_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC(
         "asarray(a, dtype=None, *, memory=None, device=None, stream=None, copy=None)",
         "Return an Array of what is given: itself, a view of another library's memory, or a copy.\n\n"
         "What a device reaches already (another library's array on a GPU) is shared. NumPy arrays, buffers,\n"
         "lists, numbers and other arrays on the host are copied.",
         "a : array of any kind, buffer, list or number\ndtype : optional\n    That of `a` by default.\n"
         "copy : bool, optional\n    True always copies; False raises ValueError where a copy is needed.\n",
         ">>> cukern.asarray([1, 2, 3], 'float32')\nArray([1., 2., 3.], dtype=float32)")},
    {"copy", as_method(copy_method), METH_VARARGS | METH_KEYWORDS,
     CUKERN_NEW_DOC("copy(a, *, memory=None, device=None, stream=None)", "Return a copy of an array as Array.",
                    "a : array of any kind, buffer, list or number\n",
                    ">>> a = cukern.zeros(2)\n>>> b = cukern.copy(a)\n>>> b += 1\n>>> a\nArray([0., 0.])")},
    {"from_dlpack", as_method(from_dlpack_method), METH_VARARGS | METH_KEYWORDS,
     "from_dlpack(x, /, *, device=None, copy=None, stream=None)\n--\n\nReturn an Array of another library's "
     "array, by "
     "DLPack.\n\nMemory that a device reaches is shared, on the host back-end that of the CPU too. With a GPU, "
     "what is "
     "in\nhost memory is copied to it.\n\n"
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
    {"concat", as_method(concat_method), METH_VARARGS | METH_KEYWORDS,
     "concat(arrays, axis=0, *, stream=None)\n--\n\nReturn Arrays put one after the other along an axis.\n\n"
     "Parameters\n----------\narrays : sequence of Array\n    They agree in all lengths but the axis's.\n"
     "axis : int or None\n    None joins the elements of all, in C order.\n"
     "stream : optional\n\nReturns\n-------\nArray\n    Of the promoted element type.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.concat([cukern.zeros(2), cukern.ones(1)])\nArray([0., 0., "
     "1.])\n"},
    {"stack", as_method(stack_method), METH_VARARGS | METH_KEYWORDS,
     "stack(arrays, axis=0, *, stream=None)\n--\n\nReturn Arrays put one after the other along a new axis.\n\n"
     "Parameters\n----------\narrays : sequence of Array\n    They have one shape.\naxis : int\n    Where the new "
     "axis is.\n"
     "stream : optional\n\nReturns\n-------\nArray\n    Of the promoted element type.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.stack([cukern.zeros(2), cukern.ones(2)])\n"
     "Array([[0., 0.],\n       [1., 1.]])\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
