#include "runtime/control_groups.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace cukern {
namespace {

constexpr std::size_t kPathSize = 640;

// Whether a list such as "cpu,cpuacct" has a name in it.
bool lists(const char *names, const char *name) noexcept {
    const std::size_t length = std::strlen(name);
    for (const char *at = names; at != nullptr; at = std::strchr(at, ',')) {
        if (*at == ',') ++at;
        if (std::strncmp(at, name, length) == 0 && (at[length] == '\0' || at[length] == ',')) return true;
    }
    return false;
}

}  // namespace

std::int64_t read_number(const char *path, std::int64_t *second) noexcept {
    std::FILE *file = std::fopen(path, "re");
    if (file == nullptr) return -1;
    long long first = -1;
    long long next = -1;
    const int read = std::fscanf(file, "%lld %lld", &first, &next);
    std::fclose(file);
    if (second != nullptr) *second = read == 2 ? next : -1;
    return read >= 1 ? first : -1;
}

void visit_groups(const char *controller, GroupVisitor visit, void *context) noexcept {
    std::FILE *file = std::fopen("/proc/self/cgroup", "re");
    if (file == nullptr) return;
    char line[512];
    while (std::fgets(line, sizeof line, file) != nullptr) {  // "0::/group" or "4:memory:/group"
        line[std::strcspn(line, "\n")] = '\0';
        char *names = std::strchr(line, ':');
        char *group = names != nullptr ? std::strchr(names + 1, ':') : nullptr;
        if (group == nullptr) continue;
        *group++ = '\0';
        ++names;
        const bool is_unified = names[0] == '\0';
        if (!is_unified && !lists(names, controller)) continue;
        // Controllers that are mounted together, as "cpu,cpuacct", may have a link by each name, or none.
        const char *const roots[] = {is_unified ? "" : controller, names};
        const int places = is_unified || std::strcmp(names, controller) == 0 ? 1 : 2;
        for (;;) {
            for (int place = 0; place < places; ++place) {
                char folder[kPathSize];
                std::snprintf(folder, sizeof folder, "/sys/fs/cgroup/%s%s", roots[place], group);
                visit(context, folder, is_unified ? 2 : 1);
            }
            char *slash = std::strrchr(group, '/');
            if (slash == nullptr) break;
            *slash = '\0';
        }
    }
    std::fclose(file);
}

int cpu_quota() noexcept {
    std::int64_t least = 0;
    visit_groups("cpu", [&least](const char *folder, int version) {
        char path[kPathSize + 32];
        std::int64_t period = -1;
        std::snprintf(path, sizeof path, "%s/%s", folder, version == 2 ? "cpu.max" : "cpu.cfs_quota_us");
        const std::int64_t quota = read_number(path, &period);
        if (version == 1) {
            std::snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
            period = read_number(path);
        }
        if (quota <= 0 || period <= 0) return;
        const std::int64_t cpus = (quota + period - 1) / period;
        least = least == 0 ? cpus : std::min(least, cpus);
    });
    return static_cast<int>(std::min<std::int64_t>(least, 1 << 20));
}

}  // namespace cukern
