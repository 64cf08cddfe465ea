// Element types asked for and changed: result_type, can_cast, astype.
#include "base/python.h"

#include "array/array.h"

#include <algorithm>
#include <utility>

#include "base/methods.h"
#include "base/signature.h"
#include "call/operand.h"
#include "call/traced.h"
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
    return dtype_of(state, promote_weak(promoted, weak)).release();
}

#define CUKERN_CAN_CAST "(from_, to, /)"
#define CUKERN_ASTYPE "(x, dtype, /, *, copy=True, device=None, stream=None)"

PyObject *can_cast_function(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_CAN_CAST);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("can_cast", nullptr, values, count, names, arguments)) return nullptr;
    ModuleState &state = state_of(module);
    ElementType from;
    ElementType to;
    if (!element_type_of_object(state, "can_cast", arguments[0], &from) ||
        !parse_dtype(state, "can_cast", arguments[1], &to))
        return nullptr;
    return PyBool_FromLong(promote(from, to) == to ? 1 : 0);
}

PyObject *astype_function(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_ASTYPE);
    PyObject *arguments[Signature::kMost];
    bool copy = true;
    if (!kSignature.parse("astype", nullptr, values, count, names, arguments) || !parse_flag(arguments[2], &copy))
        return nullptr;
    ModuleState &state = state_of(module);
    PyObject *const object = arguments[0];
    PyObject *const device = arguments[3];
    if (is_plain(object)) {
        PyErr_Format(PyExc_TypeError, "astype: x is %R; pass an array, as made by cukern.asarray()", object);
        return nullptr;
    }
    ElementType type;
    if (!parse_dtype(state, "astype", arguments[1], &type)) return nullptr;
    if (is_given(device) && is_array(state, object)) {
        int id = 0;
        if (!parse_device(state, "astype", device, &id)) return nullptr;
        if (const int own = array_of(object)->device(); id != own) {
            PyErr_Format(PyExc_ValueError,
                         "astype: x is on device %d; copy it to another one by cukern.asarray(x, device=%d)", own,
                         id);
            return nullptr;
        }
    }
    if (!copy) {
        ElementType from;
        if (element_type_of_object(state, "astype", object, &from)) {
            const bool is_swapped = PyArray_Check(object) && !PyArray_ISNOTSWAPPED(as_array(object));
            if (from == type && !is_swapped) return PyRef::borrow(object).release();
        } else {
            if (!PyObject_CheckBuffer(object) || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return nullptr;
            PyErr_Clear();  // a buffer without a dtype becomes an array, by a copy
        }
    }
    PyObject *const result = run_cast(state, "astype", object, type, nullptr, given_or_null(arguments[4]));
    return result != nullptr ? result : record_if_traced(state, "astype", values, count, names);
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
    {"can_cast", as_method(can_cast_function), METH_FASTCALL | METH_KEYWORDS,
     "can_cast" CUKERN_CAN_CAST "\n--\n\n"
     "Whether promotion leads from one element type to the other.\n\n"
     "Parameters\n----------\nfrom_ : array of any library, or dtype\nto : dtype\n"
     "\nReturns\n-------\nbool\n"
     "\nRaises\n------\nTypeError\n    An argument is none of them.\n"
     "\nExamples\n--------\n>>> import cukern\n>>> cukern.can_cast(cukern.int8, cukern.float32)\nTrue\n"},
    {"astype", as_method(astype_function), METH_FASTCALL | METH_KEYWORDS,
     "astype" CUKERN_ASTYPE "\n--\n\n"
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
