#include "cukern/stream.h"

#include <mutex>
#include <new>
#include <vector>

#include "context/context.h"
#include "cukern/graph.h"
#include "runtime/fork_mutex.h"

namespace cukern {
namespace {

// The context, with a device made current for a scope.
class OnDevice {
public:
    explicit OnDevice(int device) noexcept {
        status_ = context(&context_);
        if (status_ == CUKERN_OK) status_ = context_->runtime.enter_device(device, &previous_);
    }
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;
    ~OnDevice() {
        if (previous_ != nullptr) context_->runtime.leave_device(previous_);
    }
    Status status() const noexcept { return status_; }
    Context &get() const noexcept { return *context_; }
    Runtime &runtime() const noexcept { return context_->runtime; }

private:
    Context *context_ = nullptr;
    void *previous_ = nullptr;
    Status status_ = CUKERN_OK;
};

// Nothing runs on a captured stream, and who waits for it ends its capture.
Status check_not_captured(const StreamRef &stream) noexcept {
    bool capturing = false;
    CUKERN_TRY(stream_is_capturing(stream, &capturing));
    return capturing ? fail(CUKERN_CAPTURING, "the stream is being captured, and runs nothing until that ends")
                     : CUKERN_OK;
}

}  // namespace

Status OwnedStream::create(int device, bool non_blocking, int priority, OwnedStream **out) noexcept {
    const OnDevice on(device);
    CUKERN_TRY(on.status());
    auto *stream = new (std::nothrow) OwnedStream;
    if (stream == nullptr) return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    if (const Status status = on.runtime().create_stream(non_blocking, priority, &stream->handle_);
        status != CUKERN_OK) {
        delete stream;
        return status;
    }
    stream->device_ = device;
    stream->id_ = on.runtime().stream_id(stream->handle_);
    stream->context_ = &on.get();
    stream->generation_ = fork_generation();
    *out = stream;
    return CUKERN_OK;
}

namespace {

// Streams that were given up while a graph was captured.
struct DeferredStreams {
    ForkMutex mutex;
    std::vector<OwnedStream *> list;
};
DeferredStreams &deferred_streams() noexcept {
    alignas(DeferredStreams) static unsigned char memory[sizeof(DeferredStreams)];
    static auto *const instance = new (memory) DeferredStreams;  // never destroyed
    return *instance;
}

bool defer(OwnedStream *stream) noexcept {
    DeferredStreams &deferred = deferred_streams();
    try {
        const std::lock_guard lock(deferred.mutex);
        deferred.list.push_back(stream);
        return true;
    } catch (...) {
        return false;
    }
}

}  // namespace

void OwnedStream::release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    // It may be part of the capture.
    if (any_graph_captured() && generation_ == fork_generation() && defer(this)) return;
    destroy();
}

void OwnedStream::destroy() noexcept {
    if (generation_ == fork_generation()) {
        const DeviceGuard guard(context_->runtime, device_);
        context_->workspaces.forget_stream(ref());
        context_->blocks.forget_stream(ref());
        context_->runtime.destroy_stream(handle_);
    }
    delete this;
}

void OwnedStream::destroy_deferred() noexcept {
    if (any_graph_captured()) return;
    std::vector<OwnedStream *> list;
    {
        DeferredStreams &deferred = deferred_streams();
        const std::lock_guard lock(deferred.mutex);
        list.swap(deferred.list);
    }
    for (OwnedStream *stream : list) stream->destroy();
}

Status stream_ref(Stream handle, int device, StreamRef *out) noexcept {
    *out = {};
    out->device = device;
    if (is_legacy(handle)) return CUKERN_OK;
    out->handle = handle;
    out->id = reinterpret_cast<std::uintptr_t>(handle);  // asking CUDA for its id would end a capture
    if (out->id != kPerThreadHandle) return CUKERN_OK;
    const OnDevice on(device);
    CUKERN_TRY(on.status());
    out->id = on.runtime().stream_id(handle);
    return CUKERN_OK;
}

Status stream_synchronize(const StreamRef &stream) noexcept {
    const OnDevice on(stream.device);
    CUKERN_TRY(on.status());
    CUKERN_TRY(check_not_captured(stream));
    return on.runtime().synchronize(stream.handle);
}

Status stream_done(const StreamRef &stream, bool *done) noexcept {
    const OnDevice on(stream.device);
    CUKERN_TRY(on.status());
    CUKERN_TRY(check_not_captured(stream));
    return on.runtime().stream_done(stream.handle, done);
}

Status stream_is_capturing(const StreamRef &stream, bool *capturing) noexcept {
    *capturing = false;
    if (stream.id == 0) return CUKERN_OK;  // the legacy default stream cannot be captured
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    return active->runtime.is_capturing(stream.handle, capturing);
}

Status stream_wait_stream(const StreamRef &after, const StreamRef &before) noexcept {
    if (after.id == before.id && after.device == before.device) return CUKERN_OK;
    const OnDevice on(before.device);
    CUKERN_TRY(on.status());
    Event event = nullptr;
    CUKERN_TRY(on.get().events.acquire(before.device, &event));
    Status status = on.runtime().record(event, before.handle);
    if (status == CUKERN_OK) {
        const DeviceGuard guard(on.runtime(), after.device);
        status = guard.status() == CUKERN_OK ? on.runtime().wait_event(after.handle, event) : guard.status();
    }
    on.get().events.release(before.device, event);
    return status;
}

Status device_synchronize(int device) noexcept {
    const OnDevice on(device);
    CUKERN_TRY(on.status());
    return on.runtime().synchronize_device();
}

Status current_device(int *device) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    return active->runtime.current_device(device);
}

DeviceScope::DeviceScope(int device) noexcept : status_(context(&context_)) {
    if (status_ == CUKERN_OK) status_ = context_->runtime.enter_device(device, &previous_);
}

DeviceScope::~DeviceScope() {
    if (previous_ != nullptr) context_->runtime.leave_device(previous_);
}

Status event_create(int device, bool timing, EventRef *out) noexcept {
    const OnDevice on(device);
    CUKERN_TRY(on.status());
    CUKERN_TRY(on.runtime().create_event(timing, &out->handle));
    out->context = &on.get();
    out->device = device;
    out->generation = fork_generation();
    return CUKERN_OK;
}

void event_destroy(const EventRef &event) noexcept {
    if (event.handle != nullptr && event.generation == fork_generation())
        event.context->runtime.destroy_event(event.handle);
}

Status event_record(EventRef *event, const StreamRef &stream) noexcept {
    const OnDevice on(stream.device);
    CUKERN_TRY(on.status());
    CUKERN_TRY(event->context->runtime.record(event->handle, stream.handle));
    const Graph *graph = Graph::captured_on(stream);
    event->graph = graph != nullptr ? graph->number() : 0;
    return CUKERN_OK;
}

namespace {

// Who waits for an event that stands in a graph ends the capture.
Status check_not_captured(const EventRef &event) noexcept {
    CUKERN_TRY(event.context->runtime.ready());
    return event.graph != 0 && Graph::is_captured(event.graph)
               ? fail(CUKERN_CAPTURING, "the event was recorded in a graph that is being captured")
               : CUKERN_OK;
}

}  // namespace

Status event_wait(const StreamRef &stream, const EventRef &event) noexcept {
    const OnDevice on(stream.device);
    CUKERN_TRY(on.status());
    return event.context->runtime.wait_event(stream.handle, event.handle);
}

Status event_synchronize(const EventRef &event) noexcept {
    CUKERN_TRY(check_not_captured(event));
    return event.context->runtime.synchronize_event(event.handle);
}

Status event_done(const EventRef &event, bool *done) noexcept {
    CUKERN_TRY(check_not_captured(event));
    return event.context->runtime.event_done(event.handle, done);
}

Status event_elapsed(const EventRef &begin, const EventRef &end, float *milliseconds) noexcept {
    CUKERN_TRY(check_not_captured(begin));
    CUKERN_TRY(check_not_captured(end));
    return begin.context->runtime.event_elapsed(begin.handle, end.handle, milliseconds);
}

}  // namespace cukern
