// What k[grid, block] and k.over(threads) are: a kernel with all but its arguments.
#include "base/python.h"

#include <cstddef>

#include "kernels/kernels.h"
#include "streams/stream_types.h"

namespace cukern::py {
namespace {

struct LauncherObject {
    PyObject_HEAD Vectorcall vectorcall;
    PyObject *kernel;  // owned
    PyObject *stream;  // owned, or null
    LaunchRequest request;
};

LauncherObject *as_launcher(PyObject *object) noexcept { return reinterpret_cast<LauncherObject *>(object); }

PyObject *launch(PyObject *callable, PyObject *const *values, std::size_t flags, PyObject *names) {
    const LauncherObject *self = as_launcher(callable);
    if (names != nullptr && PyTuple_Size(names) > 0)
        return PyErr_Format(PyExc_TypeError, "%s: a kernel's arguments have no keywords",
                            as_kernel(self->kernel)->text);
    const PyRef alive = PyRef::borrow(callable);
    if (!launch_kernel(state_of_type(self->kernel), as_kernel(self->kernel), self->request, values,
                       vectorcall_count(flags)))
        return nullptr;
    Py_RETURN_NONE;
}

void launcher_dealloc(PyObject *self) {
    LauncherObject *launcher = as_launcher(self);
    Py_CLEAR(launcher->kernel);
    Py_CLEAR(launcher->stream);
    free_object(self);
}

PyObject *launcher_call(PyObject *self, PyObject *args, PyObject *keywords) {
    return call_by_vectorcall(self, args, keywords, launch);
}

PyObject *launcher_repr(PyObject *self) {
    const LauncherObject *launcher = as_launcher(self);
    const LaunchRequest &request = launcher->request;
    if (request.threads >= 0)
        return PyUnicode_FromFormat("<%R over %lld threads>", launcher->kernel,
                                    static_cast<long long>(request.threads));
    const LaunchShape &shape = request.shape;
    return PyUnicode_FromFormat("<%R of (%u, %u, %u) blocks of (%u, %u, %u) threads>", launcher->kernel,
                                shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0], shape.block[1],
                                shape.block[2]);
}

PyMemberDef kLauncherMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(LauncherObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot kLauncherSlots[] = {
    {Py_tp_doc, const_cast<char *>("A kernel with its grid and block: called with the kernel's arguments.")},
    {Py_tp_dealloc, reinterpret_cast<void *>(launcher_dealloc)},
    {Py_tp_call, reinterpret_cast<void *>(launcher_call)},
    {Py_tp_repr, reinterpret_cast<void *>(launcher_repr)},
    {Py_tp_members, kLauncherMembers},
    {0, nullptr},
};

}  // namespace

PyRef make_launcher(ModuleState &state, PyObject *kernel, const LaunchRequest &request) noexcept {
    auto *self = make<LauncherObject>(state.launcher_type);
    if (self == nullptr) return {};
    self->vectorcall = launch;
    self->kernel = PyRef::borrow(kernel).release();
    self->request = request;
    self->stream = PyRef::borrow(request.stream).release();
    return PyRef::steal(reinterpret_cast<PyObject *>(self));
}

const LaunchRequest &launcher_request(PyObject *launcher, PyObject **kernel) noexcept {
    *kernel = as_launcher(launcher)->kernel;
    return as_launcher(launcher)->request;
}

bool launch_by(ModuleState &state, PyObject *launcher, PyObject *const *arguments, Py_ssize_t count) noexcept {
    if (reinterpret_cast<PyObject *>(Py_TYPE(launcher)) == state.launcher_type) {
        const LauncherObject *self = as_launcher(launcher);
        return launch_kernel(state, as_kernel(self->kernel), self->request, arguments, count);
    }
    const PyRef all = PyRef::steal(PyTuple_New(count));
    for (Py_ssize_t i = 0; all && i < count; ++i)
        if (PyTuple_SetItem(all.get(), i, PyRef::borrow(arguments[i]).release()) != 0) return false;
    return all && PyRef::steal(PyObject_CallObject(launcher, all.get()));
}

PyType_Spec kLauncherSpec = {"cukern._Launcher", sizeof(LauncherObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | kHaveVectorcall,
                             kLauncherSlots};

}  // namespace cukern::py
