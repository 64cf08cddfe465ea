// Elementwise operations on the CPU: shared out among the threads.
#include "host/casts.h"
#include "host/costs.h"
#include "host/kernels.h"
#include "host/loops.h"
#include "host/rows.h"
#include "host/thread_pool.h"

namespace cukern::host {
namespace {

RangeFunction find_range(Op op, ElementType compute) noexcept {
    switch (compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: return range_function<ctype>(op);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return nullptr;
}

// The loop that takes all operands as they are stored, without one where there is none. NumPy's isinf and signbit
// are wrong where results are not packed (2.4.6).
HostLoop loop_on_stored(const ElementwiseLaunch &launch) noexcept {
    if (launch.split || launch.types[0] != launch.result || launch.num_operands < 2) return {};
    const ElementType type = launch.types[1];
    if (launch.strides[0][launch.ndim - 1] != 1 &&
        (info(launch.op).rule == ResultRule::test || info(launch.op).rule == ResultRule::sign ||
         bits_depend_on_strides(launch.op, type)))
        return {};
    for (int i = 1; i < launch.num_operands; ++i)
        if (launch.immediate[i] || launch.types[i] != type ||
            (bits_depend_on_strides(launch.op, type) && launch.strides[i][launch.ndim - 1] != 1))
            return {};
    const bool looks_at_stored = is_logical(launch.op) || info(launch.op).rule == ResultRule::test;
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

}  // namespace

HostLoop elementwise_loop(Op op, ElementType inputs) noexcept { return loop_of(op, inputs); }

void run_elementwise(const ElementwiseLaunch &launch) noexcept {
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
        parallel_for(launch.count, grain, [&](std::int64_t begin, std::int64_t end) {
            run_rows(launch, launch.num_operands, begin, end,
                     [&](char **data, std::intptr_t n, const std::intptr_t *strides) {
                         loop.function(data, &n, strides, loop.context);
                     });
        });
        return;
    }
    if (const Cast cast = cast_on_stored(launch); cast != nullptr) {
        const std::int64_t from = launch.strides[1][launch.ndim - 1];
        const std::int64_t to = launch.strides[0][launch.ndim - 1];
        parallel_for(launch.count, grain, [&](std::int64_t begin, std::int64_t end) {
            run_rows(
                launch, std::integral_constant<int, 2>{}, begin, end,
                [&](char **data, std::int64_t n, const std::intptr_t *) { cast(data[0], from, data[1], to, n); });
        });
        return;
    }
    const RangeFunction function =
        find_range(launch.op, is_logical(launch.op) ? ElementType::bool_ : launch.compute);
    if (function == nullptr) return;
    parallel_for(launch.count, grain, [&](std::int64_t begin, std::int64_t end) { function(launch, begin, end); });
}

}  // namespace cukern::host
