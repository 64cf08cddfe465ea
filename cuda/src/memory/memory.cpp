#include "cukern/memory.h"

#include "context/context.h"
#include "memory/machine_memory.h"

namespace cukern {

Status memory_info(MemoryKind kind, int device, MemoryInfo *info) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    const DeviceGuard guard(active->runtime, device);
    CUKERN_TRY(guard.status());
    *info = {};
    active->graph_blocks.collect();
    if (kind == MemoryKind::pinned)
        machine_memory(&info->free, &info->total);
    else
        active->runtime.device_memory(&info->free, &info->total);
    const BlockPool::Usage usage = active->blocks.usage(kind, device);
    info->in_use = usage.in_use;
    info->cached = usage.cached;
    info->limit = usage.limit;
    return CUKERN_OK;
}

Status set_memory_limit(MemoryKind kind, int device, std::int64_t bytes) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    const DeviceGuard guard(active->runtime, device);
    CUKERN_TRY(guard.status());
    active->blocks.set_limit(kind, device, bytes);
    return CUKERN_OK;
}

Status empty_cache() noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    active->graph_blocks.collect();
    active->lanes.trim();
    active->blocks.trim();
    Context *processor = nullptr;  // results of calls that ran there
    CUKERN_TRY(processor_context(&processor));
    if (processor != active) processor->blocks.trim();
    return CUKERN_OK;
}

Status pointer_info(const void *data, PointerInfo *info) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    return active->runtime.pointer_info(data, info);
}

}  // namespace cukern
