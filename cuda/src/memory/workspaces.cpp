#include "memory/workspaces.h"

#include <algorithm>

namespace cukern {
namespace {

constexpr std::size_t kMostKept = 16;  // the least recently used one makes room
// With less than this cuBLAS has no kernels for some products.
constexpr std::size_t kLeastBytes = std::size_t{16} << 10;

}  // namespace

// A foreign stream may be gone, so that no event can be recorded on it: the pool waits for the whole device before
// it uses the block again.
void Workspaces::release(const Workspace &workspace) noexcept {
    blocks_.release(MemoryKind::device, workspace.data, workspace.bytes, workspace.device, workspace.list, {},
                    workspace.list == BlockPool::kIdle);
}

bool Workspaces::find(const StreamRef &stream, Use *use) noexcept {
    const std::lock_guard lock(mutex_);
    for (Workspace &workspace : all_) {
        if (workspace.device != stream.device || workspace.stream != stream.id) continue;
        ++workspace.calls;
        workspace.last_use = ++uses_;
        use->data_ = workspace.data;
        use->bytes_ = workspace.bytes;
        return true;
    }
    return false;
}

// Removes one from the list.
Workspaces::Workspace Workspaces::take(std::vector<Workspace>::iterator at) noexcept {
    const Workspace taken = *at;
    *at = all_.back();
    all_.pop_back();
    return taken;
}

// False where the system has no memory for the record.
bool Workspaces::keep(const StreamRef &stream, const Use &use) noexcept {
    const auto is_older = [](const Workspace &a, const Workspace &b) {
        return a.calls == 0 && (b.calls != 0 || a.last_use < b.last_use);
    };
    Workspace oldest;
    {
        const std::lock_guard lock(mutex_);
        try {
            all_.push_back(
                {stream.device, stream.id, BlockPool::list_of(stream), use.data_, use.bytes_, 1, ++uses_});
        } catch (...) {
            return false;
        }
        if (all_.size() <= kMostKept) return true;
        const auto at = std::min_element(all_.begin(), all_.end(), is_older);
        if (at->calls != 0) return true;
        oldest = take(at);
    }
    release(oldest);
    return true;
}

Status Workspaces::begin(const StreamRef &stream, Use *use) noexcept {
    if (!find(stream, use)) {
        Status status = CUKERN_OUT_OF_MEMORY;
        for (std::size_t bytes = kCublasWorkspaceBytes; status == CUKERN_OUT_OF_MEMORY && bytes >= kLeastBytes;
             bytes /= 2) {
            bool may_be_in_use = false;  // by earlier calls of the stream
            use->bytes_ = bytes;
            status = blocks_.acquire(MemoryKind::device, bytes, stream, &use->data_, &may_be_in_use);
        }
        CUKERN_TRY(status);
        if (!keep(stream, *use)) {
            release({stream.device, stream.id, BlockPool::list_of(stream), use->data_, use->bytes_, 0, 0});
            return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
        }
    }
    use->owner_ = this;
    return CUKERN_OK;
}

// What is smaller than it should be is not kept: the next call may get more.
void Workspaces::end(void *data) noexcept {
    Workspace small;
    {
        const std::lock_guard lock(mutex_);
        const auto at = std::find_if(all_.begin(), all_.end(),
                                     [data](const Workspace &workspace) { return workspace.data == data; });
        if (--at->calls != 0 || at->bytes == kCublasWorkspaceBytes) return;
        small = take(at);
    }
    release(small);
}

template <typename Predicate>
void Workspaces::give_back_if(Predicate goes) noexcept {
    for (;;) {
        Workspace idle;
        {
            const std::lock_guard lock(mutex_);
            const auto at = std::find_if(all_.begin(), all_.end(), [&goes](const Workspace &workspace) {
                return workspace.calls == 0 && goes(workspace);
            });
            if (at == all_.end()) return;
            idle = take(at);
        }
        release(idle);
    }
}

void Workspaces::give_back() noexcept {
    give_back_if([](const Workspace &) { return true; });
}

void Workspaces::forget_stream(const StreamRef &stream) noexcept {
    give_back_if([&stream](const Workspace &workspace) {
        return workspace.device == stream.device && workspace.stream == stream.id;
    });
}

}  // namespace cukern
