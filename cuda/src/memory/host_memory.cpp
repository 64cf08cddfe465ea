#include "cukern/host_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "context/context.h"
#include "memory/machine_memory.h"

namespace cukern {
namespace {

// Before the memory that is given out.
struct alignas(64) Header {
    Context *context;  // whose pool it is of; null: the system's own
    std::size_t bytes;
    int device;
    int generation;
};

const Header *header_of(const void *data) noexcept { return static_cast<const Header *>(data) - 1; }

std::atomic<std::int64_t> g_limit{0};

std::int64_t limit() noexcept {
    if (const std::int64_t asked = g_limit.load(std::memory_order_relaxed); asked > 0) return asked;
    static const std::int64_t by_machine = [] {
        std::int64_t free = 0;
        std::int64_t total = 0;
        machine_memory(&free, &total);
        return total / 4;
    }();
    return by_machine;
}

Status acquire(HostMemory kind, Header *header, void **data) noexcept {
    Context *context = nullptr;
    CUKERN_TRY(kind == HostMemory::pinned ? cukern::context(&context) : processor_context(&context));
    if (context->generation != fork_generation()) return CUKERN_OUT_OF_MEMORY;
    CUKERN_TRY(context->runtime.current_device(&header->device));
    const DeviceGuard guard(context->runtime, header->device);
    CUKERN_TRY(guard.status());
    BlockPool &pool = context->blocks;
    const std::int64_t most = limit();
    if (pool.usage(MemoryKind::pinned).in_use + static_cast<std::int64_t>(header->bytes) > most)
        return CUKERN_OUT_OF_MEMORY;
    CUKERN_TRY(pool.acquire_idle(MemoryKind::pinned, header->bytes + sizeof(Header), header->device, data));
    header->context = context;
    const BlockPool::Usage usage = pool.usage(MemoryKind::pinned);
    if (usage.in_use + usage.cached > most && !any_graph_captured()) pool.trim();  // which waits for the device
    return CUKERN_OK;
}

}  // namespace

void *allocate_host_memory(HostMemory kind, std::size_t bytes) noexcept {
    const ErrorKeeper before;  // the system's own memory serves too
    Header header{nullptr, bytes, 0, fork_generation()};
    void *data = nullptr;
    if (bytes > PTRDIFF_MAX - sizeof(Header)) return nullptr;
    if (acquire(kind, &header, &data) != CUKERN_OK)
        data = std::aligned_alloc(alignof(Header),
                                  (bytes + 2 * sizeof(Header) - 1) / sizeof(Header) * sizeof(Header));
    return data == nullptr ? nullptr : new (data) Header(header) + 1;
}

void free_host_memory(void *data) noexcept {
    if (data == nullptr) return;
    const Header header = *header_of(data);
    auto *const block = const_cast<Header *>(header_of(data));
    if (header.context == nullptr) return std::free(block);
    if (header.generation != fork_generation()) return;  // it is of a pool of the parent's, and stays
    const ErrorKeeper before;
    const DeviceGuard guard(header.context->runtime, header.device);
    header.context->blocks.release(MemoryKind::pinned, block, header.bytes + sizeof(Header), header.device,
                                   BlockPool::kIdle);
}

std::size_t host_memory_size(const void *data) noexcept { return header_of(data)->bytes; }
bool is_from_pool(const void *data) noexcept { return header_of(data)->context != nullptr; }

void set_host_memory_limit(std::int64_t bytes) noexcept { g_limit.store(bytes, std::memory_order_relaxed); }

}  // namespace cukern
