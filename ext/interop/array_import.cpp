// Other libraries' memory as Arrays: what keeps it alive, by which protocol it comes, in which order it is used.
#include "base/python.h"

#include "interop/array_exchange.h"

#include <vector>

#include "array/array.h"
#include "base/backend.h"
#include "base/errors.h"
#include "interop/frameworks.h"
#include "streams/streams.h"
#include "streams/with_blocks.h"

namespace cukern::py {
namespace {

// What owns memory that an Array shares, and how it is let go.
struct Owner {
    void (*release)(void *owner) noexcept;
    void *owner;
};

// Of the GIL: how many releases are under way, one within the other, and those that wait for the first of them.
int g_depth = 0;
std::vector<Owner> *g_later = nullptr;  // never destroyed

// False: there is no memory for it.
bool is_put_off(const Owner &owner) noexcept {
    try {
        if (g_later == nullptr) g_later = new std::vector<Owner>;
        g_later->push_back(owner);
        return true;
    } catch (...) {
        return false;
    }
}

// Releases chains of owners (an array over an array over ...) in a loop; deep recursion would overflow the stack.
void release_in_turn(const Owner &given) noexcept {
    constexpr int kDeepest = 32;
    if (Py_IsInitialized() == 0) return;  // the interpreter is gone, and with it what the owner needs
    const GilHold gil;
    if (g_depth >= kDeepest && is_put_off(given)) return;  // else one level more
    ++g_depth;
    given.release(given.owner);
    while (g_depth == 1 && g_later != nullptr && !g_later->empty()) {
        const Owner owner = g_later->back();
        g_later->pop_back();
        owner.release(owner.owner);
    }
    --g_depth;
}

void release_keeper(void *keeper) noexcept {
    release_in_turn({[](void *object) noexcept { Py_DECREF(static_cast<PyObject *>(object)); }, keeper});
}

void release_tensor(void *tensor) noexcept {
    release_in_turn(
        {[](void *managed) noexcept { delete_tensor(static_cast<dlpack::ManagedTensorVersioned *>(managed)); },
         tensor});
}

// An array over the memory of the Array that a capsule of ours has lent, as any view of it.
PyRef view_of_lender(const ForeignArray &foreign) noexcept {
    Array *array = array_of(foreign.own);
    PyRef view = array_view(array, array->data, array->ndim, array->shape(), array->strides());
    if (!view) return {};
    array->storage->record_returned();
    array_of(view.get())->read_only = foreign.read_only || array->read_only;
    return view;
}

}  // namespace

PyRef adopt_array(const ArgumentInfo &argument, ForeignArray &foreign, PyObject *keeper, PyObject *base) noexcept {
    const ModuleState &state = argument.state;
    if (foreign.own != nullptr && is_array(state, foreign.own)) return view_of_lender(foreign);
    Location location;
    if (!locate(argument, foreign.device, &location)) return {};
    if (!location.reachable && !is_host_in_use()) {
        PyErr_Format(PyExc_BufferError,
                     "%s: %s is in host memory, which an Array does not share with a GPU in use",
                     argument.function, argument.name);
        return {};
    }
    if (!check_memory(argument, &foreign)) return {};
    std::int64_t strides[kMaxDims];
    for (int i = 0; i < foreign.ndim; ++i) strides[i] = foreign.strides[i] / size_of(foreign.type);
    Storage *storage = nullptr;
    const bool has_tensor = foreign.tensor.get() != nullptr;
    PyRef held = has_tensor ? PyRef() : PyRef::borrow(keeper);
    void *const owner = has_tensor ? static_cast<void *>(foreign.tensor.get()) : held.get();
    Status status = Storage::adopt(location.reachable ? location.kind : MemoryKind::device, foreign.data,
                                   static_cast<std::size_t>(foreign.bytes), location.device,
                                   has_tensor ? release_tensor : release_keeper, owner, &storage);
    if (status == CUKERN_OK) {
        (void)held.release();
        foreign.tensor.release();
        if (foreign.has_producer) status = storage->record_producer(foreign.producer);
        if (status != CUKERN_OK) storage->release();
    }
    if (status != CUKERN_OK) {
        raise_status(state, argument.function, status);
        return {};
    }
    return array_over(state, storage, static_cast<char *>(foreign.data), foreign.type, foreign.ndim, foreign.shape,
                      strides, base, foreign.read_only);
}

namespace {

bool is_pinned(const void *data) noexcept {
    PointerInfo where;
    return !is_host_in_use() && pointer_info(data, &where) == CUKERN_OK && where.known &&
           where.kind == MemoryKind::pinned;
}

// torch's __dlpack_device__ says CUDAHost for pinned memory, its tensor says CPU: ask CUDA.
void find_pinned(ForeignArray *foreign) noexcept {
    if (foreign->device.type == dlpack::kCPU && is_pinned(foreign->data)) foreign->device = {dlpack::kCUDAHost, 0};
}

// The stream that the library works on where the memory is.
bool stream_of_library(const ArgumentInfo &argument, const TypeRecord &record, const dlpack::Device &device,
                       HeldStream *stream) noexcept {
    void *handle = nullptr;
    if (record.api->current_stream(device.type, device.id, &handle) != 0) return false;
    StreamRef theirs;
    if (const Status status = stream_ref(handle, device.id, &theirs); status != CUKERN_OK) {
        raise_status(argument.state, argument.function, status);
        return false;
    }
    *stream = theirs;
    return true;
}

// Takes an array over by the exchange API, in the order of the stream that its library works on.
bool import_on_own_stream(const ArgumentInfo &argument, PyObject *object, const TypeRecord &record,
                          ForeignArray *foreign, bool *imported) noexcept {
    if (!import_by_exchange(argument, record, object, foreign, imported)) return false;
    if (!*imported) return true;
    find_pinned(foreign);
    Location location;
    if (!locate(argument, foreign->device, &location)) return false;
    foreign->has_producer = location.reachable;
    foreign->producer.set_default(location.device);
    return !takes_stream(foreign->device) ||
           stream_of_library(argument, record, foreign->device, &foreign->producer);
}

// Asks for a capsule and reads it. The producer is asked to be ready for `consumer`, or for its library's own
// stream.
bool import_capsule(const ArgumentInfo &argument, PyObject *object, const TypeRecord &record, bool on_own_stream,
                    ImportStream &consumer, PyObject *copy, ForeignArray *foreign) noexcept {
    dlpack::Device where{};
    Location location;
    if (!ask_device(argument, object, &where) || !locate(argument, where, &location) ||
        !consumer.fit(argument, location))
        return false;
    if (on_own_stream && takes_stream(where) && !stream_of_library(argument, record, where, &consumer.stream))
        return false;
    const StreamRef &wanted = consumer.stream;
    const PyRef capsule =
        call_dlpack(argument.state, object, takes_stream(where) ? &wanted : nullptr, copy, nullptr);
    if (!capsule || !read_capsule(argument, capsule.get(), CapsuleUse::array, nullptr, foreign)) return false;
    if (where.type == dlpack::kCUDAHost) find_pinned(foreign);
    foreign->has_producer = location.reachable;
    foreign->producer = consumer.stream;
    return foreign->is_copy || check_foreign(argument, record, object, *foreign);
}

}  // namespace

// The producer is asked to be ready for `stream`, if it is given, else for the innermost active
// one, else for its library's own, which needs no order (and a capture could not hold any).
bool import_dlpack(const ArgumentInfo &argument, PyObject *object, const TypeRecord &record, PyObject *stream,
                   PyObject *copy, ForeignArray *foreign) noexcept {
    ImportStream consumer;
    consumer.is_named = is_given(stream);
    bool is_active = false;
    if (!active_stream(argument.state, &consumer.stream, &is_active) ||
        !stream_for_new(argument.state, argument.function, nullptr, stream, &consumer.stream))
        return false;
    if (leave_graph(&consumer.stream)) consumer.is_named = is_active = false;
    const bool on_own_stream = record.api != nullptr && !consumer.is_named && !is_active;
    const bool by_exchange = on_own_stream && Py_IsNone(copy) != 0 && !is_array(argument.state, object);
    bool imported = false;
    if (by_exchange && !import_on_own_stream(argument, object, record, foreign, &imported)) return false;
    if (!imported && !import_capsule(argument, object, record, on_own_stream, consumer, copy, foreign))
        return false;
    foreign->read_only = foreign->read_only || (record.is_jax && !foreign->is_copy);
    return true;
}

PyRef shared_array(const ModuleState &state, const char *function, PyObject *object, PyObject *stream) noexcept {
    const ArgumentInfo argument{state, function, "a"};
    HeldRecord held;
    if (!find_record(const_cast<ModuleState &>(state), object, &held)) return {};
    const TypeRecord &record = *held;
    ForeignArray foreign;
    if (record.protocol == Protocol::cuda) {
        ReadContext reading;
        if (!read_foreign(argument, record, object, reading, false, &foreign)) return {};
        return adopt_array(argument, foreign, object, object);
    }
    if (!import_dlpack(argument, object, record, stream, Py_None, &foreign)) return {};
    return adopt_array(argument, foreign, foreign.keeper.get(), object);
}

}  // namespace cukern::py
