// What the arguments of a call are but for addresses and values, for calls that repeat an earlier one's.
#include "base/python.h"

#include <cstdint>

#include "array/array.h"
#include "base/methods.h"
#include "call/operand.h"
#include "interop/frameworks.h"

namespace cukern::py {
namespace {

// Words that are compared as bytes.
class Key {
public:
    bool add(std::int64_t word) noexcept {
        if (count_ == kMost) return false;
        words_[count_++] = word;
        return true;
    }
    // Of an array: `address` as far as vectors of 16 bytes depend on it.
    bool add_array(int family, ElementType type, int device, const void *address, int ndim,
                   const std::int64_t *shape, const std::int64_t *strides) noexcept {
        const auto low = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) % 16);
        if (!add(family | static_cast<std::int64_t>(type) << 8 | low << 16 | std::int64_t{ndim} << 24 |
                 std::int64_t{device} << 32))
            return false;
        for (int i = 0; i < ndim; ++i)
            if (!add(shape[i]) || !add(strides[i])) return false;
        return true;
    }
    PyObject *bytes() const noexcept {
        return PyBytes_FromStringAndSize(reinterpret_cast<const char *>(words_),
                                         static_cast<Py_ssize_t>(count_ * sizeof words_[0]));
    }

private:
    static constexpr int kMost = 128;
    std::int64_t words_[kMost];
    std::size_t count_ = 0;
};

enum Family { kBool = 1, kInt, kFloat, kComplex, kTensor, kForeign, kArray };

// Another library's array on a device, whose kind is part of the key: results are of it.
bool add_foreign(const ModuleState &state, PyObject *object, Key *key) noexcept {
    ReadContext reading;
    Operand operand;
    if (!operand.read_address({state, "_argument_key", "an argument"}, object, reading) ||
        !operand.access().location.reachable || operand.access().location.kind != MemoryKind::device)
        return false;
    const TensorView &view = operand.view();
    return operand.is_writable() && key->add(reinterpret_cast<std::intptr_t>(Py_TYPE(object))) &&
           key->add_array(kForeign, view.type, operand.access().location.device, view.data, view.ndim, view.shape,
                          view.strides);
}

// False, maybe with an exception, for arguments that no key is made for.
bool add_argument(const ModuleState &state, PyObject *object, Key *key) noexcept {
    if (is_array(state, object)) {
        const Array *array = array_of(object);
        return !array->read_only &&
               key->add_array(kArray + 8 * static_cast<int>(array->kind()), array->type, array->device(),
                              array->data, array->ndim, array->shape(), array->strides());
    }
    if (PyBool_Check(object)) return key->add(kBool);
    if (PyLong_CheckExact(object)) return key->add(kInt);
    if (PyFloat_CheckExact(object)) return key->add(kFloat);
    if (PyComplex_CheckExact(object)) return key->add(kComplex);
    const TypeRecord *record = known_foreign(state, object);
    dlpack::Tensor tensor{};
    ElementType type{};
    if (record == nullptr) return false;
    if (!record->is_torch || reinterpret_cast<PyObject *>(Py_TYPE(object)) != record->type)
        return add_foreign(state, object, key);
    if (!glance_at_tensor(*record, object, &tensor, &type) || tensor.device.type != dlpack::kCUDA) return false;
    return key->add_array(kTensor, type, tensor.device.id, static_cast<char *>(tensor.data) + tensor.byte_offset,
                          tensor.ndim, tensor.shape, tensor.strides);
}

// _argument_key(args): None where an argument is neither a number of Python, an Array, nor a tensor of torch on a
// GPU.
PyObject *key_method(PyObject *module, PyObject *args) {
    if (PyTuple_Check(args) == 0) return PyErr_Format(PyExc_TypeError, "_argument_key: expected a tuple");
    Key key;
    const Py_ssize_t count = PyTuple_Size(args);
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (add_argument(state_of(module), PyTuple_GetItem(args, i), &key)) continue;
        if (PyErr_Occurred() != nullptr) return nullptr;
        Py_RETURN_NONE;
    }
    return key.bytes();
}

}  // namespace

PyMethodDef kArgumentKeyMethods[] = {
    {"_argument_key", key_method, METH_O,
     "_argument_key(args, /)\n--\n\nReturn what arguments are but for addresses and values, as bytes, or None."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
