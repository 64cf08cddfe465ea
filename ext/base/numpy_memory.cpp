#include "base/python.h"

#include "base/numpy_memory.h"

#include <algorithm>
#include <cstring>

#include "base/backend.h"
#include "base/methods.h"

#include "cukern/host_memory.h"

namespace cukern::py {
namespace {

constexpr npy_intp kLeastReused = 1 << 20;  // bytes of a result for which the system's memory takes time

// NumPy calls these with and without the GIL.
void *allocate(void *context, std::size_t bytes) {
    return allocate_host_memory(static_cast<const HostMemory *>(context)[0], bytes);
}
void *allocate_zeros(void *context, std::size_t count, std::size_t item_size) {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, item_size, &bytes)) return nullptr;
    void *const data = allocate(context, bytes);
    if (data != nullptr) std::memset(data, 0, bytes);
    return data;
}
void give_back(void *, void *data, std::size_t) { free_host_memory(data); }
void *reallocate(void *context, void *data, std::size_t bytes) {
    void *const other = allocate(context, bytes);
    if (other == nullptr || data == nullptr) return other;
    std::memcpy(other, data, std::min(bytes, host_memory_size(data)));
    free_host_memory(data);
    return other;
}

HostMemory g_plain = HostMemory::plain;
HostMemory g_pinned = HostMemory::pinned;
PyDataMem_Handler g_plain_handler = {"cukern", 1, {&g_plain, allocate, allocate_zeros, reallocate, give_back}};
PyDataMem_Handler g_pinned_handler = {
    "cukern_pinned", 1, {&g_pinned, allocate, allocate_zeros, reallocate, give_back}};

PyRef capsule_of(PyDataMem_Handler *handler) noexcept {
    return PyRef::steal(PyCapsule_New(handler, "mem_handler", nullptr));
}

// NumPy's allocator is another one for a scope.
class AllocatorScope {
public:
    explicit AllocatorScope(PyDataMem_Handler *handler) noexcept {
        const PyRef own = capsule_of(handler);
        if (own) before_ = PyRef::steal(PyDataMem_SetHandler(own.get()));
    }
    ~AllocatorScope() {
        const HeldError error;
        if (before_ && !PyRef::steal(PyDataMem_SetHandler(before_.get()))) PyErr_Clear();
    }
    AllocatorScope(const AllocatorScope &) = delete;
    AllocatorScope &operator=(const AllocatorScope &) = delete;
    explicit operator bool() const noexcept { return static_cast<bool>(before_); }

private:
    PyRef before_;
};

// Whether NumPy allocates as it does unasked: another allocator is the user's choice.
bool is_by_default() noexcept {
    const PyRef current = PyRef::steal(PyDataMem_GetHandler());
    if (!current) PyErr_Clear();
    return current.get() == PyDataMem_DefaultHandler;
}

// _set_numpy_allocator(before): pinned memory for None, else what an earlier call has returned.
PyObject *set_allocator(PyObject *module, PyObject *before) {
    Backend backend;
    if (!ensure_backend(state_of(module), "pinned_allocator", &backend)) return nullptr;
    if (PyCapsule_CheckExact(before)) return PyDataMem_SetHandler(before);
    const PyRef own = capsule_of(&g_pinned_handler);
    return own ? PyDataMem_SetHandler(own.get()) : nullptr;
}

// _is_from_pool(array): whether an array that NumPy has allocated by cukern has got what was asked for.
PyObject *is_from_pool_method(PyObject *, PyObject *object) {
    if (PyArray_Check(object) == 0) return PyErr_Format(PyExc_TypeError, "_is_from_pool: expected an ndarray");
    return PyBool_FromLong(is_from_pool(PyArray_DATA(as_array(object))) ? 1 : 0);
}

PyObject *set_pinned_limit(PyObject *, PyObject *number) {
    long long bytes = 0;
    if (Py_IsNone(number) == 0) {
        bytes = PyLong_AsLongLong(number);
        if (bytes == -1 && PyErr_Occurred() != nullptr) return nullptr;
        if (bytes <= 0)
            return PyErr_Format(PyExc_ValueError,
                                "set_pinned_limit: bytes is %R; expected a positive number or None", number);
    }
    set_host_memory_limit(bytes);
    Py_RETURN_NONE;
}

}  // namespace

PyRef new_ndarray(PyRef dtype, int ndim, const npy_intp *shape, const npy_intp *strides, int flags) noexcept {
    auto *const descr = reinterpret_cast<PyArray_Descr *>(dtype.release());
    npy_intp bytes = PyDataType_ELSIZE(descr);
    for (int i = 0; i < ndim; ++i) bytes *= shape[i];
    const auto make = [&] {
        return PyRef::steal(
            PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides, nullptr, flags, nullptr));
    };
    if (bytes < kLeastReused || !is_by_default()) return make();
    const AllocatorScope scope(&g_plain_handler);
    if (scope) return make();
    Py_DECREF(reinterpret_cast<PyObject *>(descr));
    return {};
}

PyMethodDef kNumpyMemoryMethods[] = {
    {"set_pinned_limit", set_pinned_limit, METH_O,
     "set_pinned_limit(bytes, /)\n--\n\nSet the most host memory that is kept or in use for arrays of NumPy.\n\n"
     "That is pinned memory of `empty_pinned`, `zeros_pinned` and `pinned_allocator`, and apart from it the "
     "memory "
     "of large\nresults in arrays of NumPy, which is used again. Beyond the limit arrays lie in the system's own "
     "memory.\n\n"
     "Parameters\n----------\nbytes : int or None\n    None: a quarter of the machine's memory.\n\n"
     "Raises\n------\nValueError\n    `bytes` is not positive.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> cukern.set_pinned_limit(4 << 30)\n"
     ">>> cukern.set_pinned_limit(None)\n"},
    {"_set_numpy_allocator", set_allocator, METH_O,
     "_set_numpy_allocator(before, /)\n--\n\nMake NumPy allocate pinned memory, or as it did before; return what "
     "it did."},
    {"_is_from_pool", is_from_pool_method, METH_O,
     "_is_from_pool(array, /)\n--\n\nWhether the pool had memory for an array that NumPy allocated by it."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
