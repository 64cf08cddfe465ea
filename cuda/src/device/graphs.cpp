#include "device/graphs.h"

#include <cuda_runtime_api.h>

#include "device/check.h"
#include "device/driver.h"
#include "device/outside_captures.h"

namespace cukern::cuda {
namespace {

cudaStream_t native(Stream stream) noexcept { return static_cast<cudaStream_t>(stream); }
cudaGraph_t native_graph(void *graph) noexcept { return static_cast<cudaGraph_t>(graph); }
cudaGraphExec_t native_executable(void *executable) noexcept { return static_cast<cudaGraphExec_t>(executable); }

// Of CUDA 13 these take the data of edges too. Inside our graphs there are some, from a kernel to one that follows
// it (Grid::follows), but none comes after what was captured last.
cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus *status, cudaGraph_t *graph,
                         const cudaGraphNode_t **last, std::size_t *count) noexcept {
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, status, nullptr, graph, last, nullptr, count);
#else
    return cudaStreamGetCaptureInfo_v2(stream, status, nullptr, graph, last, count);
#endif
}

// What follows on the captured stream comes after the node.
cudaError_t set_last_node(cudaStream_t stream, cudaGraphNode_t *node) noexcept {
#if CUDART_VERSION >= 13000
    return cudaStreamUpdateCaptureDependencies(stream, node, nullptr, 1, cudaStreamSetCaptureDependencies);
#else
    return cudaStreamUpdateCaptureDependencies(stream, node, 1, cudaStreamSetCaptureDependencies);
#endif
}

class CudaGraphs final : public GraphCalls {
public:
    Status begin(Stream stream) noexcept override {
        return check(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeRelaxed),
                     "cudaStreamBeginCapture");
    }

    Status end(Stream stream, void **graph) noexcept override {
        const AnyContext any;
        cudaGraph_t captured = nullptr;
        const cudaError_t error = cudaStreamEndCapture(native(stream), &captured);
        if (error == cudaErrorStreamCaptureInvalidated) {
            cudaGetLastError();
            return fail(CUKERN_CAPTURING,
                        "the capture was ended by a call that a graph cannot hold, such as one that waits for the "
                        "captured stream");
        }
        CUKERN_TRY(check(error, "cudaStreamEndCapture"));
        *graph = captured;
        return CUKERN_OK;
    }

    Status instantiate(void *graph, void **executable) noexcept override {
        const AnyContext any;
        const OutsideCaptures outside;
        cudaGraphExec_t made = nullptr;
        CUKERN_TRY(check(cudaGraphInstantiate(&made, native_graph(graph), 0), "cudaGraphInstantiate"));
        *executable = made;
        return CUKERN_OK;
    }

    Status launch(void *executable, Stream stream) noexcept override {
        return check(cudaGraphLaunch(native_executable(executable), native(stream)), "cudaGraphLaunch");
    }

    Status add_to_capture(void *graph, Stream stream) noexcept override {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaGraph_t outer = nullptr;
        const cudaGraphNode_t *before = nullptr;
        std::size_t count = 0;
        const cudaError_t error = capture_info(native(stream), &status, &outer, &before, &count);
        CUKERN_TRY(check(error, "cudaStreamGetCaptureInfo"));
        if (status != cudaStreamCaptureStatusActive)
            return fail(CUKERN_CAPTURING, "the stream's capture has been invalidated by an earlier error");
        cudaGraphNode_t node = nullptr;
        CUKERN_TRY(check(cudaGraphAddChildGraphNode(&node, outer, before, count, native_graph(graph)),
                         "cudaGraphAddChildGraphNode"));
        return check(set_last_node(native(stream), &node), "cudaStreamUpdateCaptureDependencies");
    }

    Status write_dot(void *graph, const char *path) noexcept override {
        return check(cudaGraphDebugDotPrint(native_graph(graph), path, cudaGraphDebugDotFlagsVerbose),
                     "cudaGraphDebugDotPrint");
    }

    void destroy(void *graph, void *executable) noexcept override {
        const AnyContext any;
        const OutsideCaptures outside;
        if (executable != nullptr && cudaGraphExecDestroy(native_executable(executable)) != cudaSuccess)
            cudaGetLastError();
        if (graph != nullptr && cudaGraphDestroy(native_graph(graph)) != cudaSuccess) cudaGetLastError();
    }
};

}  // namespace

GraphCalls *graph_calls() noexcept {
    static CudaGraphs instance;
    return &instance;
}

}  // namespace cukern::cuda
