// What the control groups (cgroups, version 1 or 2) that the process is in allow it.
#pragma once

#include <cstdint>

namespace cukern {

// The first number that a file holds, and the one after it; -1 where there is no such file, or no number ("max").
std::int64_t read_number(const char *path, std::int64_t *second = nullptr) noexcept;

// Calls visit(context, folder, version) for the process's own group of a controller and those above it: each of
// them may have a limit.
using GroupVisitor = void (*)(void *context, const char *folder, int version);
void visit_groups(const char *controller, GroupVisitor visit, void *context) noexcept;

template <typename F>
void visit_groups(const char *controller, F &&visit) noexcept {
    visit_groups(
        controller,
        [](void *context, const char *folder, int version) { (*static_cast<F *>(context))(folder, version); },
        &visit);
}

// How many CPUs the process may keep busy: the smallest quota, rounded up; 0 where there is none.
int cpu_quota() noexcept;

}  // namespace cukern
