// A call of a kernel of formulas that repeats an earlier one's arguments but for addresses and values: outputs
// made, kernel launched, without Python.
#include "base/python.h"

#include <cstring>

#include "array/array.h"
#include "base/methods.h"
#include "kernels/kernels.h"

#include "cukern/element_type.h"

namespace cukern::py {
namespace {

constexpr Py_ssize_t kMostArguments = 64;  // of the kernel

// What _formula_kernel.py keeps of the earlier call, a tuple.
struct Repeated {
    PyObject *launcher;   // the kernel with its grid and block
    PyObject *constants;  // a tuple: what the kernel is given behind its operands
    PyObject *shape;      // a tuple: of the outputs that are made
    PyObject *elements;   // a tuple of str: their element types
    PyObject *device;     // theirs

    explicit Repeated(PyObject *tuple) noexcept
        : launcher(PyTuple_GetItem(tuple, 0)),
          constants(PyTuple_GetItem(tuple, 1)),
          shape(PyTuple_GetItem(tuple, 2)),
          elements(PyTuple_GetItem(tuple, 3)),
          device(PyTuple_GetItem(tuple, 4)) {}
};

bool element_type_named(PyObject *name, ElementType *type) noexcept {
    for (int i = 0; i < kNumElementTypes; ++i) {
        *type = static_cast<ElementType>(i);
        if (PyUnicode_CompareWithASCIIString(name, name_of(*type)) == 0) return true;
    }
    PyErr_Format(PyExc_TypeError, "_repeat_call: %R is no element type", name);
    return false;
}

// The outputs that are made, as a tuple.
PyRef make_outputs(const ModuleState &state, const Repeated &repeated) noexcept {
    const Py_ssize_t count = PyTuple_Size(repeated.elements);
    PyRef outputs = PyRef::steal(PyTuple_New(count));
    if (!outputs || count == 0) return outputs;
    HeldStream stream;
    if (!stream_for_new(state, "empty", repeated.device, nullptr, &stream)) return {};
    const auto ndim = static_cast<int>(PyTuple_Size(repeated.shape));
    std::int64_t lengths[kMaxDims];
    for (int d = 0; d < ndim; ++d) lengths[d] = PyLong_AsLongLong(PyTuple_GetItem(repeated.shape, d));
    for (Py_ssize_t i = 0; i < count; ++i) {
        ElementType type{};
        if (!element_type_named(PyTuple_GetItem(repeated.elements, i), &type)) return {};
        PyRef array = new_array(state, "empty", MemoryKind::device, type, ndim, lengths, nullptr, stream);
        if (!array || PyTuple_SetItem(outputs.get(), i, array.release()) != 0) return {};
    }
    return outputs;
}

// _repeat_call(plans, args, inputs): the outputs of a call as `plans` has one, as a tuple; None where it has none.
PyObject *repeat_call(PyObject *module, PyObject *const *values, Py_ssize_t given, PyObject *names) {
    if (names != nullptr || given != 3 || PyDict_Check(values[0]) == 0 || PyTuple_Check(values[1]) == 0)
        return PyErr_Format(PyExc_TypeError, "_repeat_call: expected a dict, a tuple and a number");
    ModuleState &state = state_of(module);
    PyObject *const args = values[1];
    const Py_ssize_t inputs = PyLong_AsSsize_t(values[2]);
    PyRef key;
    if ((inputs == -1 && PyErr_Occurred() != nullptr) || !argument_key(state, args, inputs, &key)) return nullptr;
    const PyRef found = key ? PyRef::borrow(PyDict_GetItemWithError(values[0], key.get())) : PyRef();
    if (!found) return PyErr_Occurred() != nullptr ? nullptr : PyRef::borrow(Py_None).release();
    const Repeated repeated(found.get());
    if (PyTuple_Size(args) + PyTuple_Size(repeated.elements) + PyTuple_Size(repeated.constants) > kMostArguments)
        return PyRef::borrow(Py_None).release();
    const PyRef outputs = make_outputs(state, repeated);
    if (!outputs) return nullptr;
    PyObject *objects[kMostArguments];
    Py_ssize_t count = 0;
    for (PyObject *part : {args, outputs.get(), repeated.constants})
        for (Py_ssize_t i = 0; i < PyTuple_Size(part); ++i) objects[count++] = PyTuple_GetItem(part, i);
    if (!launch_by(state, repeated.launcher, objects, count)) return nullptr;
    return PyTuple_Size(repeated.elements) > 0 ? PyRef::borrow(outputs.get()).release()
                                               : PyTuple_GetSlice(args, inputs, PyTuple_Size(args));
}

}  // namespace

PyMethodDef kRepeatCallMethods[] = {
    {"_repeat_call", as_method(repeat_call), METH_FASTCALL | METH_KEYWORDS,
     "_repeat_call(plans, args, inputs, /)\n--\n\n"
     "Return the outputs of a call for whose arguments `plans` has a plan, or None."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
