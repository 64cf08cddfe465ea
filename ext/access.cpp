#include "python.h"

#include "access.h"

#include "errors.h"

namespace cukern::py {
namespace {

bool same_stream(const StreamRef &a, const StreamRef &b) noexcept { return a.id == b.id && a.device == b.device; }

void release_holder(void *holder) noexcept { Py_DECREF(static_cast<PyObject *>(holder)); }

bool succeeded(const ModuleState &state, const char *function, Status status) noexcept {
    if (status != CUKERN_OK) raise_status(state, function, status);
    return status == CUKERN_OK;
}

}  // namespace

bool order_access(const ModuleState &state, const char *function, const Access &access, const StreamRef &stream,
                  bool write) noexcept {
    if (access.storage != nullptr) return succeeded(state, function, access.storage->order(stream, write));
    if (!access.has_producer || same_stream(access.producer, stream)) return true;
    return succeeded(state, function, stream_wait_stream(stream, access.producer));
}

bool note_access(const ModuleState &state, const char *function, const Access &access, const StreamRef &stream,
                 bool write) noexcept {
    if (access.storage != nullptr) return succeeded(state, function, access.storage->note(stream, write));
    if (access.has_producer) {
        // Its library reuses memory in its own stream's order.
        return same_stream(access.producer, stream) ||
               succeeded(state, function, stream_wait_stream(access.producer, stream));
    }
    if (access.holder == nullptr) return true;
    bool capturing = false;
    if (!succeeded(state, function, stream_is_capturing(stream, &capturing))) return false;
    if (capturing) return true;
    PyRef held = PyRef::borrow(access.holder);
    if (!succeeded(state, function, release_after(stream, release_holder, held.get()))) return false;
    (void)held.release();
    return true;
}

bool wait_for_host(const ModuleState &state, const char *function, Storage *storage, bool write) noexcept {
    HostWait wait;
    Status status = storage->pending(write, &wait);
    if (wait.empty()) return succeeded(state, function, status);
    {
        const GilRelease released;
        status = wait.wait();
    }
    if (status == CUKERN_OK) storage->waited(write, wait);
    return succeeded(state, function, status);
}

bool copy_into(const ModuleState &state, const char *function, const Access &source, const Access &destination,
               const StreamRef &stream) noexcept {
    Location from = source.location;
    Location to = destination.location;
    // Between the host's own memory and an array's that the host sees too, the host copies.
    if (!from.reachable && to.reachable && on_host(to.kind) && destination.storage != nullptr) {
        if (!wait_for_host(state, function, destination.storage, true)) return false;
        to.reachable = false;
    } else if (!to.reachable && from.reachable && on_host(from.kind) && source.storage != nullptr) {
        if (!wait_for_host(state, function, source.storage, false)) return false;
        from.reachable = false;
    }
    if (from.reachable && !order_access(state, function, source, stream, false)) return false;
    if (to.reachable && !order_access(state, function, destination, stream, true)) return false;
    Status status = CUKERN_OK;
    if (from.reachable && to.reachable) {
        status = transfer(source.view, from, destination.view, to, stream);
    } else {
        const GilRelease released;
        status = transfer(source.view, from, destination.view, to, stream);
    }
    if (!succeeded(state, function, status)) return false;
    if (from.reachable && !note_access(state, function, source, stream, false)) return false;
    if (to.reachable && !note_access(state, function, destination, stream, true)) return false;
    return wait_if_exported(state, function, destination);
}

bool broadcast_view(const TensorView &view, const Shape &shape, TensorView *out) noexcept {
    *out = view;
    if (view.immediate) return true;
    if (view.ndim > shape.ndim) return false;
    out->ndim = shape.ndim;
    const int lead = shape.ndim - view.ndim;
    for (int i = 0; i < shape.ndim; ++i) {
        const std::int64_t own = i < lead ? 1 : view.shape[i - lead];
        if (own != 1 && own != shape.lengths[i]) return false;
        out->shape[i] = shape.lengths[i];
        out->strides[i] = own == 1 ? 0 : view.strides[i - lead];
    }
    return true;
}

}  // namespace cukern::py
