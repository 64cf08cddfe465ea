// Arrays of the host among the arguments of a kernel of formulas, which takes copies of them on the device.
#include "base/python.h"

#include "base/backend.h"
#include "base/methods.h"
#include "call/operand.h"
#include "interop/frameworks.h"
#include "types/element_types.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

// _host_layout(array, function, name)
PyObject *host_layout_method(PyObject *module, PyObject *args) {
    PyObject *array = nullptr;
    const char *function = nullptr;
    const char *name = nullptr;
    if (PyArg_ParseTuple(args, "Oss:_host_layout", &array, &function, &name) == 0) return nullptr;
    const ModuleState &state = state_of(module);
    Backend backend;
    ReadContext reading;
    Operand operand;
    if (!ensure_backend(state_of(module), function, &backend) ||
        !operand.read_layout({state, function, name}, array, reading))
        return nullptr;
    if (!operand.on_host()) Py_RETURN_NONE;
    const ByteLayout &layout = operand.layout();
    const PyRef shape = tuple_of(layout.ndim, layout.shape);
    const PyRef steps = tuple_of(layout.ndim, layout.strides, layout.stride_unit);
    const PyRef address = PyRef::steal(PyLong_FromVoidPtr(const_cast<void *>(layout.data)));
    if (!shape || !steps || !address) return nullptr;
    return Py_BuildValue("sOOOO", name_of(operand.type()), shape.get(), steps.get(), address.get(),
                         operand.is_writable() ? Py_True : Py_False);
}

// _allocate_like(like, element, shape): of a library with the exchange API; None of others.
PyObject *allocate_like_method(PyObject *module, PyObject *args) {
    PyObject *like = nullptr;
    PyObject *dtype = nullptr;
    PyObject *lengths = nullptr;
    if (PyArg_ParseTuple(args, "OOO:_allocate_like", &like, &dtype, &lengths) == 0) return nullptr;
    const ModuleState &state = state_of(module);
    const ArgumentInfo argument{state, "_allocate_like", "like"};
    ReadContext reading;
    Operand operand;
    ElementType type{};
    Shape shape;
    if (!operand.read_layout(argument, like, reading) || !parse_dtype(state, argument.function, dtype, &type) ||
        !parse_shape(argument.function, lengths, &shape))
        return nullptr;
    if (operand.family() != Family::exchange) Py_RETURN_NONE;
    ForeignArray fresh;
    return make_by_exchange(argument, operand.api(), operand.foreign_device(), type, shape, &fresh).release();
}

}  // namespace

PyMethodDef kHostArgumentMethods[] = {
    {"_host_layout", host_layout_method, METH_VARARGS,
     "_host_layout(array, function, name, /)\n--\n\nReturn the element type, the shape, the strides in bytes, the "
     "address and whether it can be written to of an array that lies on the host; None of others."},
    {"_allocate_like", allocate_like_method, METH_VARARGS,
     "_allocate_like(like, dtype, shape, /)\n--\n\nReturn a new array where `like` is, of its library, if that "
     "has "
     "DLPack's exchange API; else None."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
