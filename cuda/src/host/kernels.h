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

// The loop of our own formula of an operation in T, as NumPy's are; null where there is none. Compiled once for
// each element type, so that the build runs in parallel.
template <typename T>
LoopFunction formula_loop(Op op) noexcept;

void run_elementwise(const ElementwiseLaunch &launch) noexcept;
// The loop that run_elementwise calls where all operands are of the type; without one where it does more than
// that.
HostLoop elementwise_loop(Op op, ElementType inputs) noexcept;
// Copies elements of out's type, or a value; a thread is worth it for `grain` of them.
void run_copy(const ElementwiseLaunch &launch, std::int64_t grain) noexcept;
bool is_copied_in_strips(const ElementwiseLaunch &launch) noexcept;
// Whether a loop of our own over packed operands is worth being made: not of what the C library computes one by
// one, nor where the extension hands over NumPy's loops, which a program in C does without.
constexpr bool vectorises(Op op, ElementType type) noexcept {
    const OpInfo &row = info(op);
    const bool is_function = row.rule == ResultRule::sized && op != Op::sqrt && op != Op::copysign;
    const bool is_ours =
        type == ElementType::bfloat16 || kind_of(type) == 'c' || (op == Op::reciprocal && is_integer(type));
    const bool is_numpys = !is_ours && op < Op::copy;
    return !is_numpys && !is_function && op != Op::pow && op != Op::floor_divide && op != Op::remainder;
}
// A loop that takes blocks, and what it is to be given packed.
struct BlockLoop {
    HostLoop loop;
    bool packs_operands;
    bool packs_values;  // operands that are one value for all elements
    bool packs_results;

    BlockLoop with(const HostLoop &other) const noexcept {
        return {other, packs_operands, packs_values, packs_results};
    }
};
// Elements [begin, end) by a loop whose operands are of type `own`, and whose results of the operation's: what is
// of another type is converted.
void run_in_blocks(const ElementwiseLaunch &launch, ElementType own, const BlockLoop &loop, std::int64_t begin,
                   std::int64_t end) noexcept;
void run_reduction(const ReduceLaunch &launch) noexcept;
// Whether run_scan reads elements of a type as they are stored.
bool scans_from(ElementType type, ElementType compute) noexcept;
void run_scan(const ScanLaunch &launch) noexcept;
void run_matmul(const MatmulLaunch &launch) noexcept;
// The same by another library's product, where it has one.
void run_library_matmul(const MatmulLaunch &launch) noexcept;

}  // namespace cukern::host
