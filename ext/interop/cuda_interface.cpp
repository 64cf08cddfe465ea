// Other libraries' arrays read by __cuda_array_interface__.
#include "base/python.h"

#include "interop/frameworks.h"

#include <cstdlib>

#include "base/errors.h"
#include "types/element_types.h"

namespace cukern::py {
namespace {

bool bad_interface(const ArgumentInfo &argument, const char *what) noexcept {
    if (!clear_lookup_error()) return false;
    PyErr_Format(PyExc_TypeError, "%s: %s has a __cuda_array_interface__ whose %s cannot be read",
                 argument.function, argument.name, what);
    return false;
}

bool read_integers(PyObject *tuple, int ndim, std::int64_t *values) noexcept {
    for (int i = 0; i < ndim; ++i) {
        values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (values[i] == -1 && PyErr_Occurred() != nullptr) return false;
    }
    return true;
}

// `bytes`: of an element, which may be a structure.
bool read_typestr(const ArgumentInfo &argument, PyObject *typestr, ElementType *type, int *bytes) noexcept {
    Py_ssize_t length = 0;
    const char *text =
        typestr != nullptr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, &length) : nullptr;
    if (text == nullptr || length < 3) return bad_interface(argument, "typestr");
    if (text[0] == '>') {
        PyErr_Format(PyExc_TypeError, "%s: %s is byte-swapped; convert it to native byte order first",
                     argument.function, argument.name);
        return false;
    }
    const int size = static_cast<int>(std::strtol(text + 2, nullptr, 10));
    *bytes = size;
    if (argument.takes_structures && text[1] == 'V' && size > 0) {
        *type = ElementType::uint8;
        return true;
    }
    for (int i = 0; i < kNumElementTypes; ++i) {
        const auto own = static_cast<ElementType>(i);
        if (kind_of(own) != text[1] || size_of(own) != size || own == ElementType::bfloat16) continue;
        *type = own;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s: %s has element type '%s'; supported are %s", argument.function,
                 argument.name, text, all_element_types());
    return false;
}

// CuPy's interface calls bfloat16 two bytes of unknown meaning; its dtype is that of ml_dtypes. False with an
// exception set.
bool find_bfloat16(const ModuleState &state, PyObject *typestr, PyObject *object, ElementType *type,
                   bool *found) noexcept {
    if (typestr == nullptr || !PyUnicode_Check(typestr) || PyUnicode_CompareWithASCIIString(typestr, "<V2") != 0)
        return true;
    const PyRef dtype = PyRef::steal(PyObject_GetAttrString(object, "dtype"));
    if (!dtype) return clear_lookup_error();
    *found = PyArray_DescrCheck(dtype.get()) &&
             element_type_of(state, reinterpret_cast<PyArray_Descr *>(dtype.get()), type);
    return true;
}

// The items of the interface, owned: an __index__ of one of them may change the dict.
struct InterfaceItems {
    PyRef shape;
    PyRef strides;
    PyRef data;
    PyRef mask;
    PyRef typestr;
    PyRef stream;

    bool take(const ModuleState &state, PyObject *interface) noexcept {
        const auto get = [&](PyObject *name, PyRef *item) {
            *item = PyRef::borrow(PyDict_GetItemWithError(interface, name));
            return *item || PyErr_Occurred() == nullptr;
        };
        return get(state.name_shape, &shape) && get(state.name_strides, &strides) && get(state.name_data, &data) &&
               get(state.name_mask, &mask) && get(state.name_typestr, &typestr) && get(state.name_stream, &stream);
    }
};

bool read_interface_stream(const ArgumentInfo &argument, PyObject *stream, const TypeRecord &record,
                           ForeignArray *array) noexcept {
    if (stream == nullptr || Py_IsNone(stream) != 0) return true;
    void *handle = PyLong_AsVoidPtr(stream);
    if (handle == nullptr) {
        if (PyErr_Occurred() != nullptr) return bad_interface(argument, "stream");
        PyErr_Format(PyExc_ValueError,
                     "%s: %s names stream 0 in its __cuda_array_interface__, which is ambiguous; 1 is the legacy "
                     "default stream",
                     argument.function, argument.name);
        return false;
    }
    StreamRef producer;
    const Status status = stream_ref(handle, array->device.id, &producer);
    array->producer = producer;
    if (status != CUKERN_OK) {
        raise_status(argument.state, argument.function, status);
        return false;
    }
    array->has_producer = true;
    array->reused_in_order = record.is_cupy;
    return true;
}

}  // namespace

bool read_by_interface(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object,
                       ForeignArray *array) noexcept {
    const ModuleState &state = argument.state;
    const PyRef interface = PyRef::steal(PyObject_GetAttr(object, state.name_cai));
    if (!interface) return false;
    Backend backend;
    if (active_backend(&backend) == CUKERN_OK && backend == Backend::host)
        return refuse(argument, "is in a GPU's memory, and cukern uses its host back-end here");
    if (PyDict_Check(interface.get()) == 0) return bad_interface(argument, "value, which is no dict,");
    InterfaceItems items;
    if (!items.take(state, interface.get())) return bad_interface(argument, "items");
    PyObject *const shape = items.shape.get();
    PyObject *const strides = items.strides.get();
    PyObject *const data = items.data.get();
    PyObject *const typestr = items.typestr.get();
    if (items.mask && Py_IsNone(items.mask.get()) == 0)
        return refuse(argument, "is masked, which is not supported");
    bool is_known = false;
    if (record.is_cupy && !find_bfloat16(state, typestr, object, &array->type, &is_known)) return false;
    int bytes = size_of(array->type);
    if (!is_known && !read_typestr(argument, typestr, &array->type, &bytes)) return false;
    if (shape == nullptr || PyTuple_Check(shape) == 0 || PyTuple_Size(shape) > kMaxDims)
        return bad_interface(argument, "shape");
    array->ndim = static_cast<int>(PyTuple_Size(shape));
    if (!read_integers(shape, array->ndim, array->shape)) return bad_interface(argument, "shape");
    if (strides != nullptr && Py_IsNone(strides) == 0) {
        if (PyTuple_Check(strides) == 0 || PyTuple_Size(strides) != array->ndim ||
            !read_integers(strides, array->ndim, array->strides))
            return bad_interface(argument, "strides");
    } else {
        std::int64_t stride = bytes;
        for (int i = array->ndim - 1; i >= 0; --i) {
            array->strides[i] = stride;
            if (__builtin_mul_overflow(stride, array->shape[i] > 0 ? array->shape[i] : 1, &stride))
                return bad_interface(argument, "shape");
        }
    }
    if (bytes != size_of(array->type)) {  // a structure: one more dimension, of its bytes
        if (array->ndim == kMaxDims) return bad_interface(argument, "shape");
        array->shape[array->ndim] = bytes;
        array->strides[array->ndim++] = 1;
    }
    if (data == nullptr || PyTuple_Check(data) == 0 || PyTuple_Size(data) != 2)
        return bad_interface(argument, "data");
    array->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    if (array->data == nullptr && PyErr_Occurred() != nullptr) return bad_interface(argument, "data");
    const int read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1));
    if (read_only < 0) return bad_interface(argument, "data");
    array->read_only = read_only != 0;
    array->device = {dlpack::kCUDA, 0};
    bool empty = false;
    for (int i = 0; i < array->ndim; ++i) empty = empty || array->shape[i] == 0;
    if (array->data == nullptr && !empty) return refuse(argument, "has elements, but no memory");
    if (empty) {
        array->data = nullptr;
        Status status = current_device(&array->device.id);
        if (status != CUKERN_OK) raise_status(state, argument.function, status);
        if (status != CUKERN_OK) return false;
    } else {
        PointerInfo where;
        if (const Status status = pointer_info(array->data, &where); status != CUKERN_OK) {
            raise_status(state, argument.function, status);
            return false;
        }
        if (!where.known)
            return refuse(argument,
                          "has a __cuda_array_interface__ whose pointer is of no memory that CUDA knows");
        array->device.id = where.device;
        if (where.kind == MemoryKind::managed) array->device.type = dlpack::kCUDAManaged;
        if (where.kind == MemoryKind::pinned) array->device.type = dlpack::kCUDAHost;
    }
    return read_interface_stream(argument, items.stream.get(), record, array);
}

}  // namespace cukern::py
