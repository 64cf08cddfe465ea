// Element types asked for and changed: result_type, can_cast, astype.
#include "base/python.h"

#include "array/array.h"

#include <algorithm>
#include <utility>

#include "base/methods.h"
#include "call/operand.h"
#include "ops/operations.h"
#include "streams/streams.h"
#include "types/element_types.h"

namespace cukern::py {
namespace {

// Looks at an argument's type alone, so that nothing is waited for or read.
bool element_type_of_object(ModuleState &state, const char *function, PyObject *object,
                            ElementType *type) noexcept {
    if (PyArray_Check(object)) {
        if (element_type_of(state, PyArray_DESCR(as_array(object)), type)) return true;
    } else if (PyUnicode_Check(object) || PyType_Check(object) || PyArray_DescrCheck(object)) {
        return parse_dtype(state, function, object, type);
    }
    const PyRef dtype = PyRef::steal(PyObject_GetAttrString(object, "dtype"));
    if (dtype) return parse_dtype(state, function, dtype.get(), type);
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return false;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: %R is no array, element type or number", function, object);
    return false;
}

PyObject *result_type_function(PyObject *module, PyObject *args) {
    ModuleState &state = state_of(module);
    const Py_ssize_t count = PyTuple_Size(args);
    // Each type once is enough, and there are few of them.
    ElementType types[kNumElementTypes];
    bool seen[kNumElementTypes] = {};
    int num_types = 0;
    Weak weak = Weak::none;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *argument = PyTuple_GetItem(args, i);
        if (is_number(argument)) {
            weak = std::max(weak, weak_of(argument));
            continue;
        }
        ElementType type;
        if (!element_type_of_object(state, "result_type", argument, &type)) return nullptr;
        if (!std::exchange(seen[static_cast<int>(type)], true)) types[num_types++] = type;
    }
    if (num_types == 0) {
        PyErr_SetString(PyExc_ValueError, "result_type: at least one array or element type is needed");
        return nullptr;
    }
    const ElementType promoted = promote_all(types, num_types);
    return dtype_of(state, beside(promoted, weak)).release();
}

PyObject *can_cast_function(PyObject *module, PyObject *args) {
    PyObject *from = nullptr;
    PyObject *to = nullptr;
    if (PyArg_ParseTuple(args, "OO:can_cast", &from, &to) == 0) return nullptr;
    ModuleState &state = state_of(module);
    ElementType source;
    ElementType target;
    if (!element_type_of_object(state, "can_cast", from, &source) || !parse_dtype(state, "can_cast", to, &target))
        return nullptr;
    return PyBool_FromLong(promote(source, target) == target ? 1 : 0);
}

PyObject *astype_function(PyObject *module, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"", "", "copy", "device", "stream", nullptr};
    PyObject *object = nullptr;
    PyObject *dtype = nullptr;
    int copy = 1;
    PyObject *device = Py_None;
    PyObject *stream = Py_None;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "OO|$pOO:astype", const_cast<char **>(names), &object, &dtype,
                                    &copy, &device, &stream) == 0)
        return nullptr;
    ModuleState &state = state_of(module);
    if (is_plain(object)) {
        PyErr_Format(PyExc_TypeError, "astype: x is %R; pass an array, as made by cukern.asarray()", object);
        return nullptr;
    }
    ElementType type;
    if (!parse_dtype(state, "astype", dtype, &type)) return nullptr;
    if (Py_IsNone(device) == 0 && is_array(state, object)) {
        int id = 0;
        if (!parse_device(state, "astype", device, &id)) return nullptr;
        if (const int own = array_of(object)->device(); id != own) {
            PyErr_Format(PyExc_ValueError,
                         "astype: x is on device %d; copy it to another one by cukern.asarray(x, device=%d)", own,
                         id);
            return nullptr;
        }
    }
    if (copy == 0) {
        ElementType from;
        if (element_type_of_object(state, "astype", object, &from)) {
            const bool is_swapped = PyArray_Check(object) && !PyArray_ISNOTSWAPPED(as_array(object));
            if (from == type && !is_swapped) return PyRef::borrow(object).release();
        } else {
            if (!PyObject_CheckBuffer(object) || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return nullptr;
            PyErr_Clear();  // a buffer without a dtype becomes an array, by a copy
        }
    }
    return run_cast(state, "astype", object, type, nullptr, Py_IsNone(stream) != 0 ? nullptr : stream);
}

}  // namespace

PyMethodDef kCastMethods[] = {
    {"result_type", result_type_function, METH_VARARGS,
     "result_type(*arrays_and_dtypes)\n--\n\n"
     "The element type to which arrays, element types and Python numbers are promoted.\n\n"
     "Parameters\n----------\n*arrays_and_dtypes : array of any library, dtype, or number\n"
     "    At least one of them is no Python number.\n"
     "\nReturns\n-------\ndtype\n"
     "\nRaises\n------\nTypeError\n    An argument is none of them.\n"
     "ValueError\n    There are only Python numbers.\n"
     "\nExamples\n--------\n>>> import cukern\n>>> cukern.result_type(cukern.int8, cukern.uint8, 1.0)\n"
     "dtype('float64')\n"},
    {"can_cast", can_cast_function, METH_VARARGS,
     "can_cast(from_, to, /)\n--\n\n"
     "Whether promotion leads from one element type to the other.\n\n"
     "Parameters\n----------\nfrom_ : array of any library, or dtype\nto : dtype\n"
     "\nReturns\n-------\nbool\n"
     "\nRaises\n------\nTypeError\n    An argument is none of them.\n"
     "\nExamples\n--------\n>>> import cukern\n>>> cukern.can_cast(cukern.int8, cukern.float32)\nTrue\n"},
    {"astype", as_method(astype_function), METH_VARARGS | METH_KEYWORDS,
     "astype(x, dtype, /, *, copy=True, device=None, stream=None)\n--\n\n"
     "Convert an array to another element type.\n\n"
     "Values that the type cannot hold become whatever the processor gives, as in NumPy.\n\n"
     "Parameters\n----------\nx : Array, ndarray, another library's array, or buffer\n"
     "dtype : dtype\ncopy : bool\n    Whether an array that has the type already is copied.\n"
     "device : Device or int, optional\n    The array's own: cukern.asarray copies to others.\n"
     "stream : Stream, object with __cuda_stream__, or int, optional\n    Where the work runs.\n"
     "\nReturns\n-------\narray of the kind of `x`\n"
     "\nRaises\n------\nTypeError\n    The operand is no array; or there is no such element type.\n"
     "ValueError\n    `device` is another one.\n"
     "\nExamples\n--------\n>>> import numpy, cukern\n>>> cukern.astype(numpy.ones(2), cukern.int8)\n"
     "array([1, 1], dtype=int8)\n"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
