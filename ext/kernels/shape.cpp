// Grids, blocks and shared memory as arguments, and what a device takes of them.
#include "base/python.h"

#include "kernels/kernels.h"

namespace cukern::py {
namespace {

bool parse_length(const char *function, const char *name, PyObject *object, unsigned *length) noexcept {
    const Py_ssize_t number =
        PyLong_Check(object) != 0 ? PyLong_AsSsize_t(object) : PyNumber_AsSsize_t(object, PyExc_OverflowError);
    if (number == -1 && PyErr_Occurred() != nullptr) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) != 0)
            PyErr_Format(PyExc_TypeError, "%s: %s must be an int or up to three ints, got %R", function, name,
                         object);
        return false;
    }
    if (number < 1 || number > 0xFFFFFFFFLL) {
        PyErr_Format(PyExc_ValueError, "%s: a length of %s is %zd; it must be at least 1 and below 2**32",
                     function, name, number);
        return false;
    }
    *length = static_cast<unsigned>(number);
    return true;
}

bool refuse_extent(const char *function, const char *what, const unsigned (&got)[3], const unsigned (&most)[3],
                   int device) noexcept {
    PyErr_Format(PyExc_ValueError, "%s: a %s of (%u, %u, %u) is more than device %d takes, (%u, %u, %u)", function,
                 what, got[0], got[1], got[2], device, most[0], most[1], most[2]);
    return false;
}

}  // namespace

bool parse_extent(const char *function, const char *name, PyObject *object, unsigned *extent) noexcept {
    extent[0] = extent[1] = extent[2] = 1;
    if (PyTuple_Check(object) != 0 && PyTuple_Size(object) == 1)  // the common case
        return parse_length(function, name, PyTuple_GetItem(object, 0), &extent[0]);
    if (PyTuple_Check(object) == 0 && PyList_Check(object) == 0)
        return parse_length(function, name, object, &extent[0]);
    const Py_ssize_t count = PySequence_Size(object);
    if (count < 1 || count > 3) {
        PyErr_Format(PyExc_ValueError, "%s: %s has one to three lengths, got %zd", function, name, count);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
        const PyRef length = PyRef::steal(PySequence_GetItem(object, i));
        if (!length || !parse_length(function, name, length.get(), &extent[i])) return false;
    }
    return true;
}

bool parse_shared(const char *function, PyObject *object, unsigned *bytes) noexcept {
    *bytes = 0;
    if (!is_given(object)) return true;
    const Py_ssize_t number = PyNumber_AsSsize_t(object, PyExc_OverflowError);
    if (number == -1 && PyErr_Occurred() != nullptr) return false;
    if (number < 0 || number > 0x7FFFFFFF) {
        PyErr_Format(PyExc_ValueError, "%s: shared_mem is %zd bytes; it must be at least 0 and below 2**31",
                     function, number);
        return false;
    }
    *bytes = static_cast<unsigned>(number);
    return true;
}

bool check_shared(const char *function, const LaunchShape &shape, const LoadedKernel &kernel,
                  int device) noexcept {
    const LaunchLimits &limits = *kernel.limits;
    const KernelAttributes &own = *kernel.attributes;
    if (shape.shared > static_cast<unsigned>(own.max_dynamic_shared_size_bytes)) {
        PyErr_Format(
            PyExc_ValueError,
            "%s: shared_mem=%u is more than the kernel's max_dynamic_shared_size_bytes, %d, which can be set "
            "to at most %d on device %d",
            function, shape.shared, own.max_dynamic_shared_size_bytes,
            static_cast<int>(limits.shared) - own.shared_size_bytes, device);
        return false;
    }
    return true;
}

bool check_shape(const char *function, const LaunchShape &shape, const LoadedKernel &kernel, int device) noexcept {
    const LaunchLimits &limits = *kernel.limits;
    const KernelAttributes &own = *kernel.attributes;
    for (int i = 0; i < 3; ++i) {
        if (shape.grid[i] > limits.grid[i])
            return refuse_extent(function, "grid", shape.grid, limits.grid, device);
        if (shape.block[i] > limits.block[i])
            return refuse_extent(function, "block", shape.block, limits.block, device);
    }
    const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];  // each is at most 1024
    if (threads > static_cast<unsigned>(own.max_threads_per_block)) {
        PyErr_Format(
            PyExc_ValueError,
            "%s: a block of %u threads is more than the %d that this kernel takes on device %d (%d registers "
            "a thread)",
            function, threads, own.max_threads_per_block, device, own.num_regs);
        return false;
    }
    if (shape.cooperative && !limits.cooperative) {
        PyErr_Format(PyExc_ValueError, "%s: device %d has no cooperative launches", function, device);
        return false;
    }
    if (shape.cluster[0] == 0) return true;
    if (!limits.clusters) {
        PyErr_Format(PyExc_ValueError, "%s: device %d has no clusters of blocks", function, device);
        return false;
    }
    for (int i = 0; i < 3; ++i) {
        if (shape.grid[i] % shape.cluster[i] == 0) continue;
        PyErr_Format(PyExc_ValueError, "%s: a grid of (%u, %u, %u) is not a multiple of the cluster (%u, %u, %u)",
                     function, shape.grid[0], shape.grid[1], shape.grid[2], shape.cluster[0], shape.cluster[1],
                     shape.cluster[2]);
        return false;
    }
    return true;
}

}  // namespace cukern::py
