// Libraries that are opened when they are first needed, and never closed.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace cukern {

template <typename F>
bool find_symbol(void *library, const char *name, F *function) noexcept {
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
}

// Adds what was tried in vain, and why, to a list for messages.
template <std::size_t size>
void note_failure(char (&tried)[size], const char *name, const char *why) noexcept {
    const std::size_t used = std::strlen(tried);
    std::snprintf(tried + used, size - used, "%s%s (%s)", used > 0 ? "; " : "", name, why);
}

// Null, and noted, where there is no such library.
template <std::size_t size>
void *open_library(const char *name, char (&tried)[size]) noexcept {
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return handle;
    const char *why = dlerror();
    note_failure(tried, name, why != nullptr ? why : "not found");
    return nullptr;
}

// The path of the library that a function is in; `name` where that is not known.
template <std::size_t size>
void path_of(void *function, const char *name, char (&path)[size]) noexcept {
    Dl_info where{};
    const bool is_known = dladdr(function, &where) != 0 && where.dli_fname != nullptr;
    std::snprintf(path, size, "%s", is_known ? where.dli_fname : name);
}

}  // namespace cukern
