// Stream, Event and Device as Python types, and the choice of the stream that a call runs on.
#pragma once

#include "base/module_state.h"

#include "cukern/memory.h"
#include "cukern/stream.h"

namespace cukern::py {

// A stream that outlives the object of Python that it was read from, which code that runs meanwhile may drop.
class HeldStream {
public:
    HeldStream() noexcept = default;
    HeldStream(const HeldStream &) = delete;
    HeldStream &operator=(const HeldStream &other) noexcept { return *this = other.ref_; }
    HeldStream &operator=(const StreamRef &stream) noexcept {
        if (stream.owner != nullptr) stream.owner->retain();
        if (ref_.owner != nullptr) ref_.owner->release();
        ref_ = stream;
        return *this;
    }
    ~HeldStream() {
        if (ref_.owner != nullptr) ref_.owner->release();
    }
    // The legacy default stream of a device.
    void set_default(int device) noexcept {
        StreamRef stream;
        stream.device = device;
        *this = stream;
    }
    operator const StreamRef &() const noexcept { return ref_; }  // NOLINT(google-explicit-constructor)
    const StreamRef *operator->() const noexcept { return &ref_; }

private:
    StreamRef ref_;
};

// Reads what names a stream: a cukern.Stream, an object with __cuda_stream__, a raw handle (0 and 1 are the legacy
// default stream, 2 the calling thread's). `device` is that of a raw handle.
bool parse_stream(const ModuleState &state, const char *function, PyObject *object, int device,
                  HeldStream *stream) noexcept;

// A device's number from None (that of the innermost `with Device`, else the thread's current one), an int or a
// Device; ValueError where there is no such device.
bool parse_device(const ModuleState &state, const char *function, PyObject *object, int *device) noexcept;

// Where something new is made, from the `device` and `stream` arguments (null or None: not given).
bool stream_for_new(const ModuleState &state, const char *function, PyObject *device, PyObject *stream,
                    HeldStream *out) noexcept;

// The stream for work on memory of `device`: `stream`, else the active one of that device, else the legacy default
// stream.
bool stream_on(const ModuleState &state, const char *function, PyObject *stream, int device,
               HeldStream *out) noexcept;

// What would wait on a stream of a graph that is being captured does so on the device's default stream instead:
// the graph waits for nothing outside it, its launches do. Whether that was so.
bool leave_graph(HeldStream *stream) noexcept;

// ValueError where a stream is not of a device.
bool check_stream_device(const char *function, const StreamRef &stream, int device) noexcept;

PyRef make_device(const ModuleState &state, int device) noexcept;

// "device", "managed" or "pinned"; null gives `device`.
bool parse_memory(const char *function, PyObject *object, MemoryKind *kind) noexcept;

bool add_stream_types(PyObject *module, ModuleState &state) noexcept;

}  // namespace cukern::py
