// The functions that cukern.torch registers kernels by.
#include "base/python.h"

#include <cstring>

#include "base/methods.h"
#include "torch/backend.h"
#include "torch/kernels.h"
#include "torch/plain_tensors.h"
#include "torch/raw_kernels.h"

namespace cukern::py {
namespace {

// The keys of torch's dispatcher under which kernels run.
constexpr const char *kKeys[] = {"CPU", "CUDA"};

const TorchKernelRow *find_row(const char *name) noexcept {
    for (const TorchKernelRow *rows : {kTorchElementwise, kTorchProducts, kTorchReductions})
        for (; rows->name != nullptr; ++rows)
            if (std::strcmp(rows->name, name) == 0) return rows;
    return nullptr;
}

// `names`: what operations are called, and their kernels.
bool register_kernels(void *library, PyObject *names) noexcept {
    Py_ssize_t position = 0;
    PyObject *operation = nullptr;
    PyObject *kernel = nullptr;
    while (PyDict_Next(names, &position, &operation, &kernel) != 0) {
        const char *const text = PyUnicode_AsUTF8AndSize(operation, nullptr);
        const char *const wanted = text != nullptr ? PyUnicode_AsUTF8AndSize(kernel, nullptr) : nullptr;
        if (wanted == nullptr) return false;
        const TorchKernelRow *const row = find_row(wanted);
        if (row != nullptr && shim().library_impl(library, text, row->kernel) == 0) continue;
        PyErr_Format(PyExc_RuntimeError,
                     row == nullptr ? "cukern.torch: there is no kernel %s"
                                    : "cukern.torch: torch does not register cukern::%s",
                     row == nullptr ? wanted : text);
        return false;
    }
    return true;
}

PyObject *register_method(PyObject *module, PyObject *args) {
    PyObject *names = nullptr;
    int have_lists = 0;
    if (PyArg_ParseTuple(args, "O!p:_register_torch_kernels", &PyDict_Type, &names, &have_lists) == 0)
        return nullptr;
    const char *missing = nullptr;
    if (!find_shim(&missing) || (have_lists != 0 && !find_list_functions(&missing)))
        return PyUnicode_FromString(missing);
    set_torch_module(module);
    for (const char *key : kKeys) {
        void *library = nullptr;  // lives as long as the process
        if (shim().library_init_impl("cukern", key, "ext/torch/register.cpp", __LINE__, &library) != 0)
            return PyErr_Format(PyExc_RuntimeError, "cukern.torch: torch makes no library for %s", key);
        if (!register_kernels(library, names)) return nullptr;
    }
    Py_RETURN_NONE;
}

}  // namespace

PyMethodDef kTorchMethods[] = {
    {"_register_torch_kernels", register_method, METH_VARARGS,
     "_register_torch_kernels(names, have_lists, /)\n--\n\nRegister kernels for operations of "
     "torch.ops.cukern.\n\n"
     "`names` is a dict: the operations' names, with their overloads, and the names of their kernels.\n"
     "`have_lists`: whether there are lists among their arguments.\n"
     "Return the name of the first function of torch's C shim that is missing; None: all are there."},
    {"_register_torch_raw_kernel", register_raw_kernel, METH_VARARGS,
     "_register_torch_raw_kernel(library, name, kernel, arguments, num_results, size_argument, /)\n--\n\n"
     "Register a RawKernel, or one with its grid and block, for the operation library::name on GPUs.\n\n"
     "`arguments` has a letter for each: t for a tensor, w for one that is written to, i for an int, f for a\n"
     "float, b for a bool. Results are like the first tensor, packed. Return False where calls need Python."},
    {"_are_plain", as_method(are_plain), METH_FASTCALL | METH_KEYWORDS,
     "_are_plain(*tensors)\n--\n\n"
     "Return whether tensors are packed floats, with dimensions, of one shape, type and device, and require no\n"
     "gradient. False, too, where torch has no exchange API, or no tensor of this type has been read before."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
