// RawKernel, RawModule and what they share: kernels that users bring.
#pragma once

#include "base/module_state.h"
#include "base/py_ref.h"
#include "streams/streams.h"

#include "cukern/user_kernels.h"

namespace cukern::py {

constexpr int kMostDevices = 64;

// Vectorcall, which Python's limited API has from 3.12 on; the interpreters from 3.11 on take it by these values.
using Vectorcall = PyObject *(*)(PyObject *callable, PyObject *const *values, std::size_t count, PyObject *names);
constexpr unsigned long kHaveVectorcall = 1UL << 11;
constexpr std::size_t kVectorcallOffset = std::size_t{1} << (8 * sizeof(std::size_t) - 1);  // a flag of `count`
inline Py_ssize_t vectorcall_count(std::size_t count) noexcept {
    return static_cast<Py_ssize_t>(count & ~kVectorcallOffset);
}
// tp_call by the function for vectorcall.
PyObject *call_by_vectorcall(PyObject *callable, PyObject *args, PyObject *keywords, Vectorcall function) noexcept;

// cukern.Pointer: an address that a kernel is given.
struct PointerObject {
    PyObject_HEAD std::uintptr_t address;
};

// cukern.RawModule: a source or an image, compiled and loaded when it is needed.
struct RawModuleObject {
    PyObject_HEAD PyObject *code;  // str: a source; bytes: an image
    PyObject *options;             // a tuple of str
    PyObject *names;               // name expressions, a tuple of str
    PyObject *lowered;             // dict: their names in the image; null before the first compilation
    PyObject *weak_references;
    KernelImage *images[kMostDevices];
};

// What a kernel has on a device.
struct LoadedKernel {
    UserKernel *kernel = nullptr;
    const KernelAttributes *attributes = nullptr;
    const LaunchLimits *limits = nullptr;
    // Of k.over(): the block for so many bytes of dynamic shared memory; 0: not asked for yet.
    unsigned block = 0;
    unsigned block_shared = 0;
};

// cukern.RawKernel.
struct RawKernelObject {
    PyObject_HEAD Vectorcall vectorcall;
    RawModuleObject *module;  // owned
    PyObject *name;           // owned: as it was asked for
    const char *text;         // of `name`
    PyObject *weak_references;
    bool cooperative;
    char follows;  // its code waits for the kernel before, where that is of compute capability 9.0 or more
    int max_dynamic_shared;  // set before it was loaded; -1: not set
    int carveout;            // the same; -2: not set
    LoadedKernel loaded[kMostDevices];
};

inline RawModuleObject *as_module(PyObject *object) noexcept {
    return reinterpret_cast<RawModuleObject *>(object);
}
inline RawKernelObject *as_kernel(PyObject *object) noexcept {
    return reinterpret_cast<RawKernelObject *>(object);
}

// A launch as it is asked for.
struct LaunchRequest {
    LaunchShape shape;
    std::int64_t threads =
        -1;  // of k.over: as many as are needed, in blocks that the occupancy calculator chooses
    PyObject *stream = nullptr;  // null: none
    bool unchecked = false;
};

// Reads a grid or a block: an int, or up to three in a sequence.
bool parse_extent(const char *function, const char *name, PyObject *object, unsigned *extent) noexcept;
// Bytes of dynamic shared memory.
bool parse_shared(const char *function, PyObject *object, unsigned *bytes) noexcept;
// Refuse what the device, or the kernel on it, does not take; shared memory first, on which k.over() depends.
bool check_shared(const char *function, const LaunchShape &shape, const LoadedKernel &kernel, int device) noexcept;
bool check_shape(const char *function, const LaunchShape &shape, const LoadedKernel &kernel, int device) noexcept;

bool launch_kernel(ModuleState &state, RawKernelObject *self, const LaunchRequest &request,
                   PyObject *const *arguments, Py_ssize_t count) noexcept;

// The kernel on a device, which is compiled and loaded where that has not been done.
bool kernel_on(ModuleState &state, RawKernelObject *self, int device, LoadedKernel **loaded) noexcept;
// The same of a module's image.
bool image_on(ModuleState &state, const char *function, RawModuleObject *module, int device,
              KernelImage **image) noexcept;
// A kernel of an image by the name that it was asked for.
bool find_kernel(const ModuleState &state, const char *function, RawModuleObject *module, KernelImage *image,
                 PyObject *name, UserKernel **kernel) noexcept;

PyRef make_module(ModuleState &state, const char *function, PyObject *code, PyObject *path, PyObject *options,
                  PyObject *names) noexcept;
PyRef make_kernel(ModuleState &state, RawModuleObject *module, PyObject *name, bool cooperative) noexcept;
// k[grid, block] and k.over(threads).
PyRef make_launcher(ModuleState &state, PyObject *kernel, const LaunchRequest &request) noexcept;
// What a launcher launches, and how.
const LaunchRequest &launcher_request(PyObject *launcher, PyObject **kernel) noexcept;
// A call of one; what is none is called as any callable.
bool launch_by(ModuleState &state, PyObject *launcher, PyObject *const *arguments, Py_ssize_t count) noexcept;

// What the arguments of a call, a tuple, are but for addresses and values, as bytes: see argument_key.cpp. Null
// without an exception where an argument is of no kind that is known, and where an array behind the first `inputs`
// lies in part on another one.
bool argument_key(const ModuleState &state, PyObject *args, Py_ssize_t inputs, PyRef *key) noexcept;

bool add_kernel_types(PyObject *module, ModuleState &state) noexcept;
extern PyType_Spec kRawKernelSpec;
extern PyType_Spec kRawModuleSpec;
extern PyType_Spec kLauncherSpec;
extern PyType_Spec kPointerSpec;

}  // namespace cukern::py
