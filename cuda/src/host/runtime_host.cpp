// The host back-end: "device" memory is heap memory, and a stream runs each call at once.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "host/kernels.h"
#include "memory/machine_memory.h"
#include "runtime/runtime.h"

namespace cukern {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc gives
constexpr int kMostDevices = 64;

int pretend_devices() noexcept {
    const char *text = std::getenv("CUKERN_HOST_DEVICES");
    const int n = text == nullptr ? 1 : std::atoi(text);
    return n < 1 ? 1 : n > kMostDevices ? kMostDevices : n;
}

// As NumPy does for its arrays: the system brings in pages of 2 MiB, of which there are fewer to look up.
void advise_large_pages(void *data, std::size_t bytes) noexcept {
    constexpr std::size_t kLeast = std::size_t{4} << 20;
    constexpr std::uintptr_t kPage = 4096;
    if (bytes < kLeast) return;
    const std::uintptr_t skipped = (kPage - reinterpret_cast<std::uintptr_t>(data) % kPage) % kPage;
    madvise(static_cast<char *>(data) + skipped, bytes - skipped, MADV_HUGEPAGE);
}

class HostRuntime final : public Runtime {
public:
    Backend backend() const noexcept override { return Backend::host; }
    Status ready() const noexcept override { return CUKERN_OK; }
    int device_count() const noexcept override { return devices_; }

    Status device_info(int device, DeviceInfo *info) noexcept override {
        CUKERN_TRY(check(device));
        *info = {};
        std::snprintf(info->name, sizeof info->name, "host CPU");
        return CUKERN_OK;
    }

    Status current_device(int *device) noexcept override {
        *device = current();
        return CUKERN_OK;
    }

    Status enter_device(int device, void **previous) noexcept override {
        CUKERN_TRY(check(device));
        if (current() == device) return CUKERN_OK;
        *previous = &places_[current()];
        current() = device;
        return CUKERN_OK;
    }
    void leave_device(void *left) noexcept override {
        current() = static_cast<int>(static_cast<const char *>(left) - places_);
    }

    void device_memory(std::int64_t *free, std::int64_t *total) noexcept override { machine_memory(free, total); }
    std::uint64_t stream_id(Stream stream) noexcept override { return reinterpret_cast<std::uintptr_t>(stream); }

    Status pointer_info(const void *data, PointerInfo *info) noexcept override {
        const std::lock_guard lock(mutex_);
        *info = {};
        auto after = allocations_.upper_bound(data);
        if (after == allocations_.begin()) return CUKERN_OK;
        const auto &[start, allocation] = *--after;
        info->known = static_cast<const char *>(data) < static_cast<const char *>(start) + allocation.bytes;
        info->kind = allocation.kind;
        info->device = allocation.device;
        return CUKERN_OK;
    }

    bool is_pinned(const void *data, std::size_t bytes) noexcept override {
        const std::lock_guard lock(mutex_);
        auto after = allocations_.upper_bound(data);
        if (after == allocations_.begin()) return false;
        const auto &[start, allocation] = *--after;
        return allocation.kind == MemoryKind::pinned &&
               static_cast<const char *>(data) + bytes <= static_cast<const char *>(start) + allocation.bytes;
    }

    std::int64_t reduction_scratch(const ReduceLaunch &) const noexcept override { return 0; }
    Status matmul_scratch(const MatmulLaunch &, std::int64_t *bytes) const noexcept override {
        *bytes = 0;
        return CUKERN_OK;
    }
    bool scans_from(ElementType type, ElementType compute) const noexcept override {
        return host::scans_from(type, compute);
    }
    std::int64_t scan_scratch(const ScanLaunch &) const noexcept override { return 0; }

    // What a stream is given is done at once.
    Status stream_done(Stream, bool *done) noexcept override {
        *done = true;
        return CUKERN_OK;
    }
    Status is_capturing(Stream, bool *capturing) noexcept override {
        *capturing = false;
        return CUKERN_OK;
    }
    Status find_capture(Stream, Capture *capture) noexcept override {
        *capture = {};
        return CUKERN_OK;
    }
    Status own_by_graph(const Capture &, void (*gone)(void *) noexcept, void *owner) noexcept override {
        gone(owner);
        return fail(CUKERN_INTERNAL, "the host back-end captures nothing");
    }
    Status event_done(Event, bool *done) noexcept override {
        *done = true;
        return CUKERN_OK;
    }
    Status event_elapsed(Event begin, Event end, float *milliseconds) noexcept override {
        const std::int64_t nanoseconds =
            static_cast<Token *>(end)->time.load() - static_cast<Token *>(begin)->time.load();
        *milliseconds = static_cast<float>(static_cast<double>(nanoseconds) * 1e-6);
        return CUKERN_OK;
    }

protected:
    void do_release(MemoryKind, void *data) noexcept override {
        {
            const std::lock_guard lock(mutex_);
            allocations_.erase(data);
        }
        std::free(data);
    }
    void do_destroy_stream(Stream stream) noexcept override { delete static_cast<Token *>(stream); }
    void do_destroy_event(Event event) noexcept override { delete static_cast<Token *>(event); }

    Status do_allocate(MemoryKind kind, std::size_t bytes, void **out) noexcept override {
        const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
        void *data = padded < bytes ? nullptr : std::aligned_alloc(kAlignment, padded == 0 ? kAlignment : padded);
        if (data == nullptr)
            return fail(CUKERN_OUT_OF_MEMORY, "the system has no %zu bytes of memory left", bytes);
        advise_large_pages(data, padded);
        try {
            const std::lock_guard lock(mutex_);
            allocations_[data] = {bytes, kind, current()};
        } catch (...) {
            std::free(data);
            return fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
        }
        *out = data;
        return CUKERN_OK;
    }

    Status do_copy(void *destination, const void *source, std::size_t bytes, Stream) noexcept override {
        std::memmove(destination, source, bytes);
        return CUKERN_OK;
    }

    Status do_create_stream(bool, int, Stream *out) noexcept override { return token(out); }
    Status do_create_event(bool, Event *out) noexcept override { return token(out); }
    Status do_synchronize(Stream) noexcept override { return CUKERN_OK; }
    Status do_synchronize_device() noexcept override { return CUKERN_OK; }
    Status do_record(Event event, Stream) noexcept override { return do_record_all(event); }
    Status do_record_all(Event event) noexcept override {
        static_cast<Token *>(event)->time.store(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                    std::chrono::steady_clock::now().time_since_epoch())
                                                    .count());
        return CUKERN_OK;
    }
    Status do_wait_event(Stream, Event) noexcept override { return CUKERN_OK; }
    Status do_synchronize_event(Event) noexcept override { return CUKERN_OK; }

    // Nothing is kept of a launch here.
    bool launch_prepared(PreparedKernel &, Stream, Status *) noexcept override { return false; }

    Status do_launch_elementwise(const ElementwiseLaunch &launch, Stream) noexcept override {
        host::run_elementwise(launch);
        return CUKERN_OK;
    }

    Status do_launch_reduction(const ReduceLaunch &launch, Stream) noexcept override {
        host::run_reduction(launch);
        return CUKERN_OK;
    }

    Status do_launch_scan(const ScanLaunch &launch, Stream) noexcept override {
        host::run_scan(launch);
        return CUKERN_OK;
    }

    Status do_launch_matmul(const MatmulLaunch &launch, Stream) noexcept override {
        host::run_matmul(launch);
        return CUKERN_OK;
    }

    Status do_launch_cublas(const MatmulLaunch &launch, int, Stream) noexcept override {
        host::run_library_matmul(launch);
        return CUKERN_OK;
    }

private:
    static int &current() noexcept {
        thread_local int device = 0;
        return device;
    }

    Status check(int device) const noexcept {
        if (device >= 0 && device < devices_) return CUKERN_OK;
        return fail(CUKERN_INVALID_ARGUMENT, "device %d does not exist: the host back-end has %d", device,
                    devices_);
    }

    // Streams and events only have to be told apart, and to be found by leak checks; an event keeps its time.
    struct Token {
        std::atomic<std::int64_t> time{0};
    };

    struct Allocation {
        std::size_t bytes;
        MemoryKind kind;
        int device;
    };

    static Status token(void **out) noexcept {
        *out = new (std::nothrow) Token;
        return *out != nullptr ? CUKERN_OK : fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    }

    std::mutex mutex_;
    std::map<const void *, Allocation> allocations_;  // by address: guarded by the mutex
    const int devices_ = pretend_devices();
    char places_[kMostDevices] = {};  // one for each device: their addresses stand for what enter_device has left
};

}  // namespace

Status make_host_runtime(Runtime **out) noexcept {
    *out = new (std::nothrow) HostRuntime;
    return *out != nullptr ? CUKERN_OK : fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
}

}  // namespace cukern
