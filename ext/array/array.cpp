// cukern.Array: the object, its memory, its type.
#include "base/python.h"

#include "array/array.h"

#include <cstddef>
#include <utility>

#include "array/signatures.h"
#include "base/errors.h"
#include "base/methods.h"
#include "base/signature.h"
#include "ops/operations.h"
#include "streams/streams.h"
#include "types/element_types.h"
#include "view/shapes.h"

#include "cukern/graph.h"

namespace cukern::py {

void view_of(const Array *array, TensorView *view) noexcept {
    view->data = array->data;
    view->type = array->type;
    view->immediate = false;
    view->ndim = array->ndim;
    for (int i = 0; i < array->ndim; ++i) {
        view->shape[i] = array->shape()[i];
        view->strides[i] = array->strides()[i];
    }
}

void tracked_view_of(const Array *array, TrackedView *access) noexcept {
    view_of(array, &access->view);
    access->location = {true, array->kind(), array->device()};
    access->storage = array->storage;
}

bool is_c_contiguous(int ndim, const std::int64_t *shape, const std::int64_t *strides) noexcept {
    std::int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; --i) {
        if (shape[i] == 0) return true;
        if (shape[i] != 1 && strides[i] != stride) {
            for (int j = 0; j < i; ++j)
                if (shape[j] == 0) return true;
            return false;
        }
        stride *= shape[i];
    }
    return true;
}

bool is_f_contiguous(int ndim, const std::int64_t *shape, const std::int64_t *strides) noexcept {
    std::int64_t stride = 1;
    for (int i = 0; i < ndim; ++i) {
        if (shape[i] == 0) return true;
        if (shape[i] != 1 && strides[i] != stride) {
            for (int j = i + 1; j < ndim; ++j)
                if (shape[j] == 0) return true;
            return false;
        }
        stride *= shape[i];
    }
    return true;
}

PyRef array_over(const ModuleState &state, Storage *storage, char *data, ElementType type, int ndim,
                 const std::int64_t *shape, const std::int64_t *strides, PyObject *base, bool read_only) noexcept {
    auto *own_type = reinterpret_cast<PyTypeObject *>(state.array_type);
    Array *array = array_of(PyType_GenericAlloc(own_type, static_cast<Py_ssize_t>(2) * ndim));
    if (array == nullptr) {
        storage->release();
        return {};
    }
    array->storage = storage;
    array->base = PyRef::borrow(base).release();
    array->weak_references = nullptr;
    array->data = data;
    array->type = type;
    array->ndim = static_cast<std::int16_t>(ndim);
    array->read_only = read_only;
    for (int i = 0; i < ndim; ++i) array->shape()[i] = shape[i];
    if (strides != nullptr) {
        for (int i = 0; i < ndim; ++i) array->strides()[i] = strides[i];
    } else {
        std::int64_t stride = 1;
        for (int i = ndim - 1; i >= 0; --i) {
            array->strides()[i] = stride;
            stride *= shape[i] > 0 ? shape[i] : 1;
        }
    }
    return PyRef::steal(object_of(array));
}

PyRef array_view(Array *array, char *data, int ndim, const std::int64_t *shape,
                 const std::int64_t *strides) noexcept {
    array->storage->retain();
    // The base is the array that the memory was made with, not the view of a view.
    PyObject *self = object_of(array);
    PyObject *base = array->base != nullptr && Py_TYPE(array->base) == Py_TYPE(self) ? array->base : self;
    return array_over(state_of_type(self), array->storage, data, array->type, ndim, shape, strides, base,
                      array->read_only);
}

namespace {

Status allocate_from_driver(MemoryKind kind, std::size_t size, const StreamRef &stream,
                            Storage **storage) noexcept {
    const GilRelease released;
    return Storage::allocate(kind, size, stream, false, storage);
}

}  // namespace

namespace {

thread_local bool g_makes_temporaries = false;

}  // namespace

TemporaryArrays::TemporaryArrays() noexcept : before_(std::exchange(g_makes_temporaries, true)) {}
TemporaryArrays::~TemporaryArrays() { g_makes_temporaries = before_; }

PyRef new_array(const ModuleState &state, const char *function, MemoryKind kind, ElementType type, int ndim,
                const std::int64_t *shape, const std::int64_t *strides, const StreamRef &stream) noexcept {
    std::int64_t bytes = 0;
    if (!checked_size(function, "an array", ndim, shape, size_of(type), &bytes)) return {};
    release_finished();  // which may run code of Python
    bool capturing = false;
    Status status = stream_is_capturing(stream, &capturing);
    const bool is_foreign = status == CUKERN_OK && capturing && Graph::captured_on(stream) == nullptr;
    const bool is_of_call = is_foreign && g_makes_temporaries && kind == MemoryKind::device;
    if (is_foreign && !is_of_call) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s: the stream is being captured, and a new array's memory would be used again after the "
                     "capture; make the array before it and pass it as out=",
                     function);
        return {};
    }
    Storage *storage = nullptr;
    const auto size = static_cast<std::size_t>(bytes);
    const auto from_driver = [&] {
        if (is_of_call) return Storage::allocate_in_graph(size, stream, &storage);
        Graph *const graph = Graph::captured_on(stream);  // which a collection of garbage may have ended
        return graph != nullptr ? graph->allocate(kind, size, stream, &storage)
                                : allocate_from_driver(kind, size, stream, &storage);
    };
    if (status == CUKERN_OK && !capturing) status = Storage::allocate(kind, size, stream, true, &storage);
    if (status == CUKERN_OK && storage == nullptr) status = from_driver();
    if (status == CUKERN_OUT_OF_MEMORY && collect_garbage()) status = from_driver();
    if (status != CUKERN_OK) {
        raise_status(state, function, status);
        return {};
    }
    return array_over(state, storage, static_cast<char *>(storage->data()), type, ndim, shape, strides, nullptr,
                      false);
}

bool fill_with(const ModuleState &state, const char *function, Array *array, const Immediate &value,
               ElementType type, const StreamRef &stream) noexcept {
    TrackedView source;
    source.view.immediate = true;
    source.view.type = type;
    source.view.value = value;
    source.location.reachable = true;
    TrackedView destination;
    tracked_view_of(array, &destination);
    return copy_into(state, function, source, destination, stream);
}

namespace {

void array_dealloc(PyObject *self) {
    Array *array = array_of(self);
    if (array->weak_references != nullptr) PyObject_ClearWeakRefs(self);
    PyTypeObject *type = Py_TYPE(self);
    if (array->storage != nullptr) array->storage->release();
    Py_CLEAR(array->base);
    PyObject_Free(self);
    Py_DECREF(type);
}

}  // namespace

bool is_own_array(PyObject *object) noexcept {
    return PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) == reinterpret_cast<void *>(array_dealloc);
}

namespace {

PyObject *get_shape(PyObject *self, void *) {
    return tuple_of(array_of(self)->ndim, array_of(self)->shape(), 1).release();
}
PyObject *get_strides(PyObject *self, void *) {
    const Array *array = array_of(self);
    return tuple_of(array->ndim, array->strides(), size_of(array->type)).release();
}
PyObject *get_dtype(PyObject *self, void *) {
    return dtype_of(state_of_type(self), array_of(self)->type).release();
}
PyObject *get_ndim(PyObject *self, void *) { return PyLong_FromLong(array_of(self)->ndim); }
PyObject *get_size(PyObject *self, void *) { return PyLong_FromLongLong(array_of(self)->size()); }
PyObject *get_nbytes(PyObject *self, void *) {
    return PyLong_FromLongLong(array_of(self)->size() * size_of(array_of(self)->type));
}
PyObject *get_itemsize(PyObject *self, void *) { return PyLong_FromLong(size_of(array_of(self)->type)); }
PyObject *get_device(PyObject *self, void *) {
    return make_device(state_of_type(self), array_of(self)->device()).release();
}
PyObject *get_memory(PyObject *self, void *) { return PyUnicode_FromString(name_of(array_of(self)->kind())); }
PyObject *get_transposed(PyObject *self, void *) { return array_transpose(self, nullptr); }
PyObject *get_matrix_transposed(PyObject *self, void *) { return array_matrix_transpose("mT", self); }
PyObject *get_base(PyObject *self, void *) {
    PyObject *base = array_of(self)->base;
    return PyRef::borrow(base == nullptr ? Py_None : base).release();
}
PyObject *get_flags(PyObject *self, void *) {
    const Array *array = array_of(self);
    const bool c = is_c_contiguous(array->ndim, array->shape(), array->strides());
    const bool f = is_f_contiguous(array->ndim, array->shape(), array->strides());
    const bool owns = array->base == nullptr;
    return Py_BuildValue("{s:O,s:O,s:O,s:O}", "C_CONTIGUOUS", c ? Py_True : Py_False, "F_CONTIGUOUS",
                         f ? Py_True : Py_False, "OWNDATA", owns ? Py_True : Py_False, "WRITEABLE",
                         array->read_only ? Py_False : Py_True);
}

PyMemberDef kArrayMembers[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Array, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyObject *array_new(PyTypeObject *, PyObject *, PyObject *) {
    PyErr_SetString(PyExc_TypeError,
                    "cukern.Array is not called; make arrays with cukern.asarray, empty, zeros, ...");
    return nullptr;
}

constexpr const char *kArrayDoc =
    "A strided array in memory of a device, in managed memory, or in pinned host memory.\n\n"
    "Made by `asarray`, `empty`, `zeros`, `ones`, `full`, `arange`, `linspace`, `eye`, `from_dlpack` and by\n"
    "operations. Memory is shared with other libraries through DLPack, ``__cuda_array_interface__`` and, for "
    "managed\n"
    "and pinned memory, the buffer protocol.\n\n"
    "Examples\n--------\n>>> import cukern\n>>> a = cukern.asarray([[1.0, 2.0], [3.0, 4.0]])\n"
    ">>> a + a\nArray([[2., 4.],\n       [6., 8.]])\n";

// NOLINTBEGIN(cppcoreguidelines-interfaces-global-init): addresses of tables are constants
PyType_Slot kArraySlots[] = {
    {Py_tp_doc, const_cast<char *>(kArrayDoc)},
    {Py_tp_new, reinterpret_cast<void *>(array_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(array_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(array_repr)},
    {Py_tp_hash, reinterpret_cast<void *>(PyObject_HashNotImplemented)},
    {Py_tp_richcompare, reinterpret_cast<void *>(array_compare)},
    {Py_tp_iter, reinterpret_cast<void *>(array_iterate)},
    {Py_tp_methods, kArrayMethods},
    {Py_tp_getset, kArrayAttributes},
    {Py_tp_members, kArrayMembers},
    {Py_mp_length, reinterpret_cast<void *>(array_length)},
    {Py_sq_length, reinterpret_cast<void *>(array_length)},
    {Py_sq_contains, reinterpret_cast<void *>(array_contains)},
    {Py_sq_item, reinterpret_cast<void *>(array_item_at)},  // for iteration, and what asks for a sequence
    {Py_mp_subscript, reinterpret_cast<void *>(array_subscript)},
    {Py_mp_ass_subscript, reinterpret_cast<void *>(array_assign_subscript)},
    {Py_bf_getbuffer, reinterpret_cast<void *>(array_get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void *>(array_release_buffer)},
    {Py_nb_bool, reinterpret_cast<void *>(array_bool)},
    {Py_nb_int, reinterpret_cast<void *>(array_int)},
    {Py_nb_float, reinterpret_cast<void *>(array_float)},
    {Py_nb_index, reinterpret_cast<void *>(array_index)},
#define CUKERN_OPERATOR(name, op)                           \
    {Py_nb_##name, reinterpret_cast<void *>(array_##name)}, \
        {Py_nb_inplace_##name, reinterpret_cast<void *>(array_i##name)},
    CUKERN_BINARY_OPERATORS(CUKERN_OPERATOR)
#undef CUKERN_OPERATOR
#define CUKERN_OPERATOR(name, op) {Py_nb_##name, reinterpret_cast<void *>(array_##name)},
        CUKERN_UNARY_OPERATORS(CUKERN_OPERATOR)
#undef CUKERN_OPERATOR
            {Py_nb_power, reinterpret_cast<void *>(array_power)},
    {Py_nb_inplace_power, reinterpret_cast<void *>(array_ipower)},
    {Py_nb_matrix_multiply, reinterpret_cast<void *>(array_matmul)},
    {Py_nb_inplace_matrix_multiply, reinterpret_cast<void *>(array_imatmul)},
    {0, nullptr},
};
// NOLINTEND(cppcoreguidelines-interfaces-global-init)

// Not immutable: torch and others look for attributes that are set on the type.
PyType_Spec kArraySpec = {"cukern.Array", offsetof(Array, dimensions), sizeof(std::int64_t), Py_TPFLAGS_DEFAULT,
                          kArraySlots};

}  // namespace

PyGetSetDef kArrayAttributes[] = {
    {"shape", get_shape, nullptr, "Lengths of the dimensions.", nullptr},
    {"strides", get_strides, nullptr, "Bytes from an element to the next one of each dimension.", nullptr},
    {"dtype", get_dtype, nullptr, "The element type: a NumPy dtype, or cukern.bfloat16.", nullptr},
    {"ndim", get_ndim, nullptr, "The number of dimensions.", nullptr},
    {"size", get_size, nullptr, "The number of elements.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of an element.", nullptr},
    {"device", get_device, nullptr, "The cukern.Device that the memory belongs to.", nullptr},
    {"memory", get_memory, nullptr, "``'device'``, ``'managed'`` or ``'pinned'``.", nullptr},
    {"T", get_transposed, nullptr, "A view with the dimensions in the opposite order.", nullptr},
    {"mT", get_matrix_transposed, nullptr, "A view with the last two dimensions swapped.", nullptr},
    {"base", get_base, nullptr, "The array that this is a view of, the foreign owner of its memory, or None.",
     nullptr},
    {"flags", get_flags, nullptr, "C_CONTIGUOUS, F_CONTIGUOUS, OWNDATA and WRITEABLE, as a dict.", nullptr},
    {"__cuda_array_interface__", array_cuda_interface, nullptr,
     "The CUDA array interface, version 3. AttributeError on the host back-end.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

namespace {

// The array API standard's; its versions from 2021.12 to 2024.12 ask nothing else of us.
PyObject *array_namespace(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ARRAY_NAMESPACE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("__array_namespace__", self, values, count, names, arguments)) return nullptr;
    PyObject *const version = arguments[1];
    bool known = !is_given(version);
    for (const char *each : {"2021.12", "2022.12", "2023.12", "2024.12"})
        known = known || (PyUnicode_Check(version) && PyUnicode_CompareWithASCIIString(version, each) == 0);
    if (!known) {
        PyErr_Format(PyExc_ValueError,
                     "__array_namespace__: api_version is %R; expected None or '2021.12' to '2024.12'", version);
        return nullptr;
    }
    PyObject *module = PyDict_GetItemString(state_of_type(self).modules, "cukern");
    if (module == nullptr)
        PyErr_SetString(PyExc_RuntimeError, "__array_namespace__: cukern is not in sys.modules");
    return module == nullptr ? nullptr : PyRef::borrow(module).release();
}

template <Op op>
PyObject *array_reduction(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return reduce_array(op, self, values, count, names);
}

}  // namespace

#define CUKERN_METHOD_binary(id, rule)
#define CUKERN_METHOD_scalar(id, rule)
#define CUKERN_METHOD_unary(id, rule)
#define CUKERN_METHOD_choice(id, rule)
#define CUKERN_METHOD_axpy(id, rule)
#define CUKERN_METHOD_reduction(id, rule)                                    \
    {#id, as_method(array_reduction<Op::id>), METH_FASTCALL | METH_KEYWORDS, \
     #id CUKERN_REDUCTION_PARAMETERS("$self", rule) "\n--\n\n`cukern." #id "` of this array."},

PyMethodDef kArrayMethods[] = {
#define CUKERN_OP(id, kind, types, rule, doc) CUKERN_METHOD_##kind(id, rule)
#include "cukern/ops.def"
#undef CUKERN_OP
    {"__array_namespace__", as_method(array_namespace), METH_FASTCALL | METH_KEYWORDS,
     "__array_namespace__" CUKERN_ARRAY_NAMESPACE "\n--\n\nReturn cukern, whose functions take this array."},
    {"reshape", as_method(array_reshape), METH_VARARGS | METH_KEYWORDS,
     "reshape($self, /, *shape, copy=None)\n--\n\nReturn an array of the same elements, in C order, with another "
     "shape.\n\n"
     "A view where the strides allow it; else a copy, or ValueError with ``copy=False``."},
    {"ravel", array_ravel, METH_NOARGS,
     "ravel($self, /)\n--\n\nReturn the elements in C order as one dimension; a view where the strides allow it."},
    {"transpose", array_transpose, METH_VARARGS,
     "transpose($self, /, *axes)\n--\n\nReturn a view with the dimensions in another order, by default the "
     "opposite one."},
    {"squeeze", as_method(array_squeeze), METH_FASTCALL | METH_KEYWORDS,
     "squeeze" CUKERN_ARRAY_SQUEEZE "\n--\n\nReturn a view without dimensions of length 1."},
    {"get", as_method(array_get), METH_FASTCALL | METH_KEYWORDS,
     "get" CUKERN_ARRAY_GET "\n--\n\nReturn the elements as ndarray: `cukern.asnumpy`."},
    {"item", array_item, METH_VARARGS,
     "item($self, /, *index)\n--\n\nReturn one element as a Python number; waits for work that writes it."},
    {"tolist", array_tolist, METH_NOARGS,
     "tolist($self, /)\n--\n\nReturn the elements as nested lists of Python numbers; waits for work that writes "
     "them."},
    {"fill", as_method(array_fill), METH_FASTCALL | METH_KEYWORDS,
     "fill" CUKERN_ARRAY_FILL "\n--\n\nSet every element to one number."},
    {"astype", as_method(array_astype), METH_FASTCALL | METH_KEYWORDS,
     "astype" CUKERN_ARRAY_ASTYPE "\n--\n\nReturn a copy with another element type.\n\nValues that the "
     "type "
     "cannot hold become whatever the processor gives, as in NumPy."},
    {"copy", as_method(array_copy), METH_FASTCALL | METH_KEYWORDS,
     "copy" CUKERN_ARRAY_COPY "\n--\n\nReturn a copy in memory of the same kind.\n\n"
     "`order` is 'C' (packed in C order, as kernels want it), 'F', 'A' (F if the array is) or 'K' (its own)."},
    {"__format__", array_format, METH_O, "The one element by a format of numbers; any array without one."},
    {"__round__", array_round, METH_VARARGS, "The one element rounded, as a Python number."},
    {"__complex__", array_complex, METH_NOARGS, "The one element as a Python complex number."},
    {"__copy__", array_shallow_copy, METH_NOARGS, "copy.copy: a copy of the elements."},
    {"__deepcopy__", array_deepcopy, METH_O, "copy.deepcopy: a copy of the elements."},
    {"__reduce_ex__", array_reduce_ex, METH_O, "Pickles the elements; out-of-band with protocol 5."},
    {"__dlpack__", as_method(array_to_dlpack), METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__" CUKERN_ARRAY_DLPACK "\n--\n\nReturn a DLPack capsule."},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\nReturn DLPack's device type and number."},
    {"__array__", as_method(array_as_numpy), METH_FASTCALL | METH_KEYWORDS,
     "__array__" CUKERN_ARRAY_ARRAY "\n--\n\nReturn an ndarray that shares memory; TypeError for device "
     "memory."},
    {"__array_function__", array_function, METH_VARARGS,
     "Sends NumPy's other functions to cukern's, where there are such, or to the memory that NumPy sees."},
    {"__array_ufunc__", as_method(array_ufunc), METH_VARARGS | METH_KEYWORDS,
     "Sends NumPy's functions to cukern's."},
    {nullptr, nullptr, 0, nullptr},
};

bool add_array_type(PyObject *module, ModuleState &state) noexcept {
    state.array_type = PyType_FromModuleAndSpec(module, &kArraySpec, nullptr);
    return state.array_type != nullptr && PyModule_AddObjectRef(module, "Array", state.array_type) == 0;
}

}  // namespace cukern::py
