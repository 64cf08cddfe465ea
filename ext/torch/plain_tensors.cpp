// Which tensors the kernels in Python may give to the module's functions as they are.
#include "base/python.h"

#include <cstring>

#include "interop/frameworks.h"
#include "torch/plain_tensors.h"

namespace cukern::py {
namespace {

// Packed floats with dimensions and without a gradient, read by torch's exchange API.
bool read_plain(const ModuleState &state, PyObject *object, dlpack::Tensor *tensor) noexcept {
    const TypeRecord *record = known_foreign(state, object);
    ElementType type{};
    if (record == nullptr || !record->is_torch || !glance_at_tensor(*record, object, tensor, &type) ||
        kind_of(type) != 'f' || tensor->ndim == 0)
        return false;
    std::int64_t packed = 1;
    for (int d = tensor->ndim - 1; d >= 0; --d) {
        if (tensor->strides[d] != packed) return false;
        packed *= tensor->shape[d];
    }
    return is_without_gradients(*record, object, type);
}

bool are_alike(const dlpack::Tensor &a, const dlpack::Tensor &b) noexcept {
    return a.ndim == b.ndim && a.device.type == b.device.type && a.device.id == b.device.id &&
           std::memcmp(&a.dtype, &b.dtype, sizeof a.dtype) == 0 &&
           std::memcmp(a.shape, b.shape, static_cast<std::size_t>(a.ndim) * sizeof a.shape[0]) == 0;
}

}  // namespace

PyObject *are_plain(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    if (names != nullptr) return PyErr_Format(PyExc_TypeError, "_are_plain: it has no keywords");
    const ModuleState &state = state_of(module);
    dlpack::Tensor first{};
    for (Py_ssize_t i = 0; i < count; ++i) {
        dlpack::Tensor tensor{};
        const bool is_alike = read_plain(state, values[i], &tensor) && (i == 0 || are_alike(first, tensor));
        if (PyErr_Occurred() != nullptr) return nullptr;
        if (!is_alike) Py_RETURN_FALSE;
        if (i == 0) first = tensor;
    }
    Py_RETURN_TRUE;
}

}  // namespace cukern::py
