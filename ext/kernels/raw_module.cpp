// cukern.RawModule: a source or an image, compiled by cukern._compile and loaded when it is needed.
#include "base/python.h"

#include "kernels/kernels.h"

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/backend.h"
#include "base/errors.h"
#include "base/methods.h"
#include "base/signature.h"
#include "interop/array_exchange.h"
#include "streams/stream_types.h"
#include "types/element_types.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

// cukern._compile, which is imported when it is first needed.
PyRef compile_module() noexcept { return PyRef::steal(PyImport_ImportModule("cukern._compile")); }

PyObject *module_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"code", "path", "options", "backend", "name_expressions", nullptr};
    PyObject *code = nullptr;
    PyObject *path = nullptr;
    PyObject *options = nullptr;
    PyObject *expressions = nullptr;
    PyObject *compiler = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOOO:RawModule", const_cast<char **>(names), &code, &path,
                                    &options, &compiler, &expressions) == 0)
        return nullptr;
    if (is_given(compiler) &&
        (PyUnicode_Check(compiler) == 0 || PyUnicode_CompareWithASCIIString(compiler, "nvrtc") != 0))
        return PyErr_Format(PyExc_ValueError, "RawModule: backend must be 'nvrtc', got %R", compiler);
    return make_module(state_of(PyType_GetModule(type)), "RawModule", given_or_null(code), given_or_null(path),
                       given_or_null(options), given_or_null(expressions))
        .release();
}

void module_dealloc(PyObject *self) {
    RawModuleObject *module = as_module(self);
    if (module->weak_references != nullptr) PyObject_ClearWeakRefs(self);
    Py_CLEAR(module->code);
    Py_CLEAR(module->options);
    Py_CLEAR(module->names);
    Py_CLEAR(module->lowered);
    free_object(self);
}

// Compiles the source for a device: its image, as bytes.
PyRef compile_for(ModuleState &state, RawModuleObject *module, int device) noexcept {
    DeviceInfo info;
    Status status = CUKERN_OK;
    {
        const GilRelease released;
        status = device_info(device, &info);
    }
    if (status != CUKERN_OK) {
        raise_status(state, "compile", status);
        return {};
    }
    const PyRef compiler = compile_module();
    if (!compiler) return {};
    const PyRef built =
        PyRef::steal(PyObject_CallMethod(compiler.get(), "build", "OOOii", module->code, module->options,
                                         module->names, info.capability_major, info.capability_minor));
    if (!built) return {};
    PyObject *image = nullptr;
    PyObject *lowered = nullptr;
    if (PyArg_ParseTuple(built.get(), "SO!:build", &image, &PyDict_Type, &lowered) == 0) return {};
    PyRef old = PyRef::steal(std::exchange(module->lowered, PyRef::borrow(lowered).release()));
    return PyRef::borrow(image);
}

// What a name that was asked for is called in the image; the name itself where the compiler tells no other.
PyRef name_in_image(RawModuleObject *module, PyObject *name) noexcept {
    const PyRef names = PyRef::borrow(module->lowered);
    PyObject *found = names ? PyDict_GetItemWithError(names.get(), name) : nullptr;
    if (found == nullptr && PyErr_Occurred() != nullptr) return {};
    return PyRef::borrow(found != nullptr ? found : name);
}

struct NameSearch {
    const char *wanted;
    const char *found = nullptr;
    int matches = 0;
    char all[1024] = {};
    std::size_t used = 0;
};

// Compares the name as C++ writes it, and as the image has it.
void visit_name(void *data, const char *name) noexcept {
    auto *search = static_cast<NameSearch *>(data);
    char plain[256];
    const bool is_mangled = plain_name(name, plain, sizeof plain);
    if (is_mangled && std::strcmp(plain, search->wanted) == 0) {
        search->found = name;
        ++search->matches;
    }
    if (search->used + 1 >= sizeof search->all) return;
    search->used +=
        static_cast<std::size_t>(std::snprintf(search->all + search->used, sizeof search->all - search->used,
                                               "%s%s", search->used > 0 ? ", " : "", name));
}

bool raise_image(const ModuleState &state, const char *function, Status status, PyObject *image,
                 const char *log) noexcept {
    if (log[0] == '\0') return raise_failure(state, function, status);
    const ErrorRecord record = last_error();  // before Python code runs
    const PyRef compiler = compile_module();
    const PyRef shown =
        compiler ? PyRef::steal(PyObject_CallMethod(compiler.get(), "with_image", "Oy", image, log)) : PyRef();
    if (shown)
        PyErr_Format(state.compile_error, "%s: the driver refuses the image: %s\n%S", function, record.message,
                     shown.get());
    return false;
}

}  // namespace

bool image_on(ModuleState &state, const char *function, RawModuleObject *module, int device,
              KernelImage **image) noexcept {
    if (device < 0 || device >= kMostDevices) {
        PyErr_Format(PyExc_ValueError, "%s: there are at most %d devices", function, kMostDevices);
        return false;
    }
    *image = module->images[device];
    if (*image != nullptr) return true;
    const LaunchLimits *limits = nullptr;  // asked for first: without a GPU it says so
    if (const Status status = launch_limits(device, &limits); status != CUKERN_OK)
        return raise_failure(state, function, status);
    const bool is_source = PyUnicode_Check(module->code) != 0;
    const PyRef bytes = is_source ? compile_for(state, module, device) : PyRef::borrow(module->code);
    if (!bytes) return false;
    char log[2048] = {};
    Status status = CUKERN_OK;
    const char *data = PyBytes_AsString(bytes.get());
    const auto size = static_cast<std::size_t>(PyBytes_Size(bytes.get()));
    {
        const GilRelease released;
        status = KernelImage::load(data, size, device, log, sizeof log, image);
    }
    if (status != CUKERN_OK) return raise_image(state, function, status, bytes.get(), log);
    module->images[device] = *image;
    return true;
}

bool find_kernel(const ModuleState &state, const char *function, RawModuleObject *module, KernelImage *image,
                 PyObject *name, UserKernel **kernel) noexcept {
    const PyRef own = name_in_image(module, name);
    const char *wanted = own ? PyUnicode_AsUTF8AndSize(own.get(), nullptr) : nullptr;
    if (wanted == nullptr) return false;
    Status status = image->find(wanted, kernel);
    if (status == CUKERN_OK && *kernel != nullptr) return true;
    NameSearch search{wanted};
    if (status == CUKERN_OK) status = image->each_name(visit_name, &search);
    if (status == CUKERN_OK && search.matches == 1) status = image->find(search.found, kernel);
    if (status != CUKERN_OK) return raise_failure(state, function, status);
    if (*kernel != nullptr) return true;
    PyErr_Format(PyExc_AttributeError, "%s: %s; the kernels are %s", function,
                 search.matches > 1 ? "several kernels have this name, so pass one as the image has it"
                                    : "there is no kernel of this name, and instances of templates are named in "
                                      "name_expressions",
                 search.all[0] != '\0' ? search.all : "none");
    return false;
}

PyRef make_module(ModuleState &state, const char *function, PyObject *code, PyObject *path, PyObject *options,
                  PyObject *names) noexcept {
    const PyRef compiler = compile_module();
    const PyRef read = compiler ? PyRef::steal(PyObject_CallMethod(
                                      compiler.get(), "read", "sOOOO", function, code != nullptr ? code : Py_None,
                                      path != nullptr ? path : Py_None, options != nullptr ? options : Py_None,
                                      names != nullptr ? names : Py_None))
                                : PyRef();
    if (!read) return {};
    PyObject *source = nullptr;
    PyObject *all_options = nullptr;
    PyObject *all_names = nullptr;
    if (PyArg_ParseTuple(read.get(), "OO!O!:read", &source, &PyTuple_Type, &all_options, &PyTuple_Type,
                         &all_names) == 0)
        return {};
    auto *self = make<RawModuleObject>(state.raw_module_type);
    if (self == nullptr) return {};
    self->code = PyRef::borrow(source).release();
    self->options = PyRef::borrow(all_options).release();
    self->names = PyRef::borrow(all_names).release();
    return PyRef::steal(reinterpret_cast<PyObject *>(self));
}

namespace {

bool image_here(ModuleState &state, const char *function, RawModuleObject *module, int *device,
                KernelImage **image) noexcept {
    Backend backend;
    return ensure_backend(state, function, &backend) && parse_device(state, function, nullptr, device) &&
           image_on(state, function, module, *device, image);
}

PyObject *module_get_function(PyObject *self, PyObject *name) {
    ModuleState &state = state_of_type(self);
    if (PyUnicode_Check(name) == 0)
        return PyErr_Format(PyExc_TypeError, "get_function: expected a kernel's name, got %R", name);
    const PyRef kernel = make_kernel(state, as_module(self), name, false);
    int device = 0;
    Backend backend;
    LoadedKernel *loaded = nullptr;
    if (!kernel || !ensure_backend(state, "get_function", &backend) ||
        !parse_device(state, "get_function", nullptr, &device) ||
        !kernel_on(state, as_kernel(kernel.get()), device, &loaded))
        return nullptr;
    return PyRef::borrow(kernel.get()).release();
}

PyObject *module_compile(PyObject *self, PyObject *) {
    int device = 0;
    KernelImage *image = nullptr;
    if (!image_here(state_of_type(self), "compile", as_module(self), &device, &image)) return nullptr;
    Py_RETURN_NONE;
}

#define CUKERN_GET_GLOBAL "($self, /, name, dtype='uint8', shape=None)"

PyObject *module_get_global(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_GET_GLOBAL);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("get_global", self, values, count, names, arguments)) return nullptr;
    if (PyUnicode_Check(arguments[1]) == 0)
        return PyErr_Format(PyExc_TypeError, "get_global: expected a variable's name, got %R", arguments[1]);
    ModuleState &state = state_of_type(self);
    RawModuleObject *module = as_module(self);
    int device = 0;
    KernelImage *image = nullptr;
    ElementType type = ElementType::uint8;
    if (is_given(arguments[2]) && !parse_dtype(state, "get_global", arguments[2], &type)) return nullptr;
    if (!image_here(state, "get_global", module, &device, &image)) return nullptr;
    const PyRef own = name_in_image(module, arguments[1]);
    const char *name = own ? PyUnicode_AsUTF8AndSize(own.get(), nullptr) : nullptr;
    if (name == nullptr) return nullptr;
    ForeignArray array;
    std::size_t bytes = 0;
    if (const Status status = image->global(device, name, &array.data, &bytes); status != CUKERN_OK) {
        raise_status(state, "get_global", status);
        return nullptr;
    }
    if (array.data == nullptr)
        return PyErr_Format(PyExc_AttributeError, "get_global: there is no variable '%s' in device memory", name);
    Shape shape;
    shape.ndim = 1;
    shape.lengths[0] = static_cast<std::int64_t>(bytes) / size_of(type);
    if (is_given(arguments[3]) && !parse_shape("get_global", arguments[3], &shape)) return nullptr;
    std::int64_t wanted = 0;
    if (!checked_bytes(shape.lengths, shape.ndim, size_of(type), &wanted) ||
        wanted > static_cast<std::int64_t>(bytes))
        return PyErr_Format(PyExc_ValueError, "get_global: '%s' has %zu bytes, too few for this shape of %s", name,
                            bytes, name_of(type));
    array.device = {dlpack::kCUDA, device};
    array.type = type;
    array.ndim = shape.ndim;
    std::int64_t stride = size_of(type);
    for (int i = shape.ndim - 1; i >= 0; --i) {
        array.shape[i] = shape.lengths[i];
        array.strides[i] = stride;
        stride *= shape.lengths[i];
    }
    return adopt_array({state, "get_global", name}, array, self, self).release();
}

PyObject *module_repr(PyObject *self) {
    const RawModuleObject *module = as_module(self);
    return PyUnicode_FromFormat("<cukern.RawModule of %zd bytes of %s>", PyObject_Size(module->code),
                                PyUnicode_Check(module->code) != 0 ? "CUDA C++" : "an image");
}

PyMethodDef kModuleMethods[] = {
    {"get_function", module_get_function, METH_O,
     "get_function($self, name, /)\n--\n\nReturn a kernel as `RawKernel`.\n\nIt is compiled and loaded for the "
     "current "
     "device now.\n\n"
     "Parameters\n----------\nname : str\n    As in the source, for a kernel that is ``extern \"C\"`` or alone of "
     "its "
     "name;\n    for instances of templates one of `name_expressions`; or a mangled name.\n\n"
     "Returns\n-------\nRawKernel\n\n"
     "Raises\n------\nCompileError\n    The source does not compile.\nAttributeError\n    There is no such "
     "kernel."},
    {"get_global", as_method(module_get_global), METH_FASTCALL | METH_KEYWORDS,
     "get_global" CUKERN_GET_GLOBAL "\n--\n\nReturn a variable in the current device's memory as an Array of this "
     "memory.\n\n"
     "Parameters\n----------\nname : str\n    The variable's name, as the image has it, or ``'&name'`` where that "
     "is "
     "one of `name_expressions`.\n"
     "dtype : dtype\n    The element type; its bytes by default.\n"
     "shape : int or tuple of ints, optional\n    All of it in one dimension by default.\n\n"
     "Returns\n-------\nArray\n\nRaises\n------\nAttributeError\n    There is no such variable.\n"
     "ValueError\n    It is smaller than the shape."},
    {"compile", module_compile, METH_NOARGS,
     "compile($self, /)\n--\n\nCompile and load for the current device now, and not when it is first needed."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kModuleMembers[] = {
    {"code", T_OBJECT, offsetof(RawModuleObject, code), READONLY, "The source, or the image as bytes."},
    {"options", T_OBJECT, offsetof(RawModuleObject, options), READONLY, "Options of the compiler."},
    {"name_expressions", T_OBJECT, offsetof(RawModuleObject, names), READONLY, "What is instantiated, by name."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RawModuleObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

constexpr const char *kModuleDoc =
    "RawModule(*, code=None, path=None, options=(), backend='nvrtc', name_expressions=None)\n--\n\n"
    "Kernels and variables of one source, or of one compiled image.\n\n"
    "Parameters\n----------\n"
    "code : str or bytes, optional\n    CUDA C++, which is compiled at run time by NVRTC (``pip install "
    "cukern[nvrtc]``); or PTX,\n    a cubin or a fatbin, which need no NVRTC.\n"
    "path : path, optional\n    A file of PTX, a cubin or a fatbin, in place of `code`.\n"
    "options : sequence of str\n    NVRTC's, which are named as nvcc's: ``-I``, ``-D``, ``-std=c++20``.\n"
    "backend : 'nvrtc'\n    For calls that are written for CuPy.\n"
    "name_expressions : sequence of str, optional\n    Instances of templates, overloads and variables: "
    "``'f<float>'``, ``'&table'``.\n\n"
    "Notes\n-----\n"
    "What is loaded stays loaded until the process ends, since a stream or a graph may still run it.\n\n"
    "Examples\n--------\n"
    ">>> import cukern\n"
    ">>> module = cukern.RawModule(code=r'''\n"
    "... __constant__ float factor = 3;\n"
    "... extern \"C\" __global__ void times(float *x) { x[threadIdx.x] *= factor; }''')\n"
    ">>> if cukern.backend() == 'cuda':\n"
    "...     x = cukern.ones(32, dtype='float32')\n"
    "...     module.get_function('times')((1,), (32,), (x,))\n"
    "...     factor = module.get_global('factor', 'float32')\n";

PyType_Slot kModuleSlots[] = {
    {Py_tp_doc, const_cast<char *>(kModuleDoc)},
    {Py_tp_new, reinterpret_cast<void *>(module_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(module_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(module_repr)},
    {Py_tp_methods, kModuleMethods},
    {Py_tp_members, kModuleMembers},
    {0, nullptr},
};

}  // namespace

PyType_Spec kRawModuleSpec = {"cukern.RawModule", sizeof(RawModuleObject), 0, Py_TPFLAGS_DEFAULT, kModuleSlots};

}  // namespace cukern::py
