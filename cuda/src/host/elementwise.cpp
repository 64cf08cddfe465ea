// Elementwise operations on the CPU: shared out among the threads.
#include "host/casts.h"
#include "host/costs.h"
#include "host/kernels.h"
#include "host/loop_order.h"
#include "host/loops.h"
#include "host/nontemporal.h"
#include "host/rows.h"
#include "host/thread_pool.h"

namespace cukern::host {
namespace {

LoopFunction find_formula(Op op, ElementType compute) noexcept {
    switch (compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: return formula_loop<ctype>(op);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return nullptr;
}

// Of the operands, as they are stored; a value has that of the others.
ElementType stored_type(const ElementwiseLaunch &launch) noexcept {
    return launch.types[launch.immediate[1] && launch.num_operands > 2 ? 2 : 1];
}

// The loop that takes all operands as they are stored, without one where there is none. NumPy's negative,
// isfinite, isinf and signbit are wrong for some steps where results are not packed (2.4.6), so that loops of one
// operand get packed results alone.
HostLoop loop_on_stored(const ElementwiseLaunch &launch) noexcept {
    if (launch.split || launch.types[0] != launch.result || launch.num_operands < 2) return {};
    const ElementType type = stored_type(launch);
    const bool looks_at_stored = is_logical(launch.op) || info(launch.op).rule == ResultRule::test;
    const bool is_packed_alone = bits_depend_on_strides(launch.op, type);
    const int last = launch.ndim - 1;
    if (launch.strides[0][last] != 1 && (launch.num_operands == 2 || is_packed_alone)) return {};
    for (int i = 1; i < launch.num_operands; ++i) {
        if (launch.immediate[i] && (looks_at_stored || is_packed_alone || launch.compute != type)) return {};
        if (launch.immediate[i]) continue;
        if (launch.types[i] != type || (is_packed_alone && launch.strides[i][last] != 1)) return {};
    }
    return looks_at_stored || type == launch.compute ? loop_of(launch.op, type) : HostLoop{};
}

// The conversion that a copy is, and the square of bool, from and to what is stored; null where there is more to
// it.
Cast cast_on_stored(const ElementwiseLaunch &launch) noexcept {
    const ElementType from = launch.types[1];
    const bool is_copy = launch.op == Op::copy || launch.op == Op::positive ||
                         (launch.op == Op::square && from == ElementType::bool_);
    if (!is_copy || launch.split || launch.immediate[1]) return nullptr;
    const ElementType to = launch.types[0];
    const bool is_one_step = launch.compute == launch.result && (launch.compute == from || launch.compute == to);
    return from != to && is_one_step ? cast_of(from, to) : nullptr;
}

// Elements of a row up to which several are packed for one call of NumPy's loop: some ask for the
// processor's floating-point status at each call.
constexpr std::int64_t kShortRow = 32;
// Elements of a call below which the choice of a dimension, or a block, costs more than it saves.
constexpr std::int64_t kFewElements = 64;
constexpr std::int64_t kFewPacked = 256;  // the same of operands that need not be packed

// Nanoseconds that a row costs before its first element: more where it is converted or packed.
double cost_of_row(const ElementwiseLaunch &launch) noexcept {
    if (launch.op == Op::copy && launch.types[0] == launch.types[1]) return 4;
    return loop_on_stored(launch).function != nullptr || cast_on_stored(launch) != nullptr ? 8 : 15;
}

void run_loop(const ElementwiseLaunch &launch, const HostLoop &loop, std::int64_t begin,
              std::int64_t end) noexcept {
    run_rows(launch, launch.num_operands, begin, end,
             [&](char **data, std::intptr_t n, const std::intptr_t *strides) {
                 loop.function(data, &n, strides, loop.context);
             });
}

// A conversion in the form of NumPy's loops.
struct CastLoop {
    Cast cast;
    std::intptr_t from_size;
    std::intptr_t to_size;

    HostLoop loop() noexcept { return {run, this}; }
    static void run(char **data, const std::intptr_t *count, const std::intptr_t *strides, void *self) noexcept {
        const auto &own = *static_cast<const CastLoop *>(self);
        own.cast(data[0], strides[0] / own.from_size, data[1], strides[1] / own.to_size, *count);
    }
};

// Calls run(loop, begin, end) on the threads, of which each is worth `grain` elements.
template <typename Run>
void share_out(const ElementwiseLaunch &launch, std::int64_t grain, const HostLoop &loop,
               const Run &run) noexcept {
    if (!stores_past_caches(launch)) {
        parallel_for(launch.count, grain, [&](std::int64_t begin, std::int64_t end) { run(loop, begin, end); });
        return;
    }
    NontemporalLoop nontemporal(launch, loop);
    parallel_for(launch.count, grain, [&](std::int64_t begin, std::int64_t end) {
        run(nontemporal.loop(), begin, end);
        finish_stores();
    });
}

// Whether our own loop takes all operands where they lie.
bool takes_as_stored(const ElementwiseLaunch &launch, ElementType own) noexcept {
    if (launch.split || launch.types[0] != launch.result || (launch.op == Op::where && launch.immediate[1]))
        return false;
    for (int i = 1; i < launch.num_operands; ++i) {
        const ElementType type = launch.op == Op::where && i == 1 ? ElementType::bool_ : own;
        if (!launch.immediate[i] && launch.types[i] != type) return false;
    }
    return true;
}

bool has_short_rows(const ElementwiseLaunch &launch) noexcept {
    return launch.ndim > 1 && launch.shape[launch.ndim - 1] <= kShortRow;
}

// Operands, out too, whose elements neither follow each other along a row nor repeat.
int count_apart(const ElementwiseLaunch &launch) noexcept {
    int apart = 0;
    for (int i = 0; i < launch.num_operands; ++i) {
        const std::int64_t step = launch.immediate[i] ? 0 : launch.strides[i][launch.ndim - 1];
        apart += step != 0 && step != 1 ? 1 : 0;
    }
    return apart;
}

// Whether a loop is better given blocks. To pack a second operand, or to spread results, costs most of what is
// saved, but for shifts.
bool packs_any(const ElementwiseLaunch &launch, const BlockLoop &loop) noexcept {
    const int apart = count_apart(launch);
    if (apart == 0 && loop.packs_values)
        for (int i = 0; i < launch.num_operands; ++i)
            if (launch.immediate[i] || launch.strides[i][launch.ndim - 1] == 0) return true;
    const bool is_shift = launch.op == Op::bitwise_left_shift || launch.op == Op::bitwise_right_shift;
    return apart > 0 && loop.packs_operands && (apart == 1 || is_shift) &&
           (launch.strides[0][launch.ndim - 1] == 1 || is_shift);
}

// Whether our own loop is better given blocks: it computes bfloat16 by vectors where operands are packed, and else
// one by one, which takes a maximum nine times as long.
bool packs_formula(const ElementwiseLaunch &launch, ElementType own) noexcept {
    return own == ElementType::bfloat16 && vectorises(launch.op, own) && launch.op != Op::where &&
           launch.count >= kFewPacked && count_apart(launch) > 0;
}

void run_in_order(const ElementwiseLaunch &launch) noexcept {
    std::int64_t bytes = 0;
    for (int i = 0; i < launch.num_operands; ++i)
        if (!launch.immediate[i]) bytes += size_of(launch.types[i]);
    const auto elements = static_cast<double>(launch.count);
    const std::int64_t grain = host_grain(launch.op, launch.op == Op::copy ? launch.types[0] : launch.compute,
                                          elements, elements * static_cast<double>(bytes));
    if (launch.op == Op::copy && launch.types[0] == launch.types[1]) {
        run_copy(launch, grain);
        return;
    }
    if (const HostLoop loop = loop_on_stored(launch); loop.function != nullptr) {
        const ElementType type = stored_type(launch);
        const BlockLoop in_blocks{loop, prefers_packed(launch.op, type), prefers_packed_values(launch.op, type),
                                  true};
        const bool packs = (launch.count >= kFewPacked && packs_any(launch, in_blocks)) ||
                           (launch.count >= kFewElements && has_short_rows(launch));
        share_out(launch, grain, loop, [&](const HostLoop &chosen, std::int64_t begin, std::int64_t end) {
            if (packs)
                run_in_blocks(launch, type, in_blocks.with(chosen), begin, end);
            else
                run_loop(launch, chosen, begin, end);
        });
        return;
    }
    if (const Cast cast = cast_on_stored(launch); cast != nullptr) {
        CastLoop casting{cast, size_of(launch.types[1]), size_of(launch.types[0])};
        share_out(launch, grain, casting.loop(),
                  [&](const HostLoop &chosen, std::int64_t begin, std::int64_t end) {
                      run_loop(launch, chosen, begin, end);
                  });
        return;
    }
    const ElementType own = is_logical(launch.op) ? ElementType::bool_ : launch.compute;
    BlockLoop loop{loop_of(launch.op, own), false, false, false};
    if (loop.loop.function != nullptr) {
        const bool is_packed_alone = bits_depend_on_strides(launch.op, own);
        loop.packs_operands = is_packed_alone || prefers_packed(launch.op, own);
        loop.packs_values = is_packed_alone || prefers_packed_values(launch.op, own);
        loop.packs_results = true;
    } else {
        loop.loop.function = find_formula(launch.op, own);
        if (loop.loop.function == nullptr) return;
        loop.packs_operands = loop.packs_results = packs_formula(launch, own);
    }
    const bool is_direct = !loop.packs_results && takes_as_stored(launch, own);
    share_out(launch, grain, loop.loop, [&](const HostLoop &chosen, std::int64_t begin, std::int64_t end) {
        if (is_direct)
            run_loop(launch, chosen, begin, end);
        else
            run_in_blocks(launch, own, loop.with(chosen), begin, end);
    });
}

}  // namespace

HostLoop elementwise_loop(Op op, ElementType inputs) noexcept {
    const HostLoop loop = loop_of(op, inputs);
    const bool is_direct = takes(op, inputs) && compute_type(op, inputs, inputs) == inputs && !is_logical(op) &&
                           info(op).rule != ResultRule::test;
    return loop.function == nullptr && is_direct ? HostLoop{find_formula(op, inputs), nullptr} : loop;
}

void run_elementwise(const ElementwiseLaunch &launch) noexcept {
    if (launch.ndim == 1 || launch.count < kFewElements) return run_in_order(launch);
    if (is_copied_in_strips(launch)) return run_in_order(launch);
    run_along_best(launch, cost_of_row(launch), run_in_order);
}

}  // namespace cukern::host
