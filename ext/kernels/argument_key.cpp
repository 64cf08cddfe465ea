// What the arguments of a call are but for addresses and values, for calls that repeat an earlier one's; and
// whether an output lies on other arguments in part, for which no earlier call can stand.
#include "base/python.h"

#include <algorithm>
#include <cstdint>

#include "array/array.h"
#include "base/backend.h"
#include "base/methods.h"
#include "call/operand.h"
#include "interop/frameworks.h"
#include "kernels/kernels.h"

#include "cukern/overlap.h"

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
        if (num_arrays_ == kMostArrays) return false;
        Place &place = arrays_[num_arrays_++];
        place.first_word = count_;
        place.begin = place.end = reinterpret_cast<std::intptr_t>(address);
        for (int i = 0; i < ndim; ++i) {
            const std::int64_t reach = (std::max<std::int64_t>(shape[i], 1) - 1) * strides[i] * size_of(type);
            (reach < 0 ? place.begin : place.end) += reach;
        }
        place.address = reinterpret_cast<std::intptr_t>(address);
        place.end += size_of(type);
        const auto low = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) % 16);
        if (!add(family | static_cast<std::int64_t>(type) << 8 | low << 16 | std::int64_t{ndim} << 24 |
                 std::int64_t{device} << 32))
            return false;
        for (int i = 0; i < ndim; ++i)
            if (!add(shape[i]) || !add(strides[i])) return false;
        place.num_words = count_ - place.first_word;
        return true;
    }
    int num_arrays() const noexcept { return num_arrays_; }
    // Whether two arrays may share memory without being the same elements.
    bool may_overlap(int a, int b) const noexcept {
        const Place &x = arrays_[a];
        const Place &y = arrays_[b];
        if (x.end <= y.begin || y.end <= x.begin) return false;
        return x.address != y.address || x.num_words != y.num_words ||
               !std::equal(words_ + x.first_word, words_ + x.first_word + x.num_words, words_ + y.first_word);
    }
    PyObject *bytes() const noexcept {
        return PyBytes_FromStringAndSize(reinterpret_cast<const char *>(words_),
                                         static_cast<Py_ssize_t>(count_ * sizeof words_[0]));
    }

private:
    static constexpr int kMost = 128;
    static constexpr int kMostArrays = 32;
    struct Place {
        std::size_t first_word, num_words;
        std::intptr_t begin, end, address;  // the bytes that it lies on, and its first element
    };
    std::int64_t words_[kMost];
    std::size_t count_ = 0;
    Place arrays_[kMostArrays];
    int num_arrays_ = 0;
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

// _argument_key(args, inputs=None)
PyObject *key_method(PyObject *module, PyObject *const *values, Py_ssize_t given, PyObject *names) {
    if (names != nullptr || given < 1 || given > 2 || PyTuple_Check(values[0]) == 0)
        return PyErr_Format(PyExc_TypeError, "_argument_key: expected a tuple, and maybe a number");
    const Py_ssize_t inputs = given == 2 ? PyLong_AsSsize_t(values[1]) : PyTuple_Size(values[0]);
    PyRef key;
    if ((inputs == -1 && PyErr_Occurred() != nullptr) || !argument_key(state_of(module), values[0], inputs, &key))
        return nullptr;
    return key ? key.release() : PyRef::borrow(Py_None).release();
}

// _overlap(a, b): whether two arrays share memory, and are not the same elements.
PyObject *overlap_method(PyObject *module, PyObject *args) {
    PyObject *objects[2] = {};
    if (PyArg_ParseTuple(args, "OO:_overlap", &objects[0], &objects[1]) == 0) return nullptr;
    Backend backend;
    ReadContext reading;
    Operand operands[2];
    if (!ensure_backend(state_of(module), "_overlap", &backend)) return nullptr;
    for (int i = 0; i < 2; ++i)
        if (!operands[i].read_memory({state_of(module), "_overlap", "an argument"}, objects[i], false))
            return nullptr;
    const ByteLayout &a = operands[0].layout();
    const ByteLayout &b = operands[1].layout();
    return PyBool_FromLong(!identical(a, b) && overlaps(a, b) ? 1 : 0);
}

}  // namespace

bool argument_key(const ModuleState &state, PyObject *args, Py_ssize_t inputs, PyRef *found) noexcept {
    const Py_ssize_t count = PyTuple_Size(args);
    Key key;
    int first_output = 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (i == inputs) first_output = key.num_arrays();
        if (!add_argument(state, PyTuple_GetItem(args, i), &key)) return PyErr_Occurred() == nullptr;
    }
    for (int i = first_output; inputs < count && i < key.num_arrays(); ++i)
        for (int j = 0; j < i; ++j)
            if (key.may_overlap(i, j)) return true;
    *found = PyRef::steal(key.bytes());
    return static_cast<bool>(*found);
}

PyMethodDef kArgumentKeyMethods[] = {
    {"_argument_key", as_method(key_method), METH_FASTCALL | METH_KEYWORDS,
     "_argument_key(args, inputs=None, /)\n--\n\n"
     "Return what arguments are but for addresses and values, as bytes, or None."},
    {"_overlap", overlap_method, METH_VARARGS,
     "_overlap(a, b, /)\n--\n\nWhether two arrays share memory and are not the same elements."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
