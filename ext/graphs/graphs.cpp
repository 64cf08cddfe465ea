// CUDA graphs: what a `with cukern.capture()` block records, and launches of it.
#include "base/python.h"

#include "graphs/graphs.h"

#include <cstddef>
#include <cstdio>
#include <memory>
#include <new>

#include "base/backend.h"
#include "base/errors.h"
#include "base/methods.h"
#include "base/signature.h"
#include "call/result.h"
#include "streams/stream_types.h"

#include "cukern/graph.h"

namespace cukern::py {
namespace {

enum class Stage { fresh, captured, ending, ready, failed };

struct GraphObject {
    PyObject_HEAD Graph *graph;  // owned; null before the block and after a failure
    PyObject *stream;            // owned: the Stream that the block makes active
    PyObject *weak_references;
    int device;
    Stage stage;
};

GraphObject *as_graph(PyObject *object) noexcept { return reinterpret_cast<GraphObject *>(object); }

#define CUKERN_CAPTURE "(device=None)"

PyObject *capture_method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_CAPTURE);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("capture", nullptr, values, count, names, arguments)) return nullptr;
    ModuleState &state = state_of(module);
    Backend backend;
    int device = 0;
    if (!ensure_backend(state, "capture", &backend) || !parse_device(state, "capture", arguments[0], &device))
        return nullptr;
    auto *self = make<GraphObject>(state.graph_type);
    if (self != nullptr) self->device = device;
    return reinterpret_cast<PyObject *>(self);
}

// Gives up what was captured.
void drop(GraphObject *self, Stage stage) noexcept {
    self->stage = stage;
    if (self->stream != nullptr)  // a block that was not left is active no more
        for (WithBlock *block = as_stream(self->stream)->blocks; block != nullptr; block = block->next)
            block->is_void = true;
    Py_CLEAR(self->stream);
    delete std::exchange(self->graph, nullptr);
}

PyObject *graph_enter(PyObject *object, PyObject *) {
    GraphObject *const self = as_graph(object);
    const ModuleState &state = state_of_type(object);
    if (self->stage != Stage::fresh) {
        PyErr_SetString(PyExc_RuntimeError,
                        "capture: a graph is captured once; begin another by cukern.capture()");
        return nullptr;
    }
    const Status status = Graph::begin(self->device, &self->graph);
    if (status != CUKERN_OK) return done(state, "capture", status);
    self->stage = Stage::captured;
    auto *stream = make<StreamObject>(state.stream_type);
    self->stream = reinterpret_cast<PyObject *>(stream);
    if (stream != nullptr) {
        stream->ref = self->graph->stream();
        stream->ref.owner->retain();
    }
    if (stream == nullptr || !enter_block(state, self->stream, &stream->blocks)) {
        drop(self, Stage::failed);
        return nullptr;
    }
    return PyRef::borrow(object).release();
}

PyObject *graph_exit(PyObject *object, PyObject *arguments) {
    GraphObject *const self = as_graph(object);
    const ModuleState &state = state_of_type(object);
    PyObject *type = Py_None;
    PyObject *value = nullptr;
    PyObject *traceback = nullptr;
    if (PyArg_ParseTuple(arguments, "|OOO:__exit__", &type, &value, &traceback) == 0) return nullptr;
    if (self->stage != Stage::captured) {
        PyErr_SetString(PyExc_RuntimeError, "capture: nothing is being captured; __exit__ comes after __enter__");
        return nullptr;
    }
    const bool left = leave_block(state, self->stream, "capture", &as_stream(self->stream)->blocks);
    if (!left || Py_IsNone(type) == 0) {
        drop(self, Stage::failed);
        return left ? PyRef::borrow(Py_None).release() : nullptr;
    }
    Graph *const graph = self->graph;
    self->stage = Stage::ending;  // for other threads, which run meanwhile
    graph->leave();
    Status status = CUKERN_OK;
    {
        const GilRelease released;
        status = graph->end();
    }
    if (status != CUKERN_OK) {
        raise_status(state, "capture", status);
        drop(self, Stage::failed);
        return nullptr;
    }
    Py_CLEAR(self->stream);
    self->stage = Stage::ready;
    Py_RETURN_NONE;
}

// RuntimeError where there is nothing to launch.
bool check_ready(const char *function, const GraphObject *self) noexcept {
    if (self->stage == Stage::ready) return true;
    PyErr_Format(PyExc_RuntimeError, "%s: %s", function,
                 self->stage == Stage::fresh ? "nothing has been captured yet: with cukern.capture() as graph: ..."
                 : self->stage != Stage::failed
                     ? "the graph is being captured; wait for the end of the 'with' block"
                     : "the capture ended with an error, and the graph holds nothing");
    return false;
}

// The streams on which other libraries work now on what the graph uses.
class Producers {
public:
    bool read(const Request &request, const Graph &graph) noexcept {
        const auto &producers = graph.producers();
        if (producers.empty()) return true;
        views_.reset(new (std::nothrow) TrackedView[producers.size()]);
        streams_.reset(new (std::nothrow) HeldStream[producers.size()]);
        if (views_ == nullptr || streams_ == nullptr) {
            PyErr_NoMemory();
            return false;
        }
        ReadContext reading;
        if (!consumer_of(request, reading)) return false;
        for (const Graph::Producer &producer : producers) {
            auto *const object = static_cast<PyObject *>(producer.object);
            bool has_stream = false;
            if (!find_stream(request, object, producer.stream.device, reading, &has_stream)) return false;
            if (!has_stream) continue;
            TrackedView &view = views_[count_];
            view.has_producer = true;
            view.producer = streams_[count_];
            view.set_object(object, producer.library);
            ++count_;
        }
        return true;
    }

    const TrackedView *first() const noexcept { return count_ == 0 ? nullptr : &views_[0]; }
    const TrackedView *begin() const noexcept { return views_.get(); }
    const TrackedView *end() const noexcept { return views_.get() + count_; }

private:
    // Of an array, into streams_[count_].
    bool find_stream(const Request &request, PyObject *object, int device, ReadContext &reading,
                     bool *has_stream) noexcept {
        const TypeRecord *record = known_foreign(request.state, object);
        if (record != nullptr && record->is_torch) {  // whose stream is not the tensor's
            void *handle = nullptr;
            StreamRef stream;
            if (!current_stream_of(*record, device, &handle)) return PyErr_Occurred() == nullptr;
            const Status status = stream_ref(handle, device, &stream);
            streams_[count_] = stream;
            *has_stream = true;
            return status == CUKERN_OK || raise_failure(request.state, request.function, status);
        }
        Operand operand;
        if (!operand.read_address({request.state, request.function, "an array of the graph"}, object, reading))
            return false;
        *has_stream = operand.access().has_producer;
        streams_[count_] = operand.access().producer;
        return true;
    }

    std::unique_ptr<TrackedView[]> views_;
    std::unique_ptr<HeldStream[]> streams_;
    int count_ = 0;
};

// What was ordered on a stream while calls were captured, which lives still.
bool wait_for_captured(const ModuleState &state, const Graph &graph, const StreamRef &stream) noexcept {
    bool capturing = false;
    Status status = stream_is_capturing(stream, &capturing);
    if (status != CUKERN_OK) return raise_failure(state, "launch", status);
    if (capturing) return true;  // a graph waits for nothing outside it
    for (const Graph::Producer &producer : graph.producers()) {
        if (!has_lasting_id(producer.stream)) continue;
        status = stream_wait_stream(stream, producer.stream);
        if (status != CUKERN_OK) return raise_failure(state, "launch", status);
    }
    return true;
}

#define CUKERN_LAUNCH "($self, /, stream=None)"

PyObject *graph_launch(PyObject *object, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    static constexpr Signature kSignature(CUKERN_LAUNCH);
    PyObject *arguments[Signature::kMost];
    if (!kSignature.parse("launch", object, values, count, names, arguments)) return nullptr;
    const GraphObject *const self = as_graph(object);
    const ModuleState &state = state_of_type(object);
    if (!check_ready("launch", self)) return nullptr;
    Graph &graph = *self->graph;
    const Request request{state, "launch", nullptr, given_or_null(arguments[1])};
    Producers producers;
    HeldStream stream;
    if (!producers.read(request, graph) ||
        !choose_stream(state, "launch", request.stream, self->device, {producers.first()}, &stream) ||
        !wait_for_captured(state, graph, stream))
        return nullptr;
    for (const TrackedView &view : producers)
        if (!wait_before_use(state, "launch", view, stream, true)) return nullptr;
    if (const Status status = graph.launch(stream); status != CUKERN_OK) {
        raise_status(state, "launch", status);
        synchronize_after_failure(stream);
        return nullptr;
    }
    bool succeeded = true;
    for (const TrackedView &view : producers)
        succeeded = record_use(state, "launch", view, stream, true) && succeeded;
    for (const Graph::NotedUse &use : graph.uses())
        if (succeeded && use.writes && use.storage->exports() != 0)
            succeeded = wait_for_host(state, "launch", use.storage, false);
    return succeeded ? PyRef::borrow(Py_None).release() : nullptr;
}

PyObject *graph_debug_dot(PyObject *object, PyObject *path) {
    PyObject *bytes = nullptr;
    if (PyUnicode_FSConverter(path, reinterpret_cast<void *>(&bytes)) == 0) return nullptr;
    const PyRef held = PyRef::steal(bytes);
    if (!check_ready("debug_dot", as_graph(object))) return nullptr;
    // CUDA's error would not say why a file cannot be written.
    std::FILE *const file = std::fopen(PyBytes_AsString(bytes), "ab");
    if (file == nullptr) return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    std::fclose(file);
    return done(state_of_type(object), "debug_dot", as_graph(object)->graph->write_dot(PyBytes_AsString(bytes)));
}

PyObject *graph_repr(PyObject *object) {
    constexpr const char *kStages[] = {"not captured yet", "being captured", "being captured", "ready", "failed"};
    const GraphObject *const self = as_graph(object);
    return PyUnicode_FromFormat("<cukern.Graph of device %d: %s>", self->device,
                                kStages[static_cast<int>(self->stage)]);
}

void graph_dealloc(PyObject *object) {
    GraphObject *const self = as_graph(object);
    if (self->weak_references != nullptr) PyObject_ClearWeakRefs(object);
    drop(self, Stage::failed);
    free_object(object);
}

PyMethodDef kGraphMethods[] = {
    {"__enter__", graph_enter, METH_NOARGS, "Begin to capture the calls of this context."},
    {"__exit__", graph_exit, METH_VARARGS, "End the capture; after an error the graph holds nothing."},
    {"launch", as_method(graph_launch), METH_FASTCALL | METH_KEYWORDS,
     "launch" CUKERN_LAUNCH "\n--\n\nMake the captured calls again, all by one call of CUDA.\n\n"
     "It is ordered as one call that takes all arrays of the graph, and later calls on them after it.\n\n"
     "Parameters\n----------\nstream : Stream, int or object with ``__cuda_stream__``, optional\n"
     "    By default the active one, else that of the first array whose library has one, else the legacy\n"
     "    default stream. It is of the graph's device.\n\n"
     "Raises\n------\nRuntimeError\n    Nothing has been captured.\nCudaError\n    The launch failed."},
    {"debug_dot", graph_debug_dot, METH_O,
     "debug_dot(path, /)\n--\n\nWrite the graph as text in the DOT language of Graphviz.\n\n"
     "Parameters\n----------\npath : str or os.PathLike\n\nRaises\n------\nOSError\n    The file cannot be "
     "written."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kGraphMembers[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GraphObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

constexpr const char *kGraphDoc =
    "Calls that were captured into a CUDA graph, made by `capture`.\n\n"
    "It keeps all arrays that the calls take, and the memory of results that were made meanwhile.";

PyType_Slot kGraphSlots[] = {
    {Py_tp_doc, const_cast<char *>(kGraphDoc)},
    {Py_tp_dealloc, reinterpret_cast<void *>(graph_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(graph_repr)},
    {Py_tp_methods, kGraphMethods},
    {Py_tp_members, kGraphMembers},
    {0, nullptr},
};

PyType_Spec kGraphSpec = {"cukern.Graph", sizeof(GraphObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kGraphSlots};

}  // namespace

PyMethodDef kGraphFunctions[] = {
    {"capture", as_method(capture_method), METH_FASTCALL | METH_KEYWORDS,
     "capture" CUKERN_CAPTURE "\n--\n\n"
     "Capture calls into a CUDA graph: ``with cukern.capture() as graph``, then ``graph.launch()``.\n\n"
     "In the block, calls between device arrays run nothing: they become nodes of the graph, with operations,\n"
     "products and kernels of one's own alike. Results are arrays whose memory the graph keeps; a launch fills\n"
     "them. A launch reads its operands as they are then, and keeps all of them, also other libraries'.\n\n"
     "What a graph cannot hold, such as an array in host memory, raises, and an error that leaves the block ends\n"
     "the capture. Calls that are given another stream run there at once.\n\n"
     "Parameters\n----------\ndevice : int or Device, optional\n    The current one by default.\n\n"
     "Returns\n-------\nGraph\n\n"
     "Raises\n------\nRuntimeError\n    There is no GPU, or a graph cannot hold what was called.\n\n"
     "Examples\n--------\n>>> import cukern\n>>> x = cukern.arange(3.0)\n"
     ">>> with cukern.capture() as graph:  # doctest: +SKIP\n...     y = x * 2 + 1\n"
     ">>> graph.launch()  # doctest: +SKIP\n>>> y.tolist()  # doctest: +SKIP\n[1.0, 3.0, 5.0]\n"},
    {nullptr, nullptr, 0, nullptr},
};

bool add_graph_type(PyObject *module, ModuleState &state) noexcept {
    state.graph_type = PyType_FromModuleAndSpec(module, &kGraphSpec, nullptr);
    return state.graph_type != nullptr && PyModule_AddObjectRef(module, "Graph", state.graph_type) == 0;
}

}  // namespace cukern::py
