// Storages, each with its memory: from the pool, of a graph, of another owner.
#include <cstddef>

#include "context/context.h"
#include "cukern/storage.h"

namespace cukern {
namespace {

Status no_memory() noexcept { return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left"); }

}  // namespace

Storage *Storage::make(Context *context, MemoryKind kind, std::size_t bytes, const StreamRef &stream,
                       void *data) noexcept {
    Storage *storage = fresh();
    if (storage == nullptr) return nullptr;
    storage->context_ = context;
    storage->generation_ = fork_generation();
    storage->kind_ = kind;
    storage->device_ = stream.device;
    storage->free_list_id_ = BlockPool::list_of(stream);
    storage->data_ = data;
    storage->bytes_ = bytes;
    storage->free_list_owner_ = stream.owner;
    if (stream.owner != nullptr) stream.owner->retain();
    return storage;
}

Status Storage::allocate(MemoryKind kind, std::size_t bytes, const StreamRef &stream, bool only_cached,
                         Storage **out) noexcept {
    *out = nullptr;
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    BlockPool &blocks = active->blocks;
    active->graph_blocks.collect();
    void *data = nullptr;
    bool may_be_in_use = false;
    if (bytes > 0) {
        *out = take_spare(active, kind, bytes, stream);
        if (*out != nullptr) return CUKERN_OK;
        data = blocks.acquire_cached(kind, bytes, stream, &may_be_in_use);
        if (data == nullptr && only_cached) return CUKERN_OK;
        if (data == nullptr) {
            const DeviceGuard guard(active->runtime, stream.device);
            CUKERN_TRY(guard.status());
            CUKERN_TRY(blocks.acquire(kind, bytes, stream, &data, &may_be_in_use));
        }
    }
    Storage *storage = make(active, kind, bytes, stream, data);
    if (storage == nullptr) {
        if (data != nullptr) blocks.release(kind, data, bytes, stream.device, BlockPool::list_of(stream));
        return no_memory();
    }
    if (may_be_in_use) storage->record_pending_work(stream);
    *out = storage;
    return CUKERN_OK;
}

Status Storage::allocate_idle(MemoryKind kind, std::size_t bytes, const StreamRef &stream,
                              Storage **out) noexcept {
    *out = nullptr;
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    void *data = nullptr;
    if (bytes > 0) {
        const DeviceGuard guard(active->runtime, stream.device);
        CUKERN_TRY(guard.status());
        CUKERN_TRY(active->blocks.acquire_idle(kind, bytes, stream.device, &data));
    }
    *out = make(active, kind, bytes, stream, data);
    if (*out != nullptr) return CUKERN_OK;
    if (data != nullptr) active->blocks.release(kind, data, bytes, stream.device, BlockPool::kIdle);
    return no_memory();
}

Status Storage::allocate_in_graph(std::size_t bytes, const StreamRef &stream, Storage **out) noexcept {
    *out = nullptr;
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    Capture capture;
    CUKERN_TRY(active->runtime.find_capture(stream.handle, &capture));
    if (!capture.is_active) return allocate(MemoryKind::device, bytes, stream, false, out);
    GraphBlocks::Owned *block = nullptr;
    if (bytes > 0) {
        const DeviceGuard guard(active->runtime, stream.device);
        CUKERN_TRY(guard.status());
        CUKERN_TRY(active->graph_blocks.acquire(capture, stream, bytes, &block));
    }
    *out = make(active, MemoryKind::device, bytes, stream, block == nullptr ? nullptr : block->data);
    if (*out == nullptr) {
        if (block != nullptr) active->graph_blocks.give_back(block);
        return no_memory();
    }
    (*out)->owner_ = block;
    (*out)->is_graphs_ = block != nullptr;
    return CUKERN_OK;
}

Status Storage::adopt(MemoryKind kind, void *data, std::size_t bytes, int device, Release release, void *owner,
                      Storage **out) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    Storage *storage = fresh();
    if (storage == nullptr) return no_memory();
    storage->context_ = active;
    storage->generation_ = fork_generation();
    storage->kind_ = kind;
    storage->data_ = data;
    storage->bytes_ = bytes;
    storage->device_ = device;
    storage->release_ = release;
    storage->owner_ = owner;
    *out = storage;
    return CUKERN_OK;
}

}  // namespace cukern
