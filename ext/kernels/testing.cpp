// What only tests use: names of kernels and checks of arguments, without a GPU.
#include "base/python.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/backend.h"
#include "base/errors.h"
#include "base/methods.h"
#include "kernels/arguments.h"

namespace cukern::py {
namespace {

// A kernel of which no more is known than its name and its parameters' sizes; they lie one after the other, each
// at a multiple of its size, up to 16.
class DescribedKernel final : public UserKernel {
public:
    bool describe(const char *name, const Py_ssize_t *sizes, int count) noexcept {
        name_ = strdup(name);
        num_parameters_ = count;
        parameters_ = new (std::nothrow) KernelParameter[static_cast<std::size_t>(count) + 1];
        if (name_ == nullptr || parameters_ == nullptr) return false;
        for (int i = 0; i < count; ++i) {
            const auto size = static_cast<std::size_t>(sizes[i]);
            std::size_t alignment = 1;
            while (alignment < 16 && size % (2 * alignment) == 0) alignment *= 2;
            const std::size_t offset = (bytes_ + alignment - 1) / alignment * alignment;
            parameters_[i].offset = offset;
            parameters_[i].size = size;
            bytes_ = offset + size;
        }
        return describe_parameters(name, parameters_, count);
    }
    ~DescribedKernel() override {
        std::free(name_);
        delete[] parameters_;
    }
    Status attributes(int, const KernelAttributes **) noexcept override { return CUKERN_NOT_SUPPORTED; }
    Status set(int, KernelSetting, int) noexcept override { return CUKERN_NOT_SUPPORTED; }
    Status occupancy(int, unsigned, int *, int *) noexcept override { return CUKERN_NOT_SUPPORTED; }
};

// _pack_arguments(name, sizes, args, unchecked, code=None, asked=None): the block of parameters that a launch
// would pass, of a kernel that is asked for by a name, from a source.
PyObject *pack_method(PyObject *module, PyObject *args) {
    constexpr Py_ssize_t kMost = 64;
    const char *name = nullptr;
    PyObject *sizes = nullptr;
    PyObject *values = nullptr;
    int unchecked = 0;
    PyObject *code = nullptr;
    PyObject *asked = nullptr;
    if (PyArg_ParseTuple(args, "sO!O!p|OO:_pack_arguments", &name, &PyTuple_Type, &sizes, &PyTuple_Type, &values,
                         &unchecked, &code, &asked) == 0)
        return nullptr;
    const Py_ssize_t count = PyTuple_Size(values);
    Py_ssize_t bytes[kMost];
    PyObject *objects[kMost];
    const Py_ssize_t parameters = PyTuple_Size(sizes);
    if (count > kMost || parameters > kMost) return PyErr_Format(PyExc_ValueError, "too many arguments");
    for (Py_ssize_t i = 0; i < parameters; ++i) {
        bytes[i] = PyLong_AsSsize_t(PyTuple_GetItem(sizes, i));
        if (PyErr_Occurred() != nullptr) return nullptr;
    }
    for (Py_ssize_t i = 0; i < count; ++i) objects[i] = PyTuple_GetItem(values, i);
    ModuleState &state = state_of(module);
    Backend backend;
    DescribedKernel kernel;
    if (!kernel.describe(name, bytes, static_cast<int>(parameters))) return PyErr_NoMemory();
    KernelArguments arguments(state, name, objects, count, code, asked);
    HeldStream stream;
    if (!ensure_backend(state, name, &backend) || !arguments.read(nullptr) ||
        !arguments.choose_stream_for(nullptr, &stream))
        return nullptr;
    const std::unique_ptr<unsigned char[]> block(new (std::nothrow) unsigned char[kernel.parameter_bytes() + 1]());
    if (block == nullptr) return PyErr_NoMemory();
    if (!arguments.pack(kernel, stream->device, unchecked != 0, block.get()) || !arguments.begin(stream) ||
        !arguments.end(stream))
        return nullptr;
    return PyBytes_FromStringAndSize(reinterpret_cast<const char *>(block.get()),
                                     static_cast<Py_ssize_t>(kernel.parameter_bytes()));
}

// _kernel_signature(name): the name and the parameters' types in C++, or None where the name is not understood.
PyObject *signature_method(PyObject *, PyObject *args) {
    constexpr int kMost = 64;
    const char *name = nullptr;
    if (PyArg_ParseTuple(args, "s:_kernel_signature", &name) == 0) return nullptr;
    char plain[256];
    int count = 0;
    const std::unique_ptr<ParameterType[]> types(new (std::nothrow) ParameterType[kMost]);
    if (types == nullptr) return PyErr_NoMemory();
    if (!plain_name(name, plain, sizeof plain) || !parameter_types(name, types.get(), kMost, &count))
        Py_RETURN_NONE;
    const PyRef list = PyRef::steal(PyList_New(0));
    constexpr const char *kKinds[] = {"unknown", "pointer", "number", "structure"};
    for (int i = 0; list && i < count && i < kMost; ++i) {
        const ParameterType &type = types[static_cast<std::size_t>(i)];
        const PyRef row = PyRef::steal(Py_BuildValue("ssOs", kKinds[static_cast<int>(type.kind)], type.text,
                                                     type.is_const ? Py_True : Py_False, name_of(type.element)));
        if (!row || PyList_Append(list.get(), row.get()) != 0) return nullptr;
    }
    return list ? Py_BuildValue("sO", plain, list.get()) : nullptr;
}

// _check_image(image): ValueError for an image that is cut off.
PyObject *check_image_method(PyObject *module, PyObject *image) {
    BufferHolder buffer;
    if (!buffer.acquire(image, PyBUF_SIMPLE)) return nullptr;
    const Status status = check_image(buffer.get().buf, static_cast<std::size_t>(buffer.get().len));
    if (status == CUKERN_OK) Py_RETURN_NONE;
    raise_status(state_of(module), "_check_image", status);
    return nullptr;
}

}  // namespace

PyMethodDef kKernelTestingMethods[] = {
    {"_check_image", check_image_method, METH_O,
     "_check_image(image, /)\n--\n\nRaise ValueError for an image that is cut off."},
    {"_pack_arguments", pack_method, METH_VARARGS,
     "_pack_arguments(name, sizes, args, unchecked, code=None, asked=None, /)\n--\n\nReturn the parameters that a "
     "launch would pass."},
    {"_kernel_signature", signature_method, METH_VARARGS,
     "_kernel_signature(name, /)\n--\n\nReturn what a mangled name says."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
