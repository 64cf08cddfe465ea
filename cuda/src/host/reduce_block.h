// What reductions on the CPU share: how elements are found, and what few of them come to.
#pragma once

#include <algorithm>

#include "formulas/reducers.cuh"
#include "host/casts.h"
#include "host/loops.h"
#include "plan/launch.h"

namespace cukern::host {

constexpr int kBlock = 128;

// Where element `at` of the dimensions lies, and the step to the next along the fastest.
struct Walk {
    Walk(const std::int64_t *shape, const std::int64_t *strides, int ndim, std::int64_t at) noexcept
        : shape_(shape), strides_(strides), ndim_(ndim) {
        for (int d = ndim - 1; d >= 0; --d) {
            index_[d] = at % shape[d];
            at /= shape[d];
            offset += index_[d] * strides[d];
        }
    }
    std::int64_t run() const noexcept { return ndim_ == 0 ? 1 : shape_[ndim_ - 1] - index_[ndim_ - 1]; }
    std::int64_t stride() const noexcept { return ndim_ == 0 ? 0 : strides_[ndim_ - 1]; }
    void advance(std::int64_t n) noexcept {
        for (int d = ndim_ - 1; d >= 0; --d) {
            index_[d] += n;
            offset += n * strides_[d];
            if (index_[d] < shape_[d] || d == 0) return;
            offset -= index_[d] * strides_[d];
            index_[d] = 0;
            n = 1;
        }
    }

    std::int64_t offset = 0;

private:
    const std::int64_t *shape_;
    const std::int64_t *strides_;
    const int ndim_;
    std::int64_t index_[kMaxDims];
};

inline const char *element_at(const ReduceLaunch &launch, std::int64_t offset) noexcept {
    return static_cast<const char *>(launch.in) + offset * size_of(launch.type);
}

// In two passes over the block, each in eight running results.
template <typename F, typename T>
typename F::A variance_of(const T *elements, std::int64_t n) noexcept {
    using P = typename F::P;
    typename F::A all{};
    all.count = static_cast<P>(n);
    const std::int64_t padded = (n + 7) / 8 * 8;
    for (int k = 0; k < F::kParts; ++k) {
        P distances[kBlock];
        P sums[8] = {};
        P squares[8] = {};
        all.pivot[k] = F::part(elements[0], k);
        for (std::int64_t i = 0; i < n; ++i) distances[i] = F::part(elements[i], k) - all.pivot[k];
        for (std::int64_t i = n; i < padded; ++i) distances[i] = 0;
        for (std::int64_t i = 0; i < padded; i += 8)
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) sums[j] += distances[i + j];
        const auto total = [](const P(&of)[8]) {
            return ((of[0] + of[1]) + (of[2] + of[3])) + ((of[4] + of[5]) + (of[6] + of[7]));
        };
        const P mean = total(sums) / all.count;
        for (std::int64_t i = 0; i < n; ++i) distances[i] -= mean;
        for (std::int64_t i = 0; i < padded; i += 8)
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) squares[j] += distances[i + j] * distances[i + j];
        all.mean[k] = mean;
        all.squares += total(squares);
    }
    return all;
}

// What at most kBlock packed elements come to.
template <Op op, typename T>
typename Reducer<op, T>::A reduce_block(const T *elements, std::int64_t n, std::int64_t first) noexcept {
    using F = Reducer<op, T>;
    using A = typename F::A;
    if constexpr (op == Op::var) return variance_of<F>(elements, n);
    A sum = F::of(elements[0], first);
    std::int64_t i = 1;
    if (n >= 16) {
        A running[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) running[j] = F::of(elements[j], first + j);
        for (i = 8; i + 8 <= n; i += 8)
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) running[j] = F::join(running[j], F::of(elements[i + j], first + i + j));
        sum = F::join(F::join(F::join(running[0], running[1]), F::join(running[2], running[3])),
                      F::join(F::join(running[4], running[5]), F::join(running[6], running[7])));
    }
    for (; i < n; ++i) sum = F::join(sum, F::of(elements[i], first + i));
    return sum;
}

// Whether what comes later changes nothing any more: of any and all, which have one kind of partial results.
template <Op op, typename A>
constexpr bool is_decided(const A &sum, Op asked) noexcept {
    if constexpr (op == Op::any)
        return (sum & (asked == Op::any ? Reducer<op, Bool>::kNonzero : Reducer<op, Bool>::kZero)) != 0;
    else
        return false;
}

// The loop of another library that finds the largest or least, or none.
template <Op op, typename T>
HostLoop extreme_loop() noexcept {
    if constexpr (op == Op::max) return loop_of(Op::maximum, ElementTypeOf<T>::value);
    if constexpr (op == Op::min) return loop_of(Op::minimum, ElementTypeOf<T>::value);
    return {};
}

}  // namespace cukern::host
