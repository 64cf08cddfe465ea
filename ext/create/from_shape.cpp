// New Arrays: empty, filled, from numbers.
#include "base/python.h"

#include "create/make.h"

#include <cstring>

#include "base/backend.h"
#include "base/methods.h"
#include "base/signature.h"
#include "streams/streams.h"
#include "types/element_types.h"
#include "view/shapes.h"

namespace cukern::py {

bool choose_backend(PyObject *module, const char *function) noexcept {
    Backend backend;
    return ensure_backend(state_of(module), function, &backend);
}

bool element_type_or(const ModuleState &state, const char *function, PyObject *dtype, ElementType otherwise,
                     ElementType *type) noexcept {
    *type = otherwise;
    return !is_given(dtype) || parse_dtype(state, function, dtype, type);
}

PyRef from_host(const ModuleState &state, const char *function, Operand &source, PyObject *dtype,
                MemoryOrder order, const Options &options) noexcept {
    ElementType type;
    if (!element_type_or(state, function, dtype, source.type(), &type)) return {};
    MemoryKind kind;
    HeldStream stream;
    if (!parse_memory(function, options.memory, &kind) ||
        !stream_for_new(state, function, options.device, options.stream, &stream))
        return {};
    return new_copy(state, function, source, kind, type, order, stream);
}

namespace {

// A new Array as the options say, and the stream that it is made on.
PyRef make(const ModuleState &state, const char *function, const Shape &shape, ElementType type,
           const Options &options, HeldStream *stream) noexcept {
    MemoryKind kind;
    if (!parse_memory(function, options.memory, &kind) ||
        !stream_for_new(state, function, options.device, options.stream, stream))
        return {};
    return new_array(state, function, kind, type, shape.ndim, shape.lengths, nullptr, *stream);
}

// An array filled with a number.
PyRef make_filled(const ModuleState &state, const char *function, const Shape &shape, ElementType type,
                  PyObject *number, const Options &options) noexcept {
    Immediate value{};
    ElementType own = type;
    if (!element_from(function, number, type, true, &own, &value)) return {};
    HeldStream stream;
    PyRef array = make(state, function, shape, type, options, &stream);
    if (!array) return {};
    return fill_with(state, function, array_of(array.get()), value, own, stream) ? std::move(array) : PyRef();
}

#define CUKERN_BY_SHAPE "(shape, dtype=None, *, memory=None, device=None, stream=None)"
#define CUKERN_FILLED "(shape, fill_value, dtype=None, *, memory=None, device=None, stream=None)"
#define CUKERN_LIKE "(a, dtype=None, *, memory=None, device=None, stream=None)"
#define CUKERN_FILLED_LIKE "(a, fill_value, dtype=None, *, memory=None, device=None, stream=None)"

constexpr std::size_t kFewBytes = 4096;  // which take less time to set than a launch

// Of every element type zero is all bits zero.
bool set_to_zero(const ModuleState &state, const char *function, Array *array, const StreamRef &stream) noexcept {
    Storage *storage = array->storage;
    if (storage->backend() == Backend::host && storage->bytes() <= kFewBytes) {
        if (storage->bytes() > 0) std::memset(array->data, 0, storage->bytes());
        return true;
    }
    return fill_with(state, function, array, Immediate{}, array->type, stream);
}

Options options_of(PyObject *const *arguments) noexcept {
    return {arguments[0], arguments[1], arguments[2], arguments[3]};
}

// An array whose elements are 0 or 1; below 0: not set.
PyRef make_of(const ModuleState &state, const char *function, const Shape &shape, ElementType type, long number,
              const Options &options) noexcept {
    if (number > 0) {
        const PyRef value = PyRef::steal(PyLong_FromLong(number));
        return value ? make_filled(state, function, shape, type, value.get(), options) : PyRef();
    }
    HeldStream stream;
    PyRef array = make(state, function, shape, type, options, &stream);
    if (!array || number < 0) return array;
    return set_to_zero(state, function, array_of(array.get()), stream) ? std::move(array) : PyRef();
}

// empty, zeros, ones.
PyObject *make_by_shape(PyObject *module, const char *function, long number, PyObject *const *values,
                        Py_ssize_t count, PyObject *names) noexcept {
    static constexpr Signature kSignature(CUKERN_BY_SHAPE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse(function, nullptr, values, count, names, arguments)) return nullptr;
    const ModuleState &state = state_of(module);
    const Options options = options_of(arguments + 1);
    Shape shape;
    ElementType type;
    // Such a call runs no code that could call us again, and current_device tells of a back-end that is lost.
    const bool is_plain = options.dtype == nullptr && options.memory == nullptr && options.device == nullptr &&
                          options.stream == nullptr && PyLong_CheckExact(arguments[0]);
    const bool is_checked = state.backend_ready && is_plain;
    if ((!is_checked && !choose_backend(module, function)) || !parse_shape(function, arguments[0], &shape) ||
        !element_type_or(state, function, options.dtype, ElementType::float64, &type))
        return nullptr;
    return make_of(state, function, shape, type, number, options).release();
}

PyObject *empty_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return make_by_shape(module, "empty", -1, values, count, names);
}
PyObject *zeros_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return make_by_shape(module, "zeros", 0, values, count, names);
}
PyObject *ones_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return make_by_shape(module, "ones", 1, values, count, names);
}

// The element type that NumPy gives a number.
bool type_of_number(const ModuleState &state, const char *function, PyObject *number, ElementType *type) noexcept {
    if (is_number(number)) {
        *type = weak_type(weak_of(number));
        int overflow = 0;
        if (*type == ElementType::int64) PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow > 0) *type = ElementType::uint64;  // which element_from checks
        return true;
    }
    if (is_array(state, number)) {
        *type = array_of(number)->type;
        return true;
    }
    const PyRef array = PyRef::steal(PyArray_FromAny(number, nullptr, 0, 0, 0, nullptr));
    if (!array) return false;
    if (element_type_of(state, PyArray_DESCR(as_array(array)), type)) return true;
    PyErr_Format(PyExc_TypeError, "%s: %R is no number of a supported element type: %s", function, number,
                 all_element_types());
    return false;
}

PyObject *full_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_FILLED);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("full", nullptr, values, count, names, arguments)) return nullptr;
    PyObject *const lengths = arguments[0];
    PyObject *const value = arguments[1];
    const Options options = options_of(arguments + 2);
    const ModuleState &state = state_of(module);
    Shape shape;
    ElementType type;
    if (!choose_backend(module, "full") || !parse_shape("full", lengths, &shape)) return nullptr;
    if (is_given(options.dtype) ? !parse_dtype(state, "full", options.dtype, &type)
                                : !type_of_number(state, "full", value, &type))
        return nullptr;
    return make_filled(state, "full", shape, type, value, options).release();
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
    if (!is_given(options->memory)) {
        *memory = PyRef::steal(PyUnicode_FromString(name_of(array_of(object)->kind())));
        options->memory = memory->get();
    }
    if (!is_given(options->device) && !is_given(options->stream)) {
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
    const ModuleState &state = state_of(module);
    if (!choose_backend(module, function) ||
        !read_like(state, function, object, &shape, &type, &options, &memory, &device))
        return nullptr;
    return (value != nullptr ? make_filled(state, function, shape, type, value, options)
                             : make_of(state, function, shape, type, number, options))
        .release();
}

PyObject *make_like(PyObject *module, const char *function, long number, PyObject *const *values, Py_ssize_t count,
                    PyObject *names) noexcept {
    static constexpr Signature kSignature(CUKERN_LIKE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse(function, nullptr, values, count, names, arguments)) return nullptr;
    return make_like(module, function, arguments[0], nullptr, number, options_of(arguments + 1));
}

PyObject *empty_like_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return make_like(module, "empty_like", -1, values, count, names);
}
PyObject *zeros_like_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return make_like(module, "zeros_like", 0, values, count, names);
}
PyObject *ones_like_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return make_like(module, "ones_like", 1, values, count, names);
}

PyObject *full_like_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_FILLED_LIKE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("full_like", nullptr, values, count, names, arguments)) return nullptr;
    return make_like(module, "full_like", arguments[0], arguments[1], -1, options_of(arguments + 2));
}

#define CUKERN_ARANGE "(start=None, stop=None, step=1, dtype=None, *, memory=None, device=None, stream=None)"
#define CUKERN_LINSPACE \
    "(start, stop, num=50, endpoint=True, *, dtype=None, memory=None, device=None, stream=None)"
#define CUKERN_EYE "(N, M=None, k=0, dtype=None, *, memory=None, device=None, stream=None)"

// arange, linspace, eye: NumPy makes the numbers, of the first `count_of_numpy` arguments, which are then copied.
// bfloat16 is made of float32.
PyObject *make_by_numpy(PyObject *module, const char *function, const Signature &signature, int count_of_numpy,
                        PyObject *const *values, Py_ssize_t count, PyObject *names) noexcept {
    PyObject *arguments[Signature::kMost];
    if (!signature.parse(function, nullptr, values, count, names, arguments)) return nullptr;
    const ModuleState &state = state_of(module);
    const Options options = options_of(arguments + count_of_numpy);
    // arange(3) and arange(start=3) are not the same to NumPy.
    const PyRef first = PyRef::steal(count > 0 ? PyTuple_Pack(1, arguments[0]) : PyTuple_New(0));
    const PyRef rest = PyRef::steal(PyDict_New());
    if (!first || !rest || !choose_backend(module, function)) return nullptr;
    for (int i = count > 0 ? 1 : 0; i < count_of_numpy; ++i)
        if (arguments[i] != nullptr && PyDict_SetItemString(rest.get(), signature.name(i), arguments[i]) != 0)
            return nullptr;
    ElementType type;
    if (is_given(options.dtype)) {
        if (!parse_dtype(state, function, options.dtype, &type)) return nullptr;
        const PyRef dtype = numpy_dtype(state, type == ElementType::bfloat16 ? ElementType::float32 : type);
        if (!dtype || PyDict_SetItemString(rest.get(), "dtype", dtype.get()) != 0) return nullptr;
    }
    const PyRef maker = PyRef::steal(PyObject_GetAttrString(state.numpy, function));
    const PyRef numbers = maker ? PyRef::steal(PyObject_Call(maker.get(), first.get(), rest.get())) : PyRef();
    Operand source;
    if (!numbers || !source.read_memory({state, function, "the numbers"}, numbers.get(), false)) return nullptr;
    return from_host(state, function, source, options.dtype, MemoryOrder::c, options).release();
}

PyObject *arange_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ARANGE);
    return make_by_numpy(module, "arange", kSignature, 3, values, count, names);
}
PyObject *linspace_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_LINSPACE);
    return make_by_numpy(module, "linspace", kSignature, 4, values, count, names);
}
PyObject *eye_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_EYE);
    return make_by_numpy(module, "eye", kSignature, 3, values, count, names);
}

#define CUKERN_SHAPE_TEXT "shape : int or tuple of int\n"
#define CUKERN_DTYPE_TEXT "dtype : optional\n    float64 by default.\n"
#define CUKERN_LIKE_TEXT "a : Array, or another library's array\ndtype : optional\n    That of `a` by default.\n"

}  // namespace

PyMethodDef kCreationMethods[] = {
    {"empty", as_method(empty_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("empty" CUKERN_BY_SHAPE, "Return an array whose elements are not set.",
                    CUKERN_SHAPE_TEXT CUKERN_DTYPE_TEXT, ">>> cukern.empty((2, 3), 'float32').nbytes\n24")},
    {"zeros", as_method(zeros_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("zeros" CUKERN_BY_SHAPE, "Return an array of zeros.", CUKERN_SHAPE_TEXT CUKERN_DTYPE_TEXT,
                    ">>> cukern.zeros(2)\nArray([0., 0.])")},
    {"ones", as_method(ones_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("ones" CUKERN_BY_SHAPE, "Return an array of ones.", CUKERN_SHAPE_TEXT CUKERN_DTYPE_TEXT,
                    ">>> cukern.ones(2, 'int8')\nArray([1, 1], dtype=int8)")},
    {"full", as_method(full_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("full" CUKERN_FILLED, "Return an array of one number.",
                    CUKERN_SHAPE_TEXT
                    "fill_value : number\ndtype : optional\n    That of the number by default.\n",
                    ">>> cukern.full(2, 7)\nArray([7, 7])")},
    {"empty_like", as_method(empty_like_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("empty_like" CUKERN_LIKE,
                    "Return an array of the shape of another one, whose elements are not set.", CUKERN_LIKE_TEXT,
                    ">>> cukern.empty_like(cukern.ones((2, 3))).shape\n(2, 3)")},
    {"zeros_like", as_method(zeros_like_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("zeros_like" CUKERN_LIKE, "Return an array of zeros of the shape of another one.",
                    CUKERN_LIKE_TEXT, ">>> cukern.zeros_like(cukern.ones(2))\nArray([0., 0.])")},
    {"ones_like", as_method(ones_like_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("ones_like" CUKERN_LIKE, "Return an array of ones of the shape of another one.",
                    CUKERN_LIKE_TEXT, ">>> cukern.ones_like(cukern.zeros(2))\nArray([1., 1.])")},
    {"full_like", as_method(full_like_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("full_like" CUKERN_FILLED_LIKE, "Return an array of one number of the shape of another one.",
                    CUKERN_LIKE_TEXT "fill_value : number\n",
                    ">>> cukern.full_like(cukern.zeros(2), 7)\nArray([7., 7.])")},
    {"arange", as_method(arange_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("arange" CUKERN_ARANGE,
                    "Return evenly spaced numbers of a half-open interval; they are made by numpy.arange.",
                    "start, stop, step : number\n    As in numpy.arange.\ndtype : optional\n",
                    ">>> cukern.arange(3)\nArray([0, 1, 2])")},
    {"linspace", as_method(linspace_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("linspace" CUKERN_LINSPACE,
                    "Return evenly spaced numbers of an interval; they are made by numpy.linspace.",
                    "start, stop, num, endpoint\n    As in numpy.linspace.\ndtype : optional\n",
                    ">>> cukern.linspace(0, 1, 3)\nArray([0. , 0.5, 1. ])")},
    {"eye", as_method(eye_method), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_NEW_DOC("eye" CUKERN_EYE, "Return a matrix with ones on a diagonal; it is made by numpy.eye.",
                    "N, M : int\n    Rows and columns; `M` is `N` by default.\nk : int\n    Which "
                    "diagonal.\ndtype : optional\n",
                    ">>> cukern.eye(2)\nArray([[1., 0.],\n       [0., 1.]])")},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
