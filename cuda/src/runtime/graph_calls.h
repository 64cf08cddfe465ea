// What a back-end does for graphs. The CUDA back-end has it; the host's has nothing.
#pragma once

#include "cukern/status.h"
#include "cukern/stream.h"

namespace cukern {

class GraphCalls {
public:
    GraphCalls() noexcept = default;
    GraphCalls(const GraphCalls &) = delete;
    GraphCalls &operator=(const GraphCalls &) = delete;
    virtual ~GraphCalls() = default;

    // Neither other threads nor other libraries can end the capture, which any thread may end.
    virtual Status begin(Stream stream) noexcept = 0;
    // Ends the capture in any case; *graph stays as it is after a failure.
    virtual Status end(Stream stream, void **graph) noexcept = 0;
    virtual Status instantiate(void *graph, void **executable) noexcept = 0;
    virtual Status launch(void *executable, Stream stream) noexcept = 0;
    // In place of a launch on a stream that is captured: the graph becomes a node of the other one.
    virtual Status add_to_capture(void *graph, Stream stream) noexcept = 0;
    virtual Status write_dot(void *graph, const char *path) noexcept = 0;
    // Either may be null. What is running goes on.
    virtual void destroy(void *graph, void *executable) noexcept = 0;
};

}  // namespace cukern
