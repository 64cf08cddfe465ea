// The functions that cukern.torch registers kernels by.
#include "base/python.h"

#include "base/methods.h"
#include "torch/backend.h"
#include "torch/kernels.h"

namespace cukern::py {
namespace {

// The keys of torch's dispatcher under which kernels run.
constexpr const char *kKeys[] = {"CPU", "CUDA"};

bool register_rows(void *library, const TorchKernelRow *rows) noexcept {
    for (; rows->name != nullptr; ++rows) {
        if (shim().library_impl(library, rows->name, rows->kernel) == 0) continue;
        PyErr_Format(PyExc_RuntimeError, "cukern.torch: torch does not register cukern::%s", rows->name);
        return false;
    }
    return true;
}

PyObject *register_method(PyObject *module, PyObject *) {
    const char *missing = nullptr;
    if (!find_shim(&missing)) return PyUnicode_FromString(missing);
    set_torch_module(module);
    for (const char *key : kKeys) {
        void *library = nullptr;  // lives as long as the process
        if (shim().library_init_impl("cukern", key, "ext/torch/register.cpp", __LINE__, &library) != 0)
            return PyErr_Format(PyExc_RuntimeError, "cukern.torch: torch makes no library for %s", key);
        if (!register_rows(library, kTorchElementwise) || !register_rows(library, kTorchProducts)) return nullptr;
    }
    Py_RETURN_NONE;
}

}  // namespace

PyMethodDef kTorchMethods[] = {
    {"_register_torch_kernels", register_method, METH_NOARGS,
     "_register_torch_kernels()\n--\n\nRegister kernels for the defined operations of torch.ops.cukern.\n\n"
     "Return the name of the first function of torch's C shim that is missing; None: all are there."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
