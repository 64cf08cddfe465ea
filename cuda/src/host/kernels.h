// The host back-end's kernels.
#pragma once

#include <initializer_list>

#include "host/loops.h"
#include "plan/launch.h"

namespace cukern::host {

// Whether an operation's kernel of an element type is made. clang-tidy would take minutes for all: it gets the
// first of three that there is. `exists` tells that for a type.
template <typename F>
constexpr bool is_made(ElementType type, F exists) noexcept {
#ifdef __clang_analyzer__
    for (const ElementType first : {ElementType::float32, ElementType::int8, ElementType::bool_})
        if (exists(first)) return type == first;
    return false;
#else
    return exists(type);
#endif
}

// Computes elements [begin, end) of out. Compiled once for each element type, so that the build runs in parallel.
using RangeFunction = void (*)(const ElementwiseLaunch &, std::int64_t, std::int64_t) noexcept;
template <typename T>
RangeFunction range_function(Op op) noexcept;

void run_elementwise(const ElementwiseLaunch &launch) noexcept;
// The loop that run_elementwise calls where all operands are of the type; without one where it does more than
// that.
HostLoop elementwise_loop(Op op, ElementType inputs) noexcept;
// Copies elements of out's type, or a value; a thread is worth it for `grain` of them.
void run_copy(const ElementwiseLaunch &launch, std::int64_t grain) noexcept;
void run_reduction(const ReduceLaunch &launch) noexcept;
// Whether run_scan reads elements of a type as they are stored.
bool scans_from(ElementType type, ElementType compute) noexcept;
void run_scan(const ScanLaunch &launch) noexcept;
void run_matmul(const MatmulLaunch &launch) noexcept;
// The same by another library's product, where it has one.
void run_library_matmul(const MatmulLaunch &launch) noexcept;

}  // namespace cukern::host
