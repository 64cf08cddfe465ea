#include "memory/workspaces.h"

#include <algorithm>

namespace cukern {
namespace {

constexpr std::ptrdiff_t kMostKept = 16;  // on a device; the least recently used one makes room
// What is asked for, one after the other. With less than the last cuBLAS has no kernels for some products.
constexpr std::size_t kSizes[] = {kCublasWorkspaceBytes, std::size_t{4} << 20, std::size_t{512} << 10,
                                  std::size_t{64} << 10, std::size_t{16} << 10};

}  // namespace

// A foreign stream may be gone, so that no event can be recorded on it: the pool waits for the whole device before
// it uses the block again.
void Workspaces::release(const Workspace &workspace) noexcept {
    blocks_.release(MemoryKind::device, workspace.data, workspace.bytes, workspace.device, workspace.list, {},
                    workspace.list == BlockPool::kIdle);
}

// Returns the next one.
Workspaces::Iterator Workspaces::remove(Iterator at) noexcept {
    release(*at);
    return all_.erase(at);
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

// Where there are too many on a device. The caller holds the mutex.
void Workspaces::drop_oldest(int device) noexcept {
    std::ptrdiff_t count = 0;
    auto oldest = all_.end();
    for (auto at = all_.begin(); at != all_.end(); ++at) {
        if (at->device != device) continue;
        ++count;
        if (at->calls == 0 && (oldest == all_.end() || at->last_use < oldest->last_use)) oldest = at;
    }
    if (count > kMostKept && oldest != all_.end()) remove(oldest);
}

// False where the system has no memory for the record.
bool Workspaces::keep(const StreamRef &stream, const Use &use) noexcept {
    const std::lock_guard lock(mutex_);
    try {
        all_.push_back({stream.device, stream.id, BlockPool::list_of(stream), use.data_, use.bytes_, 1, ++uses_});
    } catch (...) {
        return false;
    }
    drop_oldest(stream.device);
    return true;
}

Status Workspaces::begin(const StreamRef &stream, Use *use) noexcept {
    if (!find(stream, use)) {
        Status status = CUKERN_OUT_OF_MEMORY;
        for (const std::size_t bytes : kSizes) {
            bool may_be_in_use = false;  // by earlier calls of the stream
            use->bytes_ = bytes;
            status = blocks_.acquire(MemoryKind::device, bytes, stream, &use->data_, &may_be_in_use);
            if (status != CUKERN_OUT_OF_MEMORY) break;
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
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(all_.begin(), all_.end(),
                                 [data](const Workspace &workspace) { return workspace.data == data; });
    if (--at->calls == 0 && at->bytes < kCublasWorkspaceBytes) remove(at);
}

std::int64_t Workspaces::idle_bytes(int device) noexcept {
    const std::lock_guard lock(mutex_);
    std::int64_t bytes = 0;
    for (const Workspace &workspace : all_)
        if (workspace.calls == 0 && (device < 0 || workspace.device == device))
            bytes += static_cast<std::int64_t>(workspace.bytes);
    return bytes;
}

template <typename Predicate>
void Workspaces::give_back_if(Predicate goes) noexcept {
    const std::lock_guard lock(mutex_);
    for (auto at = all_.begin(); at != all_.end();) at = at->calls == 0 && goes(*at) ? remove(at) : at + 1;
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
