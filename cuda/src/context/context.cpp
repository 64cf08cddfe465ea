// The choice of the back-end, and its context.
#include "context/context.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "context/placement_setting.h"
#include "cukern/storage.h"
#include "cukern/testing.h"
#include "host/thread_pool.h"
#include "memory/transfer_options.h"
#include "runtime/fork_mutex.h"

namespace cukern {
namespace {

struct Globals {
    ForkMutex mutex;
    Context *contexts[2] = {};  // by Backend; made once, never destroyed: the driver goes before we could
    std::atomic<Context *> processor{nullptr};  // the host back-end's, once it is used beside another one
    BackendInfo info;
};
std::atomic<Globals *> g_globals{nullptr};
std::atomic<int> g_generation{0};

// A child of fork shares no thread, lock or lane with its parent. Where the GPU was used the CUDA context
// stays active, and says through ready() that it is of no use; else the child starts anew.
void start_anew() noexcept {
    g_generation.fetch_add(1, std::memory_order_relaxed);
    g_captured_graphs.store(0, std::memory_order_relaxed);  // they are the parent's
    Globals *parent = g_globals.load(std::memory_order_relaxed);
    if (parent == nullptr) return;
    if (parent->contexts[static_cast<int>(Backend::cuda)] == nullptr) {
        g_globals.store(nullptr, std::memory_order_relaxed);
        g_active_context.store(nullptr, std::memory_order_relaxed);
        return;
    }
    Context *const active = g_active_context.load(std::memory_order_relaxed);
    Context *&host = parent->contexts[static_cast<int>(Backend::host)];
    parent->processor.store(nullptr, std::memory_order_relaxed);
    if (active != host) host = nullptr;  // its locks may be held by threads that are not here
}

Globals *globals() noexcept {
    Globals *current = g_globals.load(std::memory_order_acquire);
    if (current != nullptr) return current;
    static const int registered = pthread_atfork(nullptr, nullptr, start_anew);
    (void)registered;
    auto *fresh = new (std::nothrow) Globals;
    if (fresh == nullptr) return nullptr;
    if (g_globals.compare_exchange_strong(current, fresh, std::memory_order_acq_rel)) return fresh;
    // Another thread was first; this one stays, since its mutex is known to every fork.
    return current;
}

Status no_memory() noexcept { return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left"); }

// The context of a back-end, made when first asked for. The caller holds the mutex.
Status context_of(Globals &g, Backend backend, Context **out) noexcept {
    Context *&slot = g.contexts[static_cast<int>(backend)];
    if (slot == nullptr) {
        Runtime *runtime = nullptr;
        CUKERN_TRY(backend == Backend::cuda ? make_cuda_runtime(&runtime) : make_host_runtime(&runtime));
        slot = new (std::nothrow) Context(*runtime);
        if (slot == nullptr) {
            delete runtime;
            return no_memory();
        }
    }
    *out = slot;
    return CUKERN_OK;
}

template <std::size_t size>
void copy_text(char (&to)[size], const char *text) noexcept {
    std::snprintf(to, size, "%s", text);
}

Status choose(BackendInfo *info) noexcept {
    if (!is_thread_count_valid())
        return fail(CUKERN_NO_BACKEND, "CUKERN_NUM_THREADS is '%.40s'; expected a number of threads, from 1 on",
                    std::getenv("CUKERN_NUM_THREADS"));
    CUKERN_TRY(check_process_placement());
    CUKERN_TRY(check_transfer_options());
    const char *wish = std::getenv("CUKERN_BACKEND");
    if (wish == nullptr || wish[0] == '\0') wish = "auto";
    if (std::strcmp(wish, "host") == 0) {
        info->backend = Backend::host;
        copy_text(info->reason, "CUKERN_BACKEND=host");
        return CUKERN_OK;
    }
    const bool forced = std::strcmp(wish, "cuda") == 0;
    if (!forced && std::strcmp(wish, "auto") != 0)
        return fail(CUKERN_NO_BACKEND, "CUKERN_BACKEND is '%.40s'; expected cuda, host or auto", wish);
    char found[1000] = {};
    const CudaProbe probe = probe_cuda(found, sizeof found);
    if (probe == CudaProbe::usable) {
        info->backend = Backend::cuda;
        copy_text(info->reason, forced ? "CUKERN_BACKEND=cuda" : "a usable CUDA device is present");
        return CUKERN_OK;
    }
    if (forced) return fail(CUKERN_NO_BACKEND, "CUKERN_BACKEND=cuda, but there is no usable device: %s", found);
    info->backend = Backend::host;
    copy_text(info->reason, found);
    if (probe == CudaProbe::broken)
        std::snprintf(info->warning, sizeof info->warning,
                      "cukern uses the CPU although a CUDA driver is installed: %s", found);
    return CUKERN_OK;
}

}  // namespace

Status activate(Context **out) noexcept {
    Globals *g = globals();
    if (g == nullptr) return no_memory();
    const std::lock_guard lock(g->mutex);
    Context *active = g_active_context.load(std::memory_order_relaxed);
    if (active == nullptr) {
        BackendInfo info;
        CUKERN_TRY(choose(&info));
        CUKERN_TRY(context_of(*g, info.backend, &active));
        g->info = info;
        g_active_context.store(active, std::memory_order_release);
    }
    *out = active;
    return CUKERN_OK;
}

Status processor_context(Context **out) noexcept {
    CUKERN_TRY(chosen_context(out));
    if ((*out)->runtime.backend() == Backend::host) return CUKERN_OK;
    Globals *g = globals();
    if (g == nullptr) return no_memory();
    *out = g->processor.load(std::memory_order_acquire);
    if (*out != nullptr) return CUKERN_OK;
    const std::lock_guard lock(g->mutex);
    CUKERN_TRY(context_of(*g, Backend::host, out));
    g->processor.store(*out, std::memory_order_release);
    return CUKERN_OK;
}

int fork_generation() noexcept { return g_generation.load(std::memory_order_relaxed); }

Status active_backend(Backend *backend) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(chosen_context(&active));
    *backend = active->runtime.backend();
    return CUKERN_OK;
}

Status backend_info(BackendInfo *info) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(activate(&active));
    Globals *g = globals();
    if (g == nullptr) return no_memory();
    const std::lock_guard lock(g->mutex);
    *info = g->info;
    return CUKERN_OK;
}

Status device_count(int *count) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    *count = active->runtime.device_count();
    return CUKERN_OK;
}

Status device_info(int device, DeviceInfo *info) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(context(&active));
    return active->runtime.device_info(device, info);
}

Status testing::use_backend(Backend backend) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(activate(&active));
    Globals *g = globals();
    if (g == nullptr) return no_memory();
    const std::lock_guard lock(g->mutex);
    CUKERN_TRY(context_of(*g, backend, &active));
    g->info = {};
    g->info.backend = backend;
    copy_text(g->info.reason, "chosen by a test");
    g_active_context.store(active, std::memory_order_release);
    return CUKERN_OK;
}

void testing::block_usage(std::int64_t *in_use, std::int64_t *cached) noexcept {
    Context *active = nullptr;
    *in_use = *cached = 0;
    if (context(&active) != CUKERN_OK || active == nullptr) return;
    for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
        const BlockPool::Usage usage = active->blocks.usage(static_cast<MemoryKind>(kind));
        *in_use += usage.in_use;
        *cached += usage.cached;
    }
}

void testing::release_caches() noexcept {
    Context *active = nullptr;
    if (context(&active) != CUKERN_OK || active == nullptr) return;
    release_finished();
    active->graph_blocks.collect();
    active->lanes.trim();
    active->blocks.trim();
    active->events.destroy_cached();
    Context *processor = nullptr;
    if (processor_context(&processor) != CUKERN_OK || processor == nullptr) return;
    if (processor != active) processor->blocks.trim();
}

}  // namespace cukern
