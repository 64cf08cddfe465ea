// cukern.RawKernel: a kernel that a user brings. What a launch does is in launch.cpp.
#include "base/python.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "base/backend.h"
#include "base/errors.h"
#include "base/methods.h"
#include "base/signature.h"
#include "kernels/kernels.h"
#include "streams/stream_types.h"

namespace cukern::py {
namespace {

#define CUKERN_LAUNCH                                                                              \
    "($self, /, grid, block, args, *, shared_mem=0, stream=None, cluster=None, cooperative=None, " \
    "unchecked=False)"

}  // namespace

PyRef make_kernel(ModuleState &state, RawModuleObject *module, PyObject *name, bool cooperative) noexcept {
    Py_ssize_t length = 0;
    const char *text = PyUnicode_AsUTF8AndSize(name, &length);
    if (text == nullptr) return {};
    if (std::strlen(text) != static_cast<std::size_t>(length)) {
        PyErr_Format(PyExc_ValueError, "RawKernel: a kernel's name has no null character, got %R", name);
        return {};
    }
    auto *self = make<RawKernelObject>(state.raw_kernel_type);
    if (self == nullptr) return {};
    self->module = as_module(PyRef::borrow(reinterpret_cast<PyObject *>(module)).release());
    self->name = PyRef::borrow(name).release();
    self->text = text;
    self->cooperative = cooperative;
    self->max_dynamic_shared = -1;
    self->carveout = -2;
    self->vectorcall = [](PyObject *callable, PyObject *const *values, std::size_t flags, PyObject *names) {
        static constexpr Signature kSignature(CUKERN_LAUNCH);
        RawKernelObject *kernel = as_kernel(callable);
        PyObject *arguments[Signature::kMost];
        PyObject *result = nullptr;
        if (!kSignature.parse(kernel->text, callable, values, vectorcall_count(flags), names, arguments))
            return result;
        LaunchRequest request;
        request.stream = arguments[5];
        if (!parse_extent(kernel->text, "grid", arguments[1], request.shape.grid) ||
            !parse_extent(kernel->text, "block", arguments[2], request.shape.block) ||
            !parse_shared(kernel->text, arguments[4], &request.shape.shared) ||
            (is_given(arguments[6]) &&
             !parse_extent(kernel->text, "cluster", arguments[6], request.shape.cluster)) ||
            !parse_flag(given_or_null(arguments[7]), &request.shape.cooperative) ||
            !parse_flag(arguments[8], &request.unchecked))
            return result;
        // A list may be changed by code that runs meanwhile.
        PyRef held;
        PyObject *args = arguments[3];
        if (PyTuple_Check(args) == 0) {
            if (PyList_Check(args) == 0) {
                PyErr_Format(PyExc_TypeError, "%s: args must be a tuple of the kernel's arguments, got %R",
                             kernel->text, args);
                return result;
            }
            held = PyRef::steal(PySequence_Tuple(args));
            if (!held) return result;
            args = held.get();
        }
        constexpr Py_ssize_t kFew = 16;
        const Py_ssize_t count = PyTuple_Size(args);
        PyObject *few[kFew];
        std::unique_ptr<PyObject *[]> many;
        PyObject **objects = few;
        if (count > kFew) {
            many.reset(new (std::nothrow) PyObject *[static_cast<std::size_t>(count)]);
            objects = many.get();
            if (objects == nullptr) return PyErr_NoMemory();
        }
        for (Py_ssize_t i = 0; i < count; ++i) objects[i] = PyTuple_GetItem(args, i);
        const PyRef alive = PyRef::borrow(callable);
        if (launch_kernel(state_of_type(callable), kernel, request, objects, count))
            result = PyRef::borrow(Py_None).release();
        return result;
    };
    return PyRef::steal(reinterpret_cast<PyObject *>(self));
}

namespace {

PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"code", "name", "options", "backend", "enable_cooperative_groups",
                                        nullptr};
    PyObject *code = nullptr;
    PyObject *name = nullptr;
    PyObject *options = nullptr;
    PyObject *compiler = nullptr;
    int cooperative = 0;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "OU|OO$p:RawKernel", const_cast<char **>(names), &code, &name,
                                    &options, &compiler, &cooperative) == 0)
        return nullptr;
    if (is_given(compiler) &&
        (PyUnicode_Check(compiler) == 0 || PyUnicode_CompareWithASCIIString(compiler, "nvrtc") != 0))
        return PyErr_Format(PyExc_ValueError, "RawKernel: backend must be 'nvrtc', got %R", compiler);
    ModuleState &state = state_of(PyType_GetModule(type));
    const PyRef expressions = PyUnicode_Check(code) != 0 ? PyRef::steal(PyTuple_Pack(1, name)) : PyRef();
    if (PyErr_Occurred() != nullptr) return nullptr;
    const PyRef module = make_module(state, "RawKernel", code, nullptr, given_or_null(options), expressions.get());
    return module ? make_kernel(state, as_module(module.get()), name, cooperative != 0).release() : nullptr;
}

void kernel_dealloc(PyObject *self) {
    RawKernelObject *kernel = as_kernel(self);
    if (kernel->weak_references != nullptr) PyObject_ClearWeakRefs(self);
    Py_XDECREF(reinterpret_cast<PyObject *>(kernel->module));
    Py_CLEAR(kernel->name);
    free_object(self);
}

PyObject *kernel_call(PyObject *self, PyObject *args, PyObject *keywords) {
    return call_by_vectorcall(self, args, keywords, as_kernel(self)->vectorcall);
}

// k[grid, block], k[grid, block, stream], k[grid, block, stream, shared_mem].
PyObject *kernel_subscript(PyObject *self, PyObject *key) {
    const char *const function = as_kernel(self)->text;
    const Py_ssize_t count = PyTuple_Check(key) != 0 ? PyTuple_Size(key) : 1;
    if (count < 2 || count > 4)
        return PyErr_Format(PyExc_TypeError,
                            "%s: expected k[grid, block], k[grid, block, stream] or "
                            "k[grid, block, stream, shared_mem], got k[%R]",
                            function, key);
    LaunchRequest request;
    if (count > 2) request.stream = PyTuple_GetItem(key, 2);
    if (!parse_extent(function, "grid", PyTuple_GetItem(key, 0), request.shape.grid) ||
        !parse_extent(function, "block", PyTuple_GetItem(key, 1), request.shape.block) ||
        (count > 3 && !parse_shared(function, PyTuple_GetItem(key, 3), &request.shape.shared)))
        return nullptr;
    return make_launcher(state_of_type(self), self, request).release();
}

#define CUKERN_OVER "($self, /, threads, *, shared_mem=0, stream=None)"

PyObject *kernel_over(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_OVER);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("over", self, values, count, names, arguments)) return nullptr;
    LaunchRequest request;
    request.stream = arguments[3];
    const Py_ssize_t threads = PyNumber_AsSsize_t(arguments[1], PyExc_OverflowError);
    if (threads == -1 && PyErr_Occurred() != nullptr) return nullptr;
    if (threads < 0) return PyErr_Format(PyExc_ValueError, "over: the number of threads is %zd", threads);
    request.threads = threads;
    if (!parse_shared("over", arguments[2], &request.shape.shared)) return nullptr;
    return make_launcher(state_of_type(self), self, request).release();
}

// On the current device.
bool kernel_here(PyObject *self, int *device, LoadedKernel **loaded) noexcept {
    ModuleState &state = state_of_type(self);
    Backend backend;
    RawKernelObject *kernel = as_kernel(self);
    return ensure_backend(state, kernel->text, &backend) && parse_device(state, kernel->text, nullptr, device) &&
           kernel_on(state, kernel, *device, loaded);
}

PyObject *kernel_compile(PyObject *self, PyObject *) {
    int device = 0;
    LoadedKernel *loaded = nullptr;
    if (!kernel_here(self, &device, &loaded) || loaded == nullptr) return nullptr;
    Py_RETURN_NONE;
}

struct Attribute {
    const char *name;
    int KernelAttributes::*member;
    const char *doc;
};
constexpr Attribute kAttributes[] = {
    {"max_threads_per_block", &KernelAttributes::max_threads_per_block, "The most threads of a block."},
    {"shared_size_bytes", &KernelAttributes::shared_size_bytes, "Bytes of static shared memory of a block."},
    {"const_size_bytes", &KernelAttributes::const_size_bytes, "Bytes of constant memory."},
    {"local_size_bytes", &KernelAttributes::local_size_bytes, "Bytes of local memory of a thread."},
    {"num_regs", &KernelAttributes::num_regs, "Registers of a thread."},
    {"ptx_version", &KernelAttributes::ptx_version,
     "The PTX version that it was compiled for, 10 * major + minor."},
    {"binary_version", &KernelAttributes::binary_version, "The architecture of its code, 10 * major + minor."},
    {"cache_mode_ca", &KernelAttributes::cache_mode_ca, "Whether it was compiled to cache global loads in L1."},
    {"max_dynamic_shared_size_bytes", &KernelAttributes::max_dynamic_shared_size_bytes,
     "The most bytes of dynamic shared memory of a block; can be set."},
    {"preferred_shared_memory_carveout", &KernelAttributes::preferred_shared_memory_carveout,
     "Percent of the L1 cache that are shared memory, -1 for the driver's choice; can be set."},
};

PyObject *kernel_attribute(PyObject *self, void *closure) {
    int device = 0;
    LoadedKernel *loaded = nullptr;
    if (!kernel_here(self, &device, &loaded) || loaded == nullptr) return nullptr;
    return PyLong_FromLong(loaded->attributes->*static_cast<const Attribute *>(closure)->member);
}

PyObject *kernel_attributes(PyObject *self, void *) {
    int device = 0;
    LoadedKernel *loaded = nullptr;
    if (!kernel_here(self, &device, &loaded) || loaded == nullptr) return nullptr;
    PyRef all = PyRef::steal(PyDict_New());
    for (const Attribute &attribute : kAttributes) {
        const PyRef value = PyRef::steal(PyLong_FromLong(loaded->attributes->*attribute.member));
        if (!all || !value || PyDict_SetItemString(all.get(), attribute.name, value.get()) != 0) return nullptr;
    }
    return all.release();
}

// For all devices: those that it is on, and those to come.
int set_kernel(PyObject *self, PyObject *value, KernelSetting setting, int least, int *kept) noexcept {
    RawKernelObject *kernel = as_kernel(self);
    if (value == nullptr) {
        PyErr_Format(PyExc_AttributeError, "%s: attributes of kernels cannot be deleted", kernel->text);
        return -1;
    }
    const long number = PyLong_AsLong(value);
    if (number == -1 && PyErr_Occurred() != nullptr) return -1;
    if (number < least || number > 0x7FFFFFFF) {
        PyErr_Format(PyExc_ValueError, "%s: the value must be at least %d, got %ld", kernel->text, least, number);
        return -1;
    }
    for (int device = 0; device < kMostDevices; ++device) {
        if (kernel->loaded[device].kernel == nullptr) continue;
        kernel->loaded[device].block = 0;
        const Status status = kernel->loaded[device].kernel->set(device, setting, static_cast<int>(number));
        if (status != CUKERN_OK) {
            raise_status(state_of_type(self), kernel->text, status);
            return -1;
        }
    }
    *kept = static_cast<int>(number);
    return 0;
}

int set_max_dynamic_shared(PyObject *self, PyObject *value, void *) {
    return set_kernel(self, value, KernelSetting::max_dynamic_shared_size, 0,
                      &as_kernel(self)->max_dynamic_shared);
}

int set_carveout(PyObject *self, PyObject *value, void *) {
    return set_kernel(self, value, KernelSetting::preferred_shared_memory_carveout, -1,
                      &as_kernel(self)->carveout);
}

PyObject *kernel_code(PyObject *self, void *) { return PyRef::borrow(as_kernel(self)->module->code).release(); }
PyObject *kernel_options(PyObject *self, void *) {
    return PyRef::borrow(as_kernel(self)->module->options).release();
}

PyObject *kernel_repr(PyObject *self) {
    return PyUnicode_FromFormat("<cukern.RawKernel %U>", as_kernel(self)->name);
}

PyMethodDef kKernelMethods[] = {
    {"over", as_method(kernel_over), METH_FASTCALL | METH_KEYWORDS,
     "over" CUKERN_OVER
     "\n--\n\nReturn what launches the kernel on so many threads in one dimension, or a few more.\n\n"
     "The block is the one with which most threads run at once, by CUDA's occupancy calculator; the grid has as\n"
     "many as are needed, so that the kernel has to leave out threads beyond the last. No threads: no launch.\n\n"
     "Parameters\n----------\nthreads : int\nshared_mem : int\n    Bytes of dynamic shared memory of a block.\n"
     "stream : Stream, optional\n\nReturns\n-------\ncallable\n    It takes the kernel's arguments."},
    {"compile", kernel_compile, METH_NOARGS,
     "compile($self, /)\n--\n\nCompile and load for the current device now, and not when it is first needed."},
    {nullptr, nullptr, 0, nullptr},
};

#define CUKERN_KERNEL_ATTRIBUTE(i, set) \
    {kAttributes[i].name, kernel_attribute, set, kAttributes[i].doc, const_cast<Attribute *>(&kAttributes[i])}
PyGetSetDef kKernelAttributes[] = {
    {"attributes", kernel_attributes, nullptr, "What the kernel takes on the current device, as a dict.", nullptr},
    {"code", kernel_code, nullptr, "The source, or the image as bytes.", nullptr},
    {"options", kernel_options, nullptr, "Options of the compiler.", nullptr},
    CUKERN_KERNEL_ATTRIBUTE(0, nullptr),
    CUKERN_KERNEL_ATTRIBUTE(1, nullptr),
    CUKERN_KERNEL_ATTRIBUTE(2, nullptr),
    CUKERN_KERNEL_ATTRIBUTE(3, nullptr),
    CUKERN_KERNEL_ATTRIBUTE(4, nullptr),
    CUKERN_KERNEL_ATTRIBUTE(5, nullptr),
    CUKERN_KERNEL_ATTRIBUTE(6, nullptr),
    CUKERN_KERNEL_ATTRIBUTE(7, nullptr),
    CUKERN_KERNEL_ATTRIBUTE(8, set_max_dynamic_shared),
    CUKERN_KERNEL_ATTRIBUTE(9, set_carveout),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef kKernelMembers[] = {
    {"name", T_OBJECT, offsetof(RawKernelObject, name), READONLY, "The name that it was asked for by."},
    {"_follows", T_BOOL, offsetof(RawKernelObject, follows), 0,
     "Whether its code waits for the kernel before it, which may then still run as this one begins."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RawKernelObject, weak_references), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(RawKernelObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

constexpr const char *kKernelDoc =
    "RawKernel(code, name, options=(), backend='nvrtc', *, enable_cooperative_groups=False)\n--\n\n"
    "A CUDA kernel of one's own: ``kernel(grid, block, args)`` checks the arguments and launches it.\n\n"
    "Parameters\n----------\n"
    "code : str or bytes\n    CUDA C++, which NVRTC compiles at the first launch (``pip install cukern[nvrtc]``); "
    "or "
    "PTX, a\n    cubin or a fatbin, which need no NVRTC.\n"
    "name : str\n    Of the kernel: a template's instance as ``'saxpy<float>'``.\n"
    "options : sequence of str\n    NVRTC's, which are named as nvcc's: ``-I``, ``-D``, ``-std=c++20``.\n"
    "backend : 'nvrtc'\n    For calls that are written for CuPy.\n"
    "enable_cooperative_groups : bool\n    Whether its launches are cooperative: all blocks run at once.\n\n"
    "Notes\n-----\n"
    "A call takes\n\n"
    "grid, block : int or tuple of one to three ints\n"
    "args : tuple\n    Arrays of cukern, torch, CuPy and others in memory that the device reaches, of any "
    "strides,\n    "
    "for pointers to their first element; ``None`` for a null pointer and `Pointer` for any other address;\n    "
    "Python's numbers in the parameter's own type; NumPy's scalars of that very type; structured NumPy\n    "
    "scalars "
    "and structures of ctypes by value.\n"
    "shared_mem : int\n    Bytes of dynamic shared memory of a block.\n"
    "stream : Stream, optional\n    By default the one that operations would take.\n"
    "cluster : int or tuple, optional\n    Blocks of a cluster.\n"
    "cooperative : bool, optional\n"
    "unchecked : bool\n    Leaves out the checks of types; the number and the sizes of arguments are checked "
    "still.\n\n"
    "It raises TypeError, ValueError or OverflowError for arguments that don't fit, and CompileError where the\n"
    "source does not compile. A kernel that is ``extern \"C\"`` has no types in its name: then only sizes are\n"
    "checked.\n\n"
    "Examples\n--------\n"
    ">>> import cukern\n"
    ">>> saxpy = cukern.RawKernel(r'''\n"
    "... template <typename T> __global__ void saxpy(T a, const T *x, T *y, int n) {\n"
    "...     int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "...     if (i < n) y[i] += a * x[i];\n"
    "... }''', 'saxpy<float>')\n"
    ">>> if cukern.backend() == 'cuda':\n"
    "...     x = cukern.ones(1000, dtype='float32')\n"
    "...     y = cukern.zeros(1000, dtype='float32')\n"
    "...     saxpy((4,), (256,), (2.0, x, y, x.size))\n"
    "...     saxpy[4, 256](2.0, x, y, x.size)\n"
    "...     saxpy.over(x.size)(2.0, x, y, x.size)\n";

PyType_Slot kKernelSlots[] = {
    {Py_tp_doc, const_cast<char *>(kKernelDoc)},
    {Py_tp_new, reinterpret_cast<void *>(kernel_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(kernel_dealloc)},
    {Py_tp_call, reinterpret_cast<void *>(kernel_call)},
    {Py_tp_repr, reinterpret_cast<void *>(kernel_repr)},
    {Py_mp_subscript, reinterpret_cast<void *>(kernel_subscript)},
    {Py_tp_methods, kKernelMethods},
    {Py_tp_getset, kKernelAttributes},
    {Py_tp_members, kKernelMembers},
    {0, nullptr},
};

}  // namespace

PyType_Spec kRawKernelSpec = {"cukern.RawKernel", sizeof(RawKernelObject), 0, Py_TPFLAGS_DEFAULT | kHaveVectorcall,
                              kKernelSlots};

}  // namespace cukern::py
