// Spare storages: given up with their blocks, and taken again as they are, without the pool's lock.
#include "context/context.h"
#include "cukern/storage.h"

namespace cukern {

namespace {

std::atomic<Storage *> &spare_slot(Context *context, MemoryKind kind, std::size_t bytes) noexcept {
    return context->spares[BlockPool::size_class_index(kind, bytes) % Context::kSpares];
}

}  // namespace

// Only of the legacy default stream: that of an owned stream would keep the stream.
bool Storage::give_as_spare() noexcept {
    const bool plain = release_ == nullptr && data_ != nullptr && lent_ == 0 && !captured_;
    const bool needs_no_event = count_ == 0 || (used_on_own_list_only() && uses_[0].event == nullptr);
    if (!plain || !needs_no_event || free_list_id_ != 0 || generation_ != fork_generation() ||
        !context_->blocks.enabled())
        return false;
    if (Storage *before = spare_slot(context_, kind_, bytes_).exchange(this, std::memory_order_acq_rel))
        before->free_now();
    return true;
}

Storage *Storage::take_spare(Context *context, MemoryKind kind, std::size_t bytes,
                             const StreamRef &stream) noexcept {
    if (BlockPool::list_of(stream) != 0) return nullptr;
    Storage *spare = spare_slot(context, kind, bytes).exchange(nullptr, std::memory_order_acq_rel);
    if (spare == nullptr) return nullptr;
    if (spare->generation_ != fork_generation()) return nullptr;  // the parent's
    const bool same_size = bytes == spare->bytes_ || context->blocks.same_size_class(bytes, spare->bytes_);
    if (spare->kind_ != kind || spare->device_ != stream.device || !same_size) {
        spare->free_now();
        return nullptr;
    }
    spare->references_.store(1, std::memory_order_relaxed);
    spare->bytes_ = bytes;
    spare->record_pending_work(stream);
    count_free_list_hit();
    return spare;
}

void Storage::release_spares(Context *context) noexcept {
    for (std::atomic<Storage *> &slot : context->spares) {
        if (slot.load(std::memory_order_relaxed) == nullptr) continue;
        Storage *spare = slot.exchange(nullptr, std::memory_order_acq_rel);
        if (spare != nullptr && spare->generation_ == fork_generation()) spare->free_now();
    }
}

}  // namespace cukern
