// Which dimension an operation on the host goes along.
//
// Idea: plans have out's fastest dimension last. Another dimension is better where rows are short, since each call
// of a loop has a fixed cost, or where the operands together touch fewer cache lines along it. It replaces the
// rows, in parts: the cache lines of one part stay in the cache for all rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "plan/launch.h"

namespace cukern::host {

constexpr std::int64_t kPart = 512;  // elements of a row that takes the place of others

// Estimated cost per element along dimension d; only ratios of such costs matter. `begin` is the fixed cost of a
// row. A step within a cache line is cheap, one to another line costs its load.
inline double cost_along(const ElementwiseLaunch &launch, int d, double begin) noexcept {
    double cost = begin / static_cast<double>(launch.shape[d]);
    for (int i = 0; i < launch.num_operands; ++i) {
        if (launch.immediate[i]) continue;
        const std::int64_t step = launch.strides[i][d];
        const std::int64_t bytes = std::abs(step) * size_of(launch.types[i]);
        cost += step == 0 || step == 1 ? 0.05
                                       : 0.15 + 0.4 * static_cast<double>(std::min<std::int64_t>(bytes, 64)) / 64;
    }
    return cost;
}

// The dimension to go along instead of the fastest one of out; -1 for out's own.
inline int better_dimension(const ElementwiseLaunch &launch, double begin) noexcept {
    constexpr double kWorthIt = 0.7;
    if (launch.ndim == kMaxDims) return -1;
    int best = -1;
    double least = kWorthIt * cost_along(launch, launch.ndim - 1, begin);
    for (int d = launch.ndim - 2; d >= 0; --d) {
        const double cost = cost_along(launch, d, begin);
        if (cost >= least) continue;
        least = cost;
        best = d;
    }
    return best;
}

// The launch with elements [begin, end) of dimension `along` as rows; if they are more than kPart, they must be a
// multiple of it.
inline void take_as_rows(const ElementwiseLaunch &launch, int along, std::int64_t begin, std::int64_t end,
                         ElementwiseLaunch *rows) noexcept {
    *rows = launch;
    const std::int64_t length = std::min(end - begin, kPart);
    const std::int64_t parts = (end - begin) / length;
    rows->count = launch.count / launch.shape[along] * (end - begin);
    rows->shape[along] = parts;
    rows->shape[launch.ndim] = length;
    for (int i = 0; i < launch.num_operands; ++i) {
        if (launch.immediate[i]) continue;
        const std::int64_t step = launch.strides[i][along];
        rows->data[i] = static_cast<char *>(launch.data[i]) + begin * step * size_of(launch.types[i]);
        rows->strides[i][along] = step * length;
        rows->strides[i][launch.ndim] = step;
    }
    ++rows->ndim;
}

// Calls run() with the launch itself, or with one or two launches that go along a better dimension.
template <typename Run>
void run_along_best(const ElementwiseLaunch &launch, double begin, const Run &run) noexcept {
    const int along = better_dimension(launch, begin);
    if (along < 0) return run(launch);
    const std::int64_t length = launch.shape[along];
    const std::int64_t whole = length < kPart ? length : length - length % kPart;
    ElementwiseLaunch rows;
    take_as_rows(launch, along, 0, whole, &rows);
    run(rows);
    if (whole == length) return;
    take_as_rows(launch, along, whole, length, &rows);
    run(rows);
}

}  // namespace cukern::host
