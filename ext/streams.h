// Stream, Event and Device as Python types, and the choice of the stream that a call runs on.
#pragma once

#include "module_state.h"

#include "cukern/memory.h"
#include "cukern/stream.h"

namespace cukern::py {

// Reads what names a stream: a cukern.Stream, an object with __cuda_stream__, a raw handle (0 and 1 are the legacy
// default stream, 2 the calling thread's). `device` is that of a raw handle. The reference is borrowed from
// `object`.
bool parse_stream(const ModuleState &state, const char *function, PyObject *object, int device,
                  StreamRef *stream) noexcept;

// The innermost active `with Stream` of this thread; false where there is none.
bool active_stream(StreamRef *stream) noexcept;

// A device's number from None (the current one), an int or a Device; ValueError where there is no such device.
bool parse_device(const ModuleState &state, const char *function, PyObject *object, int *device) noexcept;

// Where something new is made, from the `device` and `stream` arguments (null or None: not given).
bool stream_for_new(const ModuleState &state, const char *function, PyObject *device, PyObject *stream,
                    StreamRef *out) noexcept;

// The default stream of memory that is on `device`: stream=, else the active one, else the legacy default stream.
bool stream_on(const ModuleState &state, const char *function, PyObject *stream, int device,
               StreamRef *out) noexcept;

// ValueError where a stream is not of a device.
bool check_stream_device(const char *function, const StreamRef &stream, int device) noexcept;

PyRef make_device(const ModuleState &state, int device) noexcept;

// "device", "managed" or "pinned"; null gives `device`.
bool parse_memory(const char *function, PyObject *object, MemoryKind *kind) noexcept;

bool add_stream_types(PyObject *module, ModuleState &state) noexcept;

}  // namespace cukern::py
