#include "memory/machine_memory.h"

#include <algorithm>
#include <cstdio>

#include "runtime/control_groups.h"

namespace cukern {
namespace {

void system_memory(std::int64_t *free, std::int64_t *total) noexcept {
    std::FILE *file = std::fopen("/proc/meminfo", "re");
    if (file == nullptr) return;
    char line[128];
    while (std::fgets(line, sizeof line, file) != nullptr) {
        long long kibibytes = 0;
        if (std::sscanf(line, "MemTotal: %lld", &kibibytes) == 1) *total = kibibytes * 1024;
        if (std::sscanf(line, "MemAvailable: %lld", &kibibytes) == 1) *free = kibibytes * 1024;
    }
    std::fclose(file);
}

// Applies one group's limit.
void apply_limit(std::int64_t limit, std::int64_t used, std::int64_t *free, std::int64_t *total) noexcept {
    if (limit <= 0 || limit >= *total) return;
    *total = limit;
    if (used >= 0) *free = std::min(*free, std::max<std::int64_t>(0, limit - used));
    *free = std::min(*free, *total);
}

}  // namespace

void machine_memory(std::int64_t *free, std::int64_t *total) noexcept {
    *free = *total = 0;
    system_memory(free, total);
    visit_groups("memory", [&](const char *folder, int version) {
        char limit[704];
        char used[704];
        std::snprintf(limit, sizeof limit, "%s/%s", folder, version == 2 ? "memory.max" : "memory.limit_in_bytes");
        std::snprintf(used, sizeof used, "%s/%s", folder,
                      version == 2 ? "memory.current" : "memory.usage_in_bytes");
        apply_limit(read_number(limit), read_number(used), free, total);
    });
}

}  // namespace cukern
