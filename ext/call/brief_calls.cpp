#include "base/python.h"

#include "call/brief_calls.h"

#include <cstring>
#include <limits>

#include "base/backend.h"
#include "base/numpy_memory.h"
#include "call/placement.h"
#include "types/element_types.h"
#include "view/tracked_view.h"

#include "cukern/host_loops.h"
#include "cukern/tensor_view.h"

namespace cukern::py {
namespace {

bool has_shape_of(PyArrayObject *array, PyArrayObject *other) noexcept {
    const int ndim = PyArray_NDIM(other);
    return PyArray_NDIM(array) == ndim && std::memcmp(PyArray_DIMS(array), PyArray_DIMS(other),
                                                      sizeof(npy_intp) * static_cast<std::size_t>(ndim)) == 0;
}

bool is_apart_or_same(PyArrayObject *a, PyArrayObject *b) noexcept {
    const char *const x = PyArray_BYTES(a);
    const char *const y = PyArray_BYTES(b);
    return x + PyArray_NBYTES(a) <= y || y + PyArray_NBYTES(b) <= x ||
           (x == y && PyArray_ITEMSIZE(a) == PyArray_ITEMSIZE(b));
}

template <typename T>
bool store(T value, Immediate *to) noexcept {
    std::memcpy(to->bytes, &value, sizeof value);
    return true;
}

template <typename T>
bool store_if_held(long long value, Immediate *to) noexcept {
    return value >= static_cast<long long>(std::numeric_limits<T>::min()) &&
           static_cast<unsigned long long>(value > 0 ? value : 0) <= std::numeric_limits<T>::max() &&
           store(static_cast<T>(value), to);
}

// A number of Python that takes the array's type: false where the type may be another one, or can't hold it.
bool read_number(PyObject *object, ElementType type, Immediate *to) noexcept {
    constexpr long long kExact = 1LL << 53;
    double real = 0;
    long long integer = 0;
    if (PyFloat_CheckExact(object)) {
        real = PyFloat_AsDouble(object);
    } else if (PyLong_CheckExact(object)) {
        int overflow = 0;
        integer = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (overflow != 0 || (is_floating(type) && (integer < -kExact || integer > kExact))) return false;
        real = static_cast<double>(integer);
        switch (type) {
            case ElementType::int8: return store_if_held<std::int8_t>(integer, to);
            case ElementType::int16: return store_if_held<std::int16_t>(integer, to);
            case ElementType::int32: return store_if_held<std::int32_t>(integer, to);
            case ElementType::int64: return store(integer, to);
            case ElementType::uint8: return store_if_held<std::uint8_t>(integer, to);
            case ElementType::uint16: return store_if_held<std::uint16_t>(integer, to);
            case ElementType::uint32: return store_if_held<std::uint32_t>(integer, to);
            case ElementType::uint64: return integer >= 0 && store(integer, to);
            default: break;
        }
    } else {
        return false;
    }
    if (type == ElementType::float32) return store(static_cast<float>(real), to);
    return type == ElementType::float64 && store(real, to);
}

// The first of the operands that is a packed ndarray; null where one is neither that nor a number.
PyArrayObject *lead_of(PyObject *const *operands, int num_operands) noexcept {
    PyArrayObject *lead = nullptr;
    for (int i = 0; i < num_operands; ++i) {
        if (PyArray_CheckExact(operands[i]) == 0) {
            if (PyFloat_CheckExact(operands[i]) || PyLong_CheckExact(operands[i])) continue;
            return nullptr;
        }
        PyArrayObject *const array = as_array(operands[i]);
        if (PyArray_NDIM(array) == 0 || !PyArray_ISCARRAY_RO(array)) return nullptr;
        if (lead == nullptr)
            lead = array;
        else if (PyArray_TYPE(array) != PyArray_TYPE(lead) || !has_shape_of(array, lead))
            return nullptr;
    }
    return lead;
}

}  // namespace

bool run_brief(ModuleState &state, Op op, PyObject *const *operands, int num_operands, PyObject *out,
               PyObject **result) noexcept {
    PyArrayObject *const lead = lead_of(operands, num_operands);
    ElementType type;
    if (lead == nullptr || !element_type_of(PyArray_TYPE(lead), &type)) return false;
    Immediate values[2];
    bool is_number[2] = {};
    for (int i = 0; i < num_operands; ++i) {
        is_number[i] = PyArray_CheckExact(operands[i]) == 0;
        if (is_number[i] && !read_number(operands[i], type, &values[i])) return false;
    }
    if (!state.backend_ready || is_explaining() || any_graph_captured()) return false;
    Backend backend;
    *result = nullptr;
    if (!ensure_backend(state, info(op).name, &backend)) return true;
    const std::int64_t count = PyArray_SIZE(lead);
    const HostLoop loop = brief_loop(op, type, count, !is_number[0] && !is_number[1]);
    if (loop.function == nullptr) return false;
    const ElementType result_kind = result_type(op, type);

    PyRef made;
    if (out == nullptr) {
        made = new_ndarray(numpy_dtype(state, result_kind), PyArray_NDIM(lead), PyArray_DIMS(lead), nullptr, 0);
        if (!made) return true;
    } else {
        if (PyArray_CheckExact(out) == 0) return false;
        PyArrayObject *const given = as_array(out);
        if (!PyArray_ISCARRAY(given) || PyArray_TYPE(given) != numpy_type_of(result_kind) ||
            !has_shape_of(given, lead))
            return false;
        for (int i = 0; i < num_operands; ++i)
            if (!is_number[i] && !is_apart_or_same(given, as_array(operands[i]))) return false;
        made = PyRef::borrow(out);
    }
    char *data[3];
    std::intptr_t strides[3];
    for (int i = 0; i <= num_operands; ++i) {
        if (i < num_operands && is_number[i]) {
            data[i] = reinterpret_cast<char *>(values[i].bytes);
            strides[i] = 0;
        } else {
            PyArrayObject *const array = as_array(i == num_operands ? made.get() : operands[i]);
            data[i] = PyArray_BYTES(array);
            strides[i] = PyArray_ITEMSIZE(array);
        }
    }
    const Status status = call_brief_loop(loop, data, count, strides);
    if (status == CUKERN_OK)
        *result = made.release();
    else
        raise_failure(state, info(op).name, status);
    return true;
}

}  // namespace cukern::py
