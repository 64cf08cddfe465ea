// The host back-end: "device" memory is heap memory, and a stream runs each call at once.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "host/kernels.h"
#include "runtime.h"

namespace cukern {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc gives

int pretend_devices() noexcept {
    const char *text = std::getenv("CUKERN_HOST_DEVICES");
    const int n = text == nullptr ? 1 : std::atoi(text);
    return n < 1 ? 1 : n > 64 ? 64 : n;
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

    Status set_device(int device) noexcept override {
        CUKERN_TRY(check(device));
        current() = device;
        return CUKERN_OK;
    }

    std::size_t free_memory() noexcept override { return 0; }
    std::uint64_t stream_id(Stream stream) noexcept override { return reinterpret_cast<std::uintptr_t>(stream); }

protected:
    void do_release_device(void *data) noexcept override { std::free(data); }
    void do_release_pinned(void *data) noexcept override { std::free(data); }
    void do_destroy_stream(Stream stream) noexcept override { std::free(stream); }
    void do_destroy_event(Event event) noexcept override { std::free(event); }

    Status do_allocate_device(std::size_t bytes, void **out) noexcept override { return allocate(bytes, out); }
    Status do_allocate_pinned(std::size_t bytes, void **out) noexcept override { return allocate(bytes, out); }

    Status do_copy(void *destination, const void *source, std::size_t bytes, Stream) noexcept override {
        std::memcpy(destination, source, bytes);
        return CUKERN_OK;
    }

    // Streams and events only have to be told apart, and to be found by leak checks.
    Status do_create_stream(Stream *out) noexcept override { return token(out); }
    Status do_create_event(Event *out) noexcept override { return token(out); }
    Status do_synchronize(Stream) noexcept override { return CUKERN_OK; }
    Status do_record(Event, Stream) noexcept override { return CUKERN_OK; }
    Status do_synchronize_event(Event) noexcept override { return CUKERN_OK; }

    Status do_launch_elementwise(const ElementwiseLaunch &launch, Stream) noexcept override {
        host::run_elementwise(launch);
        return CUKERN_OK;
    }

    Status do_launch_matmul(const MatmulLaunch &launch, Stream) noexcept override {
        host::run_matmul(launch);
        return CUKERN_OK;
    }

    Status do_launch_cublas(const MatmulLaunch &launch, int, Stream stream) noexcept override {
        return do_launch_matmul(launch, stream);
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

    static Status allocate(std::size_t bytes, void **out) noexcept {
        const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
        *out = padded < bytes ? nullptr : std::aligned_alloc(kAlignment, padded == 0 ? kAlignment : padded);
        if (*out != nullptr) return CUKERN_OK;
        return fail(CUKERN_OUT_OF_MEMORY, "the system has no %zu bytes of memory left", bytes);
    }

    static Status token(void **out) noexcept {
        *out = std::malloc(1);
        return *out != nullptr ? CUKERN_OK : fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
    }

    const int devices_ = pretend_devices();
};

}  // namespace

Status make_host_runtime(Runtime **out) noexcept {
    *out = new (std::nothrow) HostRuntime;
    return *out != nullptr ? CUKERN_OK : fail(CUKERN_OUT_OF_MEMORY, "the system has no memory left");
}

}  // namespace cukern
