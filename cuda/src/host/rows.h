// The rows that elements of an operation's results lie in.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/launch.h"

namespace cukern::host {

// Elements [begin, end) of out in runs along the fastest dimension: compute(data, n, strides), of out last, in
// bytes; a value has a stride of 0. The number of operands may be a constant.
template <typename Count, typename Compute>
void run_rows(const ElementwiseLaunch &launch, Count count, std::int64_t begin, std::int64_t end,
              const Compute &compute) noexcept {
    const int last = launch.ndim - 1;
    char *data[kMaxOperands];
    std::intptr_t strides[kMaxOperands];
    // Loops take out last.
    const auto place = [count](int operand) { return operand == 0 ? count - 1 : operand - 1; };
    const auto step = [&launch](int operand, int d) -> std::intptr_t {
        return launch.immediate[operand] ? 0 : launch.strides[operand][d] * size_of(launch.types[operand]);
    };
    for (int i = 0; i < count; ++i) {
        data[place(i)] = launch.immediate[i]
                             ? reinterpret_cast<char *>(const_cast<unsigned char *>(launch.values[i].bytes))
                             : static_cast<char *>(launch.data[i]);
        strides[place(i)] = step(i, last);
    }
    if (last == 0) {
        for (int i = 0; i < count; ++i) data[i] += begin * strides[i];
        compute(data, end - begin, strides);
        return;
    }
    std::int64_t index[kMaxDims] = {};
    std::int64_t rest = begin;
    for (int d = last; rest > 0; --d) {
        index[d] = rest % launch.shape[d];
        rest /= launch.shape[d];
        for (int i = 0; i < count; ++i) data[place(i)] += index[d] * step(i, d);
    }
    std::intptr_t to_next[kMaxOperands];  // rows
    for (int i = 0; i < count; ++i) to_next[place(i)] = step(i, last - 1);
    const std::int64_t length = launch.shape[last];
    for (std::int64_t at = begin; at < end;) {
        if (index[last] == 0 && end - at >= length) {  // whole rows, as far as they are one step from each other
            std::int64_t rows = launch.shape[last - 1] - index[last - 1];
            if (rows * length > end - at) rows = (end - at) / length;
            for (std::int64_t row = 0; row < rows; ++row) {
                compute(data, length, strides);
                for (int i = 0; i < count; ++i) data[i] += to_next[i];
            }
            at += rows * length;
            if (at == end) break;
            index[last - 1] += rows;
        } else {
            const std::int64_t n = std::min(length - index[last], end - at);
            compute(data, n, strides);
            at += n;
            if (at == end) break;
            // The range began within a row: to the beginning of the next one.
            for (int i = 0; i < count; ++i) data[i] += to_next[i] - index[last] * strides[i];
            index[last] = 0;
            ++index[last - 1];
        }
        for (int d = last - 1; d > 0 && index[d] == launch.shape[d]; --d) {
            for (int i = 0; i < count; ++i) data[place(i)] += step(i, d - 1) - launch.shape[d] * step(i, d);
            index[d] = 0;
            ++index[d - 1];
        }
    }
}

}  // namespace cukern::host
