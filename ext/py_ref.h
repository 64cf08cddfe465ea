// Owners of what belongs to Python: references, buffers, the released GIL.
#pragma once

#include "python.h"

#include <utility>

namespace cukern::py {

// An owned reference; null is allowed.
class PyRef {
public:
    PyRef() noexcept = default;
    static PyRef steal(PyObject *object) noexcept { return PyRef(object); }
    static PyRef borrow(PyObject *object) noexcept {
        Py_XINCREF(object);
        return PyRef(object);
    }
    PyRef(PyRef &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    // Store first, then release: the release may run code that looks at this.
    PyRef &operator=(PyRef &&other) noexcept {
        PyObject *old = std::exchange(object_, std::exchange(other.object_, nullptr));
        Py_XDECREF(old);
        return *this;
    }
    PyRef(const PyRef &) = delete;
    PyRef &operator=(const PyRef &) = delete;
    ~PyRef() { Py_XDECREF(object_); }

    PyObject *get() const noexcept { return object_; }
    PyObject *release() noexcept { return std::exchange(object_, nullptr); }
    explicit operator bool() const noexcept { return object_ != nullptr; }

private:
    explicit PyRef(PyObject *object) noexcept : object_(object) {}
    PyObject *object_ = nullptr;
};

inline PyArrayObject *as_array(PyObject *object) noexcept { return reinterpret_cast<PyArrayObject *>(object); }
inline PyArrayObject *as_array(const PyRef &ref) noexcept { return as_array(ref.get()); }

// A Py_buffer. It stays where it is, since exporters may point into it.
class BufferHolder {
public:
    BufferHolder() noexcept = default;
    BufferHolder(const BufferHolder &) = delete;
    BufferHolder &operator=(const BufferHolder &) = delete;
    ~BufferHolder() {
        if (held_) PyBuffer_Release(&buffer_);
    }
    bool acquire(PyObject *object, int flags) noexcept {
        held_ = PyObject_GetBuffer(object, &buffer_, flags) == 0;
        return held_;
    }
    const Py_buffer &get() const noexcept { return buffer_; }
    bool held() const noexcept { return held_; }

private:
    Py_buffer buffer_{};
    bool held_ = false;
};

// The GIL given up for a scope. Nothing owned by Python may die inside.
class GilRelease {
public:
    GilRelease() noexcept : state_(PyEval_SaveThread()) {}
    ~GilRelease() { PyEval_RestoreThread(state_); }
    GilRelease(const GilRelease &) = delete;
    GilRelease &operator=(const GilRelease &) = delete;

private:
    PyThreadState *state_;
};

}  // namespace cukern::py
