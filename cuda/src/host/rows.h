// The rows that elements of an operation's results lie in.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/launch.h"

namespace cukern::host {

// Elements [begin, end) of out in runs along the fastest dimension: compute(data, n, strides), of out last, in
// bytes. The number of operands may be a constant.
template <typename Count, typename Compute>
void run_rows(const ElementwiseLaunch &launch, Count count, std::int64_t begin, std::int64_t end,
              const Compute &compute) noexcept {
    const int last = launch.ndim - 1;
    std::int64_t index[kMaxDims];
    char *data[kMaxOperands];
    std::intptr_t strides[kMaxOperands];
    std::int64_t sizes[kMaxOperands];
    // Loops take out last.
    const auto place = [count](int operand) { return operand == 0 ? count - 1 : operand - 1; };
    for (int i = 0; i < count; ++i) {
        sizes[i] = size_of(launch.types[i]);
        data[place(i)] = static_cast<char *>(launch.data[i]);
        strides[place(i)] = launch.strides[i][last] * sizes[i];
    }
    std::int64_t rest = begin;
    for (int d = last; d >= 0; --d) {
        index[d] = rest % launch.shape[d];
        rest /= launch.shape[d];
        for (int i = 0; i < count; ++i) data[place(i)] += index[d] * launch.strides[i][d] * sizes[i];
    }
    for (std::int64_t at = begin; at < end;) {
        const std::int64_t n = std::min(launch.shape[last] - index[last], end - at);
        compute(data, n, strides);
        at += n;
        if (at == end) break;
        index[last] += n;
        for (int i = 0; i < count; ++i) data[place(i)] += n * strides[place(i)];
        for (int d = last; d > 0 && index[d] == launch.shape[d]; --d) {
            for (int i = 0; i < count; ++i)
                data[place(i)] += (launch.strides[i][d - 1] - launch.shape[d] * launch.strides[i][d]) * sizes[i];
            index[d] = 0;
            ++index[d - 1];
        }
    }
}

}  // namespace cukern::host
