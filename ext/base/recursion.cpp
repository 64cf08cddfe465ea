#include "base/python.h"

#include "base/recursion.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cukern::py {
namespace {

// What a call of ours, and what it calls, may need.
constexpr std::size_t kReserve = std::size_t{256} << 10;

// The part of a thread's stack in which a call is refused; empty where the stack is not known.
struct Refused {
    std::uintptr_t low = 0;
    std::uintptr_t high = 0;
};

Refused find_refused() noexcept {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
    void *low = nullptr;
    std::size_t size = 0;
    const bool known = pthread_attr_getstack(&attributes, &low, &size) == 0;
    pthread_attr_destroy(&attributes);
    if (!known) return {};
    const auto begin = reinterpret_cast<std::uintptr_t>(low);
    return {begin, begin + std::min(kReserve, size / 4)};  // a small stack keeps some of itself for use
}

}  // namespace

bool enough_stack(const char *function) noexcept {
    thread_local const Refused refused = find_refused();
    const char here = 0;
    const auto address = reinterpret_cast<std::uintptr_t>(&here);
    if (address < refused.low || address >= refused.high) return true;
    PyErr_Format(PyExc_RecursionError,
                 "%s: the code of an operand calls cukern on such an operand again, too deep for the stack",
                 function);
    return false;
}

}  // namespace cukern::py
