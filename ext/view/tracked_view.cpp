#include "base/python.h"

#include "view/tracked_view.h"

#include "base/errors.h"
#include "base/long_release.h"

#include "cukern/graph.h"
#include "cukern/transfer.h"

namespace cukern::py {
namespace {

bool same_stream(const StreamRef &a, const StreamRef &b) noexcept { return a.id == b.id && a.device == b.device; }

void release_holder(void *holder) noexcept { Py_DECREF(static_cast<PyObject *>(holder)); }

bool succeeded(const ModuleState &state, const char *function, Status status) noexcept {
    return status == CUKERN_OK || raise_failure(state, function, status);
}

}  // namespace

bool raise_failure(const ModuleState &state, const char *function, Status status) noexcept {
    raise_status(state, function, status);
    return false;
}

namespace {

std::uint64_t g_collections = 0;  // guarded by the GIL

}  // namespace

bool collect_garbage() noexcept {
    const ErrorRecord cause =
        last_error();  // no ErrorKeeper: finalizers may go on on another stack, as greenlets do
    const std::int64_t before = Storage::released();
    ++g_collections;
    PyGC_Collect();
    release_finished();
    set_last_error(cause);
    return Storage::released() != before;
}

void synchronize_after_failure(const StreamRef &stream) noexcept {
    bool capturing = false;
    const ErrorKeeper cause;
    const GilRelease released;
    if (stream_is_capturing(stream, &capturing) == CUKERN_OK && !capturing) stream_synchronize(stream);
}

std::uint64_t collections() noexcept { return g_collections; }

bool wait_before_foreign_use(const ModuleState &state, const char *function, const TrackedView &access,
                             const StreamRef &stream) noexcept {
    if (!access.has_producer || same_stream(access.producer, stream) || Graph::captured_on(stream) != nullptr)
        return true;
    return succeeded(state, function, stream_wait_stream(stream, access.producer));
}

namespace {

// In a graph that is being captured: it keeps the memory, and its launches are ordered with the library's stream.
Status note_in_graph(Graph &graph, const TrackedView &access) noexcept {
    for (PyObject *owner : {access.holder, access.object}) {
        if (owner == nullptr) continue;
        PyRef held = PyRef::borrow(owner);
        bool is_new = false;
        const Status status = graph.note_owner(owner, release_holder, &is_new);
        if (is_new) (void)held.release();
        if (status != CUKERN_OK) return status;
    }
    return access.has_producer && access.object != nullptr
               ? graph.note_producer(access.producer, access.library, access.object)
               : CUKERN_OK;
}

Status record_work(const TrackedView &access, const StreamRef &stream) noexcept {
    if (Graph *graph = Graph::captured_on(stream); graph != nullptr) return note_in_graph(*graph, access);
    if (access.has_producer) {  // its library reuses memory in its own stream's order
        if (!same_stream(access.producer, stream)) CUKERN_TRY(stream_wait_stream(access.producer, stream));
    }
    if (access.holder == nullptr) return CUKERN_OK;
    bool capturing = false;
    CUKERN_TRY(stream_is_capturing(stream, &capturing));
    if (capturing) return CUKERN_OK;
    PyRef held = PyRef::borrow(access.holder);
    CUKERN_TRY(release_after(stream, release_holder, held.get()));
    (void)held.release();
    return CUKERN_OK;
}

}  // namespace

bool record_foreign_use(const ModuleState &state, const char *function, const TrackedView &access,
                        const StreamRef &stream) noexcept {
    const Status status = record_work(access, stream);
    if (status == CUKERN_OK) return true;
    raise_status(state, function, status);
    synchronize_after_failure(stream);  // the memory must outlive work that nothing else waits for
    return false;
}

bool is_noted_in_graph(const Storage *storage) noexcept { return Graph::is_noted(*storage, true); }

bool wait_for_host(const ModuleState &state, const char *function, Storage *storage, bool write) noexcept {
    if (Graph::is_noted(*storage, write)) {
        PyErr_Format(
            PyExc_RuntimeError,
            "%s: the memory is used by a graph that is being captured, and holds what is computed only when "
            "the graph is launched",
            function);
        return false;
    }
    // Another thread may launch more while the GIL is given up; each wait is for what was there before it.
    bool done = false;
    while (!done) {
        HostWait wait;
        Status status = storage->pending(write, &wait);
        if (wait.empty()) return succeeded(state, function, status);
        {
            const GilRelease released;
            status = wait.wait();
        }
        if (status != CUKERN_OK) return succeeded(state, function, status);
        done = storage->drop_waited(write, wait);
    }
    return true;
}

bool copy_into(const ModuleState &state, const char *function, const TrackedView &source,
               const TrackedView &destination, const StreamRef &stream) noexcept {
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
    if (from.reachable && !wait_before_use(state, function, source, stream, false)) return false;
    if (to.reachable && !wait_before_use(state, function, destination, stream, true)) return false;
    Status status = CUKERN_OK;
    if (from.reachable && to.reachable) {
        status = transfer(source.view, from, destination.view, to, stream);
        if (status != CUKERN_OK) synchronize_after_failure(stream);  // of several parts some may be under way
    } else if (!from.reachable && !to.reachable && count_of(destination.view) <= kBriefCount) {
        status = transfer(source.view, from, destination.view, to, stream);
    } else {
        const LongRelease released(state);
        status = transfer(source.view, from, destination.view, to, stream);
    }
    if (!succeeded(state, function, status)) return false;
    if (from.reachable && !record_use(state, function, source, stream, false)) return false;
    if (to.reachable && !record_use(state, function, destination, stream, true)) return false;
    return wait_if_exported(state, function, destination) && warn_of_refusal();
}

// A value may have further leading dimensions of length 1, as in NumPy.
void drop_leading(TensorView &view, int ndim) noexcept {
    while (!view.immediate && view.ndim > ndim && view.shape[0] == 1) {
        --view.ndim;
        for (int i = 0; i < view.ndim; ++i) {
            view.shape[i] = view.shape[i + 1];
            view.strides[i] = view.strides[i + 1];
        }
    }
}

bool broadcast_view(const Shape &shape, TensorView *view) noexcept {
    if (view->immediate) return true;
    const int lead = shape.ndim - view->ndim;
    if (lead < 0) return false;
    for (int i = 0; i < view->ndim; ++i)
        if (view->shape[i] != 1 && view->shape[i] != shape.lengths[lead + i]) return false;
    view->ndim = shape.ndim;
    for (int i = shape.ndim - 1; i >= 0; --i) {  // from the last one, whose place is free
        const bool repeats = i < lead || view->shape[i - lead] == 1;
        view->strides[i] = repeats ? 0 : view->strides[i - lead];
        view->shape[i] = shape.lengths[i];
    }
    return true;
}

}  // namespace cukern::py
