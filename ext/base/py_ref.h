// Owners of what belongs to Python: references, buffers, the released GIL.
#pragma once

#include "base/python.h"

#include <unistd.h>

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

// The exception that is set, put aside for a scope: for code of others that may run while one is on its way.
class HeldError {
public:
    HeldError() noexcept { PyErr_Fetch(&type_, &value_, &traceback_); }
    ~HeldError() {
        if (type_ != nullptr) PyErr_Restore(type_, value_, traceback_);
    }
    HeldError(const HeldError &) = delete;
    HeldError &operator=(const HeldError &) = delete;

private:
    PyObject *type_ = nullptr;
    PyObject *value_ = nullptr;
    PyObject *traceback_ = nullptr;
};

// The exception that is set, taken over to be looked at: put back by restore(), else gone with the scope.
class CaughtError {
public:
    CaughtError() noexcept {
        PyObject *type = nullptr;
        PyObject *value = nullptr;
        PyObject *traceback = nullptr;
        PyErr_Fetch(&type, &value, &traceback);
        type_ = PyRef::steal(type);
        value_ = PyRef::steal(value);
        traceback_ = PyRef::steal(traceback);
    }
    CaughtError(const CaughtError &) = delete;
    CaughtError &operator=(const CaughtError &) = delete;

    bool is(PyObject *type) const noexcept { return type_ && PyErr_GivenExceptionMatches(type_.get(), type) != 0; }
    // What a caller may turn into another exception: neither an interrupt nor a want of memory.
    bool is_ordinary() const noexcept { return !type_ || (is(PyExc_Exception) && !is(PyExc_MemoryError)); }
    // Its message, or null where there is none that could be read. No exception is set afterwards.
    const char *text() noexcept {
        text_ = value_ ? PyRef::steal(PyObject_Str(value_.get())) : PyRef();
        const char *text = text_ ? PyUnicode_AsUTF8AndSize(text_.get(), nullptr) : nullptr;
        PyErr_Clear();
        return text;
    }
    void restore() noexcept { PyErr_Restore(type_.release(), value_.release(), traceback_.release()); }

private:
    PyRef type_;
    PyRef value_;
    PyRef traceback_;
    PyRef text_;
};

// After a failed look-up: clears any ordinary exception, as if the thing were absent. False, with the
// exception still set, for what must reach the caller: an interrupt, a want of memory, a recursion too deep.
inline bool clear_lookup_error() noexcept {
    if (PyErr_Occurred() == nullptr) return true;
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0 || PyErr_ExceptionMatches(PyExc_MemoryError) != 0 ||
        PyErr_ExceptionMatches(PyExc_RecursionError) != 0)
        return false;
    PyErr_Clear();
    return true;
}

// Takes the GIL by one of Python's functions. While the interpreter ends, those before 3.14 end the thread by an
// unwinding that no C++ frame may stop, and that the many noexcept ones would turn into an abort: the thread stays
// here instead.
template <typename Function>
void take_gil(const Function &function) noexcept {
    try {
        function();
    } catch (...) {  // not by its type, abi::__forced_unwind: there is no object for a reference to be bound to
        for (;;) pause();
    }
}

// The GIL for a scope, on any thread.
class GilHold {
public:
    GilHold() noexcept {
        take_gil([this] { state_ = PyGILState_Ensure(); });
    }
    ~GilHold() { PyGILState_Release(state_); }
    GilHold(const GilHold &) = delete;
    GilHold &operator=(const GilHold &) = delete;

private:
    PyGILState_STATE state_{};
};

// The GIL given up for a scope. Nothing owned by Python may die inside.
class GilRelease {
public:
    GilRelease() noexcept : state_(PyEval_SaveThread()) {}
    ~GilRelease() {
        take_gil([this] { PyEval_RestoreThread(state_); });
    }
    GilRelease(const GilRelease &) = delete;
    GilRelease &operator=(const GilRelease &) = delete;

private:
    PyThreadState *state_;
};

// Whether an optional argument has been given: neither left out nor None.
inline bool is_given(PyObject *object) noexcept { return object != nullptr && Py_IsNone(object) == 0; }
inline PyObject *given_or_null(PyObject *object) noexcept { return is_given(object) ? object : nullptr; }

}  // namespace cukern::py
