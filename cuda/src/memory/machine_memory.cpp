#include "memory/machine_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace cukern {
namespace {

// The number that a file holds; -1 where there is no such file, or no number in it ("max").
std::int64_t read_number(const char *path) noexcept {
    std::FILE *file = std::fopen(path, "re");
    if (file == nullptr) return -1;
    long long number = -1;
    if (std::fscanf(file, "%lld", &number) != 1) number = -1;
    std::fclose(file);
    return number;
}

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

// The process's own group and those above it: each of them may have a limit.
void apply_groups(const char *root, char *group, const char *limit_name, const char *used_name, std::int64_t *free,
                  std::int64_t *total) noexcept {
    for (;;) {
        char limit_path[640];
        char used_path[640];
        std::snprintf(limit_path, sizeof limit_path, "%s%s/%s", root, group, limit_name);
        std::snprintf(used_path, sizeof used_path, "%s%s/%s", root, group, used_name);
        apply_limit(read_number(limit_path), read_number(used_path), free, total);
        char *slash = std::strrchr(group, '/');
        if (slash == nullptr) return;
        *slash = '\0';
    }
}

}  // namespace

void machine_memory(std::int64_t *free, std::int64_t *total) noexcept {
    *free = *total = 0;
    system_memory(free, total);
    std::FILE *file = std::fopen("/proc/self/cgroup", "re");
    if (file == nullptr) return;
    char line[512];
    while (std::fgets(line, sizeof line, file) != nullptr) {  // "0::/group" or "4:memory:/group"
        line[std::strcspn(line, "\n")] = '\0';
        char *controllers = std::strchr(line, ':');
        char *group = controllers != nullptr ? std::strchr(controllers + 1, ':') : nullptr;
        if (group == nullptr) continue;
        *group++ = '\0';
        if (std::strcmp(controllers + 1, "") == 0)
            apply_groups("/sys/fs/cgroup", group, "memory.max", "memory.current", free, total);
        else if (std::strcmp(controllers + 1, "memory") == 0)
            apply_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes", free,
                         total);
    }
    std::fclose(file);
}

}  // namespace cukern
