#include "base/python.h"

#include "base/long_release.h"

#include "cukern/host_memory.h"

namespace cukern::py {
namespace {

// The module of cukern.progress, where it has been used; borrowed.
PyObject *progress_module(const ModuleState &state) noexcept {
    return PyDict_GetItemString(state.modules, "cukern._progress");
}

}  // namespace

LongRelease::~LongRelease() {
    take_gil([this] { PyEval_RestoreThread(thread_); });
    if (!told_) return;
    const HeldError error;
    const PyRef module = PyRef::borrow(progress_module(state_));
    const PyRef ended = module ? PyRef::steal(PyObject_CallMethod(module.get(), "end", nullptr)) : PyRef();
    if (PyErr_Occurred() != nullptr) PyErr_WriteUnraisable(module.get());
}

bool LongRelease::report(std::int64_t done, std::int64_t total) noexcept {
    take_gil([this] { PyEval_RestoreThread(thread_); });
    const bool goes_on = PyErr_CheckSignals() == 0 && tell_progress(done, total);
    thread_ = PyEval_SaveThread();
    return goes_on;
}

bool LongRelease::tell_progress(std::int64_t done, std::int64_t total) noexcept {
    const PyRef module = PyRef::borrow(progress_module(state_));
    if (!module) return true;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const PyRef told = PyRef::steal(PyObject_CallMethod(
        module.get(), "report", "LLd", static_cast<long long>(done), static_cast<long long>(total), seconds));
    told_ = told_ || (told && Py_IsTrue(told.get()) != 0);
    return static_cast<bool>(told);
}

bool warn_of_refusal() noexcept {
    return !take_pinned_refusal() ||
           PyErr_WarnEx(PyExc_RuntimeWarning,
                        "the system refuses pinned memory (is there a limit on locked memory, as of ulimit -l?): "
                        "copies between host arrays and the device take longer",
                        1) == 0;
}

}  // namespace cukern::py
