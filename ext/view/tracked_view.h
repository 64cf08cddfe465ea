// A view of memory together with what orders the work on it: who wrote it on which stream, and who has to wait.
#pragma once

#include "base/module_state.h"

#include "cukern/storage.h"
#include "cukern/tensor_view.h"
#include "cukern/transfer.h"

namespace cukern::py {

// Everything here is borrowed from the object that the view is of.
struct TrackedView {
    TensorView view;
    Location location;
    Storage *storage = nullptr;  // of an Array; null for other libraries' memory and for the host's own
    bool has_producer = false;   // the library tells on which stream it works
    StreamRef producer;
    PyObject *holder = nullptr;     // keeps the memory, and must until work on it is done
    PyObject *object = nullptr;     // another library's array, which tells on which stream the library works
    const void *library = nullptr;  // what stands for all arrays that tell of one stream
    const char *name = "";          // the argument, for messages

    void set_object(PyObject *array, const void *telling) noexcept {
        object = array;
        library = telling;
    }
};

// A shape, in the order of an array's dimensions.
struct Shape {
    int ndim = 0;
    std::int64_t lengths[kMaxDims];

    Shape() noexcept {}  // NOLINT(modernize-use-equals-default): lengths stay uninitialised
    Shape(int n, const std::int64_t *from) noexcept : ndim(n) {
        for (int i = 0; i < n; ++i) lengths[i] = from[i];
    }
};

// Raises the exception of a failure; always false.
[[gnu::cold]] bool raise_failure(const ModuleState &state, const char *function, Status status) noexcept;
bool wait_before_foreign_use(const ModuleState &state, const char *function, const TrackedView &access,
                             const StreamRef &stream) noexcept;
bool record_foreign_use(const ModuleState &state, const char *function, const TrackedView &access,
                        const StreamRef &stream) noexcept;

// Before a launch: makes `stream` wait for pending work on this memory.
inline bool wait_before_use(const ModuleState &state, const char *function, const TrackedView &access,
                            const StreamRef &stream, bool write) noexcept {
    if (access.storage == nullptr) return wait_before_foreign_use(state, function, access, stream);
    const Status status = access.storage->wait_before_use(stream, write);
    return status == CUKERN_OK || raise_failure(state, function, status);
}

// After a launch: later work on other streams, and the release of the memory, wait for it.
inline bool record_use(const ModuleState &state, const char *function, const TrackedView &access,
                       const StreamRef &stream, bool write) noexcept {
    if (access.storage == nullptr) return record_foreign_use(state, function, access, stream);
    const Status status = access.storage->record_use(stream, write);
    return status == CUKERN_OK || raise_failure(state, function, status);
}

// Waits until the host may read (or write) the memory; without the GIL where it has to. RuntimeError while a graph
// is being captured that writes (or uses) it.
bool wait_for_host(const ModuleState &state, const char *function, Storage *storage, bool write) noexcept;

bool is_noted_in_graph(const Storage *storage) noexcept;

// After a launch that writes: where a buffer of the memory is exported right now, the host sees it at any time.
// (That it does not write while a launch reads is left to the caller, as with all pinned memory.)
inline bool wait_if_exported(const ModuleState &state, const char *function, const TrackedView &access) noexcept {
    return access.storage == nullptr || access.storage->exports() == 0 || is_noted_in_graph(access.storage) ||
           wait_for_host(state, function, access.storage, false);
}

// After a failure: waits for what was given to the stream before it, of which nothing else knows. Errors stay as
// they are.
[[gnu::cold]] void synchronize_after_failure(const StreamRef &stream) noexcept;

// Out of memory: arrays in reference cycles may hold what nobody can reach. Whether a collection has let go of
// any, so that the call is worth another try. It runs finalizers, which may change what has been read (see below).
bool collect_garbage() noexcept;
// How many collections there have been: what was read before one has to be looked at again.
std::uint64_t collections() noexcept;

// destination = source in `stream`'s order, converting between element types; they have one shape and share no
// memory. Waits only where one of them is ordinary host memory.
bool copy_into(const ModuleState &state, const char *function, const TrackedView &source,
               const TrackedView &destination, const StreamRef &stream) noexcept;

// The same where they may share memory: what overlaps goes through a temporary.
bool copy_apart(const ModuleState &state, const char *function, const TrackedView &source,
                const TrackedView &destination, const StreamRef &stream) noexcept;

// Drops leading dimensions of length 1 down to `ndim`: a value that is assigned may have them, as in NumPy.
void drop_leading(TensorView &view, int ndim) noexcept;

// Broadcasts a view to `shape`; false (without an exception) where it cannot be, and stays as it is.
bool broadcast_view(const Shape &shape, TensorView *view) noexcept;

}  // namespace cukern::py
