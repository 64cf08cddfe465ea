#include "cukern/graph.h"

#include <algorithm>
#include <new>
#include <utility>

#include "context/context.h"
#include "runtime/graph_calls.h"

namespace cukern {
namespace {

Status no_memory() noexcept { return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left"); }

// Appends to a list; the caller keeps what is not taken.
template <typename T>
Status append(std::vector<T> &list, const T &item) noexcept {
    try {
        list.push_back(item);
        return CUKERN_OK;
    } catch (...) {
        return no_memory();
    }
}

}  // namespace

Graph::Graph(Context *context, GraphCalls &calls) noexcept
    : context_(context), calls_(calls), generation_(fork_generation()) {
    static std::uint64_t graphs = 0;
    number_ = ++graphs;
}

Status Graph::begin(int device, Graph **out) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    GraphCalls *calls = active->runtime.graph_calls();
    if (calls == nullptr)
        return fail(CUKERN_NO_BACKEND,
                    "graphs need a GPU, and the host back-end is in use; python -m cukern tells why");
    auto *graph = new (std::nothrow) Graph(active, *calls);
    if (graph == nullptr) return no_memory();
    OwnedStream *stream = nullptr;
    Status status = OwnedStream::create(device, true, 0, &stream);
    if (status == CUKERN_OK) {
        graph->stream_ = stream->ref();
        const DeviceGuard guard(active->runtime, device);
        status = guard.status();
        if (status == CUKERN_OK) status = graph->begin_capture();
    }
    Capture capture;
    if (status == CUKERN_OK) status = active->runtime.find_capture(graph->stream_.handle, &capture);
    if (status != CUKERN_OK) {
        const ErrorKeeper cause;
        delete graph;
        return status;
    }
    graph->capture_ = capture.id;
    graph->next_ = std::exchange(g_captured_, graph);
    *out = graph;
    return CUKERN_OK;
}

// Counted from before it begins until after it has ended: what would end it, in any thread, is left meanwhile.
Status Graph::begin_capture() noexcept {
    g_captured_graphs.fetch_add(1, std::memory_order_relaxed);
    const Status status = calls_.begin(stream_.handle);
    is_capturing_ = status == CUKERN_OK;
    if (!is_capturing_) g_captured_graphs.fetch_sub(1, std::memory_order_relaxed);
    return status;
}

Status Graph::end_capture() noexcept {
    const Status status = calls_.end(stream_.handle, &graph_);
    is_capturing_ = false;
    g_captured_graphs.fetch_sub(1, std::memory_order_relaxed);
    return status;
}

Graph *Graph::find_captured(const StreamRef &stream) noexcept {
    if (stream.id == 0) return nullptr;
    bool any = false;
    Graph *const first = g_captured_;
    for (Graph *graph = first; graph != nullptr; graph = graph->next_) {
        if (graph->generation_ != fork_generation()) continue;
        if (graph->stream_.id == stream.id && graph->stream_.device == stream.device) return graph;
        any = true;
    }
    if (!any) return nullptr;
    const ErrorKeeper kept;
    Capture capture;
    if (first->context_->runtime.find_capture(stream.handle, &capture) != CUKERN_OK || !capture.is_active)
        return nullptr;
    for (Graph *graph = first; graph != nullptr; graph = graph->next_)
        if (graph->capture_ == capture.id) return graph;
    return nullptr;
}

void Graph::leave() noexcept {
    for (Graph **link = &g_captured_; *link != nullptr; link = &(*link)->next_) {
        if (*link != this) continue;
        *link = next_;
        return;
    }
}

bool Graph::is_captured(std::uint64_t number) noexcept {
    for (const Graph *graph = g_captured_; graph != nullptr; graph = graph->next_)
        if (graph->number_ == number) return true;
    return false;
}

bool Graph::is_noted(const Storage &storage, bool or_reads) noexcept {
    return any_graph_captured() && (or_reads || storage.note_ % 2 == 1) && is_captured(storage.note_ / 2);
}

Status Graph::end() noexcept {
    CUKERN_TRY(context_->runtime.ready());
    const DeviceGuard guard(context_->runtime, stream_.device);
    CUKERN_TRY(guard.status());
    Status status = end_capture();
    if (status == CUKERN_OK) status = calls_.instantiate(graph_, &executable_);
    const ErrorKeeper kept;
    OwnedStream::destroy_deferred();
    return status;
}

Graph::~Graph() {
    leave();
    const ErrorKeeper kept;
    if (generation_ == fork_generation()) {
        const DeviceGuard guard(context_->runtime, stream_.device);
        if (is_capturing_) end_capture();
        calls_.destroy(graph_, executable_);
    }
    for (const NotedUse &use : uses_) use.storage->release();
    for (const Result &result : results_) result.storage->release();
    for (const Producer &producer : producers_)
        if (producer.stream.owner != nullptr) producer.stream.owner->release();
    if (stream_.owner != nullptr) stream_.owner->release();
    OwnedStream::destroy_deferred();
}

Status Graph::launch(const StreamRef &stream) noexcept {
    CUKERN_TRY(context_->runtime.ready());
    for (const NotedUse &use : uses_) CUKERN_TRY(use.storage->wait_before_use(stream, use.writes));
    const DeviceGuard guard(context_->runtime, stream.device);
    CUKERN_TRY(guard.status());
    bool capturing = false;
    CUKERN_TRY(stream_is_capturing(stream, &capturing));
    CUKERN_TRY(capturing ? calls_.add_to_capture(graph_, stream.handle)
                         : context_->runtime.launch_graph(executable_, stream.handle));
    Status status = CUKERN_OK;  // what was launched uses all of it, whatever fails for one
    for (const NotedUse &use : uses_) {
        const Status recorded = use.storage->record_use(stream, use.writes);
        if (status == CUKERN_OK) status = recorded;
    }
    return status;
}

Status Graph::write_dot(const char *path) const noexcept {
    CUKERN_TRY(context_->runtime.ready());
    return calls_.write_dot(graph_, path);
}

// Whether nobody but the graph refers to the memory: by results_, and by the notes of its uses. What other graphs
// have noted counts as used, and so does what was used outside, lent, or used on a stream that may be another
// branch.
bool Graph::is_unused(const Storage &storage) const noexcept {
    const int own = storage.note_ / 2 == number_ ? storage.notes_ : 0;
    return storage.references_.load(std::memory_order_acquire) == 1 + own && storage.count_ == 0 &&
           !storage.captured_ && storage.lent_ == 0 && !storage.noted_elsewhere_;
}

// A result of this capture that nobody refers to any more, whose work comes before all that follows on the stream.
Storage *Graph::take_unused(MemoryKind kind, std::size_t bytes, const StreamRef &stream) noexcept {
    for (const Result &result : results_) {
        Storage *storage = result.storage;
        if (result.stream != stream.id || storage->kind_ != kind || bytes == 0 || storage->bytes_ == 0 ||
            !context_->blocks.same_size_class(bytes, storage->bytes_) || !is_unused(*storage))
            continue;
        storage->bytes_ = bytes;
        storage->retain();
        return storage;
    }
    return nullptr;
}

Status Graph::allocate(MemoryKind kind, std::size_t bytes, const StreamRef &stream, Storage **out) noexcept {
    *out = take_unused(kind, bytes, stream);
    if (*out != nullptr) return CUKERN_OK;
    CUKERN_TRY(Storage::allocate_idle(kind, bytes, stream, out));
    const Status status = append(results_, Result{*out, stream.id});
    if (status != CUKERN_OK) {
        (*out)->release();
        return status;
    }
    (*out)->retain();
    return CUKERN_OK;
}

Status Graph::note_use(Storage *storage, const StreamRef &stream, bool writes) noexcept {
    if (stream.id != storage->free_list_id_) storage->noted_elsewhere_ = true;
    const std::uint64_t note = number_ * 2 + (writes ? 1 : 0);
    if (storage->note_ == note || storage->note_ == number_ * 2 + 1) return CUKERN_OK;
    CUKERN_TRY(append(uses_, NotedUse{storage, writes}));
    storage->retain();
    storage->notes_ = storage->note_ / 2 == number_ ? storage->notes_ + 1 : 1;
    storage->note_ = note;
    return CUKERN_OK;
}

Status Graph::note_owner(void *owner, Storage::Release release, bool *is_new) noexcept {
    *is_new = false;
    if (std::find(owners_.begin(), owners_.end(), owner) != owners_.end()) return CUKERN_OK;
    CUKERN_TRY(append(owners_, owner));
    Storage *storage = nullptr;
    Status status = Storage::adopt(MemoryKind::device, nullptr, 0, stream_.device, release, owner, &storage);
    if (status != CUKERN_OK) {
        owners_.pop_back();
        return status;
    }
    *is_new = true;
    status = note_use(storage, stream_, true);
    if (status != CUKERN_OK) owners_.pop_back();
    storage->release();  // by now it is the graph's, or gives the owner back
    return status;
}

Status Graph::note_producer(const StreamRef &stream, const void *library, void *object) noexcept {
    for (const Producer &producer : producers_)
        if (producer.library == library && producer.stream.id == stream.id &&
            producer.stream.device == stream.device)
            return CUKERN_OK;
    CUKERN_TRY(append(producers_, Producer{stream, library, object}));
    if (stream.owner != nullptr) stream.owner->retain();
    return CUKERN_OK;
}

}  // namespace cukern
