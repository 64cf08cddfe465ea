// Which back-end is in use and why, and the devices that it has.
#pragma once

#include <cstddef>

#include "cukern/status.h"

namespace cukern {

enum class Backend : int { host = 0, cuda = 1 };

constexpr const char *name_of(Backend backend) { return backend == Backend::cuda ? "cuda" : "host"; }

struct BackendInfo {
    Backend backend = Backend::host;
    char reason[1024] = {};   // why this one
    char warning[1152] = {};  // set when `auto` fell back although a driver is there
};

// Chooses the back-end on first use, from CUKERN_BACKEND; the choice lasts for the process.
Status backend_info(BackendInfo *info) noexcept;

// The back-end alone, for every call: no lock once it is chosen.
Status active_backend(Backend *backend) noexcept;

struct DeviceInfo {
    char name[256] = {};
    std::size_t memory = 0;  // bytes
    int capability_major = 0;
    int capability_minor = 0;
    int multiprocessors = 0;  // 0 of the host
};

Status device_count(int *count) noexcept;
Status device_info(int device, DeviceInfo *info) noexcept;
int driver_version() noexcept;   // 13000 is 13.0; 0 without a driver
int runtime_version() noexcept;  // of the CUDA runtime linked in; 0 in a host-only build

}  // namespace cukern
