#include "base/python.h"

#include "torch/backend.h"

#include <atomic>

#include "base/backend.h"

namespace cukern::py {
namespace {

PyObject *g_module = nullptr;
std::atomic<bool> g_backend_ready{false};
std::atomic<bool> g_cublas_sought{false};

}  // namespace

Status fail_with_exception() noexcept {
    CaughtError error;
    const bool is_interrupt = error.is(PyExc_KeyboardInterrupt);
    const Status status = error.is(PyExc_MemoryError) ? CUKERN_OUT_OF_MEMORY : CUKERN_NO_BACKEND;
    const char *text = error.text();
    if (is_interrupt) PyErr_SetInterrupt();  // raised again once Python runs
    return fail(status, "%s", text != nullptr && text[0] != '\0' ? text : is_interrupt ? "interrupted" : "failed");
}

void set_torch_module(PyObject *module) noexcept {
    const PyRef old = PyRef::steal(g_module);
    Py_INCREF(module);
    g_module = module;
}

Status ensure_torch_backend(Backend *backend) noexcept {
    if (!g_backend_ready.load(std::memory_order_acquire)) {
        const GilHold held;
        if (!ensure_backend(state_of(g_module), "cukern.torch", backend)) return fail_with_exception();
        g_backend_ready.store(true, std::memory_order_release);
    }
    return active_backend(backend);
}

Status seek_torch_cublas() noexcept {
    if (g_cublas_sought.load(std::memory_order_acquire)) return CUKERN_OK;
    const GilHold held;
    if (!seek_cublas(g_module)) return fail_with_exception();
    g_cublas_sought.store(true, std::memory_order_release);
    return CUKERN_OK;
}

Status torch_execution(const TorchPlace &place, Backend backend, Execution *where) noexcept {
    *where = {};
    if (!place.on_gpu) return CUKERN_OK;
    if (backend != Backend::cuda)
        return fail(CUKERN_NO_BACKEND,
                    "the tensors are on a GPU, and cukern uses the host back-end (python -m cukern tells why)");
    void *stream = nullptr;
    if (shim().get_current_cuda_stream == nullptr || shim().get_current_cuda_stream(place.device, &stream) != 0)
        return fail(CUKERN_INTERNAL, "torch does not tell its current stream");
    where->on_device = true;
    return stream_ref(stream, place.device, &where->stream);
}

}  // namespace cukern::py
