// An Array's elements as Python's numbers and lists, and as text. The host waits here.
#include "base/python.h"

#include "array/array.h"

namespace cukern::py {
namespace {

bool check_single(const Array *array, const char *what) noexcept {
    if (array->size() == 1) return true;
    PyErr_Format(PyExc_TypeError, "only an array of one element converts to %s; this one has %lld", what,
                 static_cast<long long>(array->size()));
    return false;
}

PyRef as_float32(Array *array) noexcept {
    return converted(state_of_type(object_of(array)), "astype", array, ElementType::float32, MemoryOrder::keep,
                     nullptr);
}

}  // namespace

PyRef element_of(Array *array) noexcept {
    const ModuleState &state = state_of_type(object_of(array));
    if (array->type == ElementType::bfloat16) {
        const PyRef wide = as_float32(array);
        return wide ? element_of(array_of(wide.get())) : PyRef();
    }
    const PyRef values = to_numpy(state, "item", array, true);
    return values ? PyRef::steal(PyObject_CallMethod(values.get(), "item", nullptr)) : PyRef();
}

namespace {

// For text and lists: bfloat16 as float32, which holds its values.
PyRef host_values(Array *array) noexcept {
    const ModuleState &state = state_of_type(object_of(array));
    if (array->type != ElementType::bfloat16) return to_numpy(state, "tolist", array, true);
    const PyRef wide = as_float32(array);
    return wide ? to_numpy(state, "tolist", array_of(wide.get()), false) : PyRef();
}

}  // namespace

PyObject *array_item(PyObject *self, PyObject *args) {
    const Py_ssize_t count = PyTuple_Size(args);
    if (count == 0) {
        if (array_of(self)->size() != 1) {
            PyErr_Format(PyExc_ValueError,
                         "item() without an index needs an array of one element; this one has %lld",
                         static_cast<long long>(array_of(self)->size()));
            return nullptr;
        }
        return element_of(array_of(self)).release();
    }
    PyObject *index = count == 1 ? PyTuple_GetItem(args, 0) : args;
    PyRef element;
    if (count == 1 && PyIndex_Check(index) && array_of(self)->ndim != 1) {  // counts through all elements
        const PyRef flat = raveled(array_of(self));
        element = flat ? indexed(array_of(flat.get()), index) : PyRef();
    } else {
        element = indexed(array_of(self), index);
    }
    if (!element) return nullptr;
    if (array_of(element.get())->ndim != 0) {
        PyErr_SetString(PyExc_ValueError, "item() needs an index for every dimension");
        return nullptr;
    }
    return element_of(array_of(element.get())).release();
}

PyObject *array_tolist(PyObject *self, PyObject *) {
    const PyRef values = host_values(array_of(self));
    return values ? PyObject_CallMethod(values.get(), "tolist", nullptr) : nullptr;
}

PyObject *array_repr(PyObject *self) {
    const PyRef values = host_values(array_of(self));
    const PyRef text = values ? PyRef::steal(PyObject_Repr(values.get())) : PyRef();
    if (!text) return nullptr;
    // NumPy's own text but for the name, which is as long as ours: "array([1., 2.])".
    const PyRef ours = PyRef::steal(PyUnicode_FromString("Array"));
    const PyRef rest =
        ours ? PyRef::steal(PyUnicode_Substring(text.get(), 5, PyUnicode_GetLength(text.get()))) : PyRef();
    const PyRef whole = rest ? PyRef::steal(PyUnicode_Concat(ours.get(), rest.get())) : PyRef();
    if (!whole || array_of(self)->type != ElementType::bfloat16) return PyRef::borrow(whole.get()).release();
    const PyRef shown = PyRef::steal(PyUnicode_FromString("float32"));
    const PyRef name = PyRef::steal(PyUnicode_FromString("bfloat16"));
    return shown && name ? PyUnicode_Replace(whole.get(), shown.get(), name.get(), -1) : nullptr;
}

// format(x, ".2f"): of one element that of its number. Any other takes no format but "", as in NumPy.
PyObject *array_format(PyObject *self, PyObject *spec) {
    if (!PyUnicode_Check(spec)) {
        PyErr_Format(PyExc_TypeError, "__format__: expected a str, got %R",
                     reinterpret_cast<PyObject *>(Py_TYPE(spec)));
        return nullptr;
    }
    if (PyUnicode_GetLength(spec) == 0) return PyObject_Str(self);
    if (array_of(self)->ndim != 0) {
        PyErr_Format(
            PyExc_TypeError,
            "__format__: %R formats numbers, and this is an array of %d dimensions; format its elements, as "
            "by a.tolist()",
            spec, array_of(self)->ndim);
        return nullptr;
    }
    const PyRef element = element_of(array_of(self));
    return element ? PyObject_Format(element.get(), spec) : nullptr;
}

// round(x), round(x, 2): of one element that of its number.
PyObject *array_round(PyObject *self, PyObject *args) {
    PyObject *digits = nullptr;
    if (PyArg_ParseTuple(args, "|O:__round__", &digits) == 0) return nullptr;
    if (array_of(self)->ndim != 0) {
        PyErr_SetString(
            PyExc_TypeError,
            "round() takes an array without dimensions; cukern.round rounds all elements of any array");
        return nullptr;
    }
    const PyRef element = element_of(array_of(self));
    if (element && PyComplex_Check(element.get())) {
        PyErr_SetString(PyExc_TypeError, "round() takes no complex number");
        return nullptr;
    }
    const PyRef method = element ? PyRef::steal(PyObject_GetAttrString(element.get(), "__round__")) : PyRef();
    return method ? PyObject_CallFunctionObjArgs(method.get(), digits, nullptr) : nullptr;
}

int array_bool(PyObject *self) {
    if (array_of(self)->size() != 1) {
        PyErr_Format(PyExc_ValueError, "the truth of an array of %lld elements is ambiguous",
                     static_cast<long long>(array_of(self)->size()));
        return -1;
    }
    const PyRef element = element_of(array_of(self));
    return element ? PyObject_IsTrue(element.get()) : -1;
}

PyObject *array_int(PyObject *self) {
    if (!check_single(array_of(self), "int")) return nullptr;
    const PyRef element = element_of(array_of(self));
    return element ? PyNumber_Long(element.get()) : nullptr;
}

PyObject *array_float(PyObject *self) {
    if (!check_single(array_of(self), "float")) return nullptr;
    const PyRef element = element_of(array_of(self));
    return element ? PyNumber_Float(element.get()) : nullptr;
}

PyObject *array_complex(PyObject *self, PyObject *) {
    if (!check_single(array_of(self), "complex")) return nullptr;
    const PyRef element = element_of(array_of(self));
    if (!element || PyComplex_Check(element.get())) return PyRef::borrow(element.get()).release();
    const double real = PyFloat_AsDouble(element.get());
    return real == -1.0 && PyErr_Occurred() != nullptr ? nullptr : PyComplex_FromDoubles(real, 0);
}

PyObject *array_index(PyObject *self) {
    const Array *array = array_of(self);
    if (array->ndim != 0 || !is_integer(array->type)) {
        PyErr_SetString(PyExc_TypeError, "only an integer array without dimensions is an index");
        return nullptr;
    }
    return element_of(array_of(self)).release();
}

}  // namespace cukern::py
