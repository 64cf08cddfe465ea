#include "host/costs.h"

#include <algorithm>

namespace cukern {
namespace {

// Of operations that nobody has measured: a division's, and that of a function of 64 bits.
constexpr int kTypicalCost = 1000;
constexpr int kNumOps = static_cast<int>(Op::clip) + 1;
constexpr double kWorthAThread = 50'000;  // nanoseconds: waking a thread of a virtual machine takes 10'000
constexpr double kThreadMemory = 12;      // bytes a nanosecond that a thread reads and writes then
constexpr double kCopiedByte = 0.06;      // nanoseconds
constexpr double kLeastGrain = 4096;      // elements
constexpr double kMostGrain = 1 << 20;

struct Costs {
    std::uint32_t picoseconds[kNumOps][kNumElementTypes] = {};

    constexpr Costs() {
        for (auto &row : picoseconds)
            for (std::uint32_t &cost : row) cost = kTypicalCost;
#define CUKERN_HOST_COST(op, type, cost) \
    picoseconds[static_cast<int>(Op::op)][static_cast<int>(ElementType::type)] = cost;
#include "host/costs.inc"
#undef CUKERN_HOST_COST
    }
};
constexpr Costs kCosts;

}  // namespace

double host_cost(Op op, ElementType compute) noexcept {
    if (op == Op::copy)
        return kCopiedByte * size_of(compute);  // also of what looks at no element, as isnan of integers
    if (info(op).rule == ResultRule::test && !is_floating(compute) && kind_of(compute) != 'c') return kCopiedByte;
    if (is_logical(op))
        return kCosts.picoseconds[static_cast<int>(op)][static_cast<int>(ElementType::bool_)] * 1e-3 *
               size_of(compute);
    return kCosts.picoseconds[static_cast<int>(op)][static_cast<int>(compute)] * 1e-3;
}

std::int64_t host_grain(Op op, ElementType compute, double elements, double bytes) noexcept {
    double cost = std::max(host_cost(op, compute), 1e-3);
    if (bytes > kCachedBytes) cost = std::max(cost, bytes / elements / kThreadMemory);
    return grain_of_cost(cost);
}

std::int64_t grain_of_cost(double nanoseconds) noexcept {
    return static_cast<std::int64_t>(std::clamp(kWorthAThread / nanoseconds, kLeastGrain, kMostGrain));
}

}  // namespace cukern
