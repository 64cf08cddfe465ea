#include "memory/graph_blocks.h"

#include <new>

namespace cukern {
namespace {

std::atomic<int> g_gone{0};  // blocks whose graphs are gone, and that wait for collect()

// CUDA calls this on a thread of its own, where nothing of CUDA's may be called and nobody may be waited for.
void note_gone(void *owner) noexcept {
    auto *block = static_cast<GraphBlocks::Owned *>(owner);
    if (!block->graph_is_gone.exchange(true, std::memory_order_acq_rel))
        g_gone.fetch_add(1, std::memory_order_release);
}

}  // namespace

GraphBlocks::Owned *GraphBlocks::find(const Capture &capture, const StreamRef &stream,
                                      std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    for (Owned *block : list_) {
        if (block->busy || block->capture != capture.id || block->stream != stream.id || block->bytes < bytes ||
            block->device != stream.device || block->graph_is_gone.load(std::memory_order_acquire))
            continue;
        block->busy = true;
        return block;
    }
    return nullptr;
}

Status GraphBlocks::acquire(const Capture &capture, const StreamRef &stream, std::size_t bytes,
                            Owned **out) noexcept {
    collect();
    *out = find(capture, stream, bytes);
    if (*out != nullptr) return CUKERN_OK;
    auto *block = new (std::nothrow) Owned;
    if (block == nullptr) return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    block->bytes = bytes;
    block->device = stream.device;
    block->capture = capture.id;
    block->stream = stream.id;
    block->busy = true;
    Status status = blocks_.acquire_idle(MemoryKind::device, bytes, stream.device, &block->data);
    bool listed = false;
    if (status == CUKERN_OK) {
        const std::lock_guard lock(mutex_);
        try {
            list_.push_back(block);
            listed = true;
        } catch (...) {
            status = fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
        }
    }
    if (listed) status = runtime_.own_by_graph(capture, note_gone, block);
    if (status == CUKERN_OK) {
        *out = block;
    } else if (listed) {  // nothing has used it; note_gone is called, or has been
        give_back(block);
    } else {
        if (block->data != nullptr)
            blocks_.release(MemoryKind::device, block->data, bytes, stream.device, BlockPool::kIdle);
        delete block;
    }
    return status;
}

void GraphBlocks::give_back(Owned *block) noexcept {
    const std::lock_guard lock(mutex_);
    block->busy = false;
}

void GraphBlocks::collect() noexcept {
    if (g_gone.load(std::memory_order_acquire) == 0) return;
    std::vector<Owned *> gone;
    {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < list_.size();) {
            if (list_[i]->busy || !list_[i]->graph_is_gone.load(std::memory_order_acquire)) {
                ++i;
                continue;
            }
            try {
                gone.push_back(list_[i]);
            } catch (...) {
                break;  // another time
            }
            list_[i] = list_.back();
            list_.pop_back();
        }
    }
    for (Owned *block : gone) {
        g_gone.fetch_sub(1, std::memory_order_relaxed);
        // CUDA lets go of what a graph owns when its last replay is done: nothing works on it any more.
        blocks_.release(MemoryKind::device, block->data, block->bytes, block->device, BlockPool::kIdle);
        delete block;
    }
}

}  // namespace cukern
