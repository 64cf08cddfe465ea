// The buffer protocol of managed and pinned Arrays.
#include "base/python.h"

#include "array/array.h"

#include <new>

namespace cukern::py {
namespace {

// What a buffer's shape and strides point to, in bytes, for as long as it is exported.
struct Export {
    Py_ssize_t shape[kMaxDims];
    Py_ssize_t strides[kMaxDims];
};

int refuse(const char *why) noexcept {
    PyErr_SetString(PyExc_BufferError, why);
    return -1;
}

}  // namespace

int array_get_buffer(PyObject *self, Py_buffer *buffer, int flags) {
    Array *array = array_of(self);
    buffer->obj = nullptr;
    if (!on_host(array->kind())) return refuse("the host does not see device memory; cukern.asnumpy(a) copies it");
    if (array->type == ElementType::bfloat16 && (flags & PyBUF_FORMAT) != 0)
        return refuse("the buffer protocol has no format for bfloat16; cukern.asnumpy(a) needs ml_dtypes for it");
    const bool writes = (flags & PyBUF_WRITABLE) != 0;
    if (writes && array->read_only) return refuse("the array is read-only");
    const bool c = is_c_contiguous(array->ndim, array->shape(), array->strides());
    const bool f = is_f_contiguous(array->ndim, array->shape(), array->strides());
    if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !c) return refuse("the array is not C-contiguous");
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !f)
        return refuse("the array is not Fortran-contiguous");
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !c && !f)
        return refuse("the array is not contiguous");
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !c)
        return refuse("the array is not C-contiguous, and the request leaves strides out");
    auto *kept = new (std::nothrow) Export;
    if (kept == nullptr) {
        PyErr_NoMemory();
        return -1;
    }
    const Py_ssize_t item_size = size_of(array->type);
    for (int i = 0; i < array->ndim; ++i) {
        kept->shape[i] = array->shape()[i];
        kept->strides[i] = array->strides()[i] * item_size;
    }
    buffer->buf = array->data;
    buffer->len = array->size() * item_size;
    buffer->itemsize = item_size;
    buffer->readonly = array->read_only ? 1 : 0;
    // Without a shape the memory is one run of bytes, in one dimension; without dimensions there is neither shape
    // nor strides.
    const bool has_shape = (flags & PyBUF_ND) != 0 && array->ndim > 0;
    buffer->ndim = (flags & PyBUF_ND) != 0 ? array->ndim : 1;
    buffer->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char *>(info(array->type).format) : nullptr;
    buffer->shape = has_shape ? kept->shape : nullptr;
    buffer->strides = has_shape && (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? kept->strides : nullptr;
    buffer->suboffsets = nullptr;
    buffer->internal = kept;
    // The export counts first: from here on a call that writes the memory waits for its own work. A reader need
    // not wait for other readers, but what can be written through the buffer must not be read by the device now.
    array->storage->add_export();
    if (!wait_for_host(state_of_type(self), "buffer", array->storage, !array->read_only)) {
        array->storage->remove_export();
        delete kept;
        return -1;
    }
    buffer->obj = PyRef::borrow(self).release();
    return 0;
}

void array_release_buffer(PyObject *self, Py_buffer *buffer) {
    array_of(self)->storage->remove_export();
    delete static_cast<Export *>(buffer->internal);
}

}  // namespace cukern::py
