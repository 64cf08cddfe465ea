// What reductions on the CPU share: how elements are found, and what few of them come to.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "formulas/reducers.cuh"
#include "host/casts.h"
#include "host/complex_extremes.h"
#include "host/loops.h"
#include "host/truths.h"
#include "plan/launch.h"

namespace cukern::host {

constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kLongBlock = 512;      // of elements that are joined by another library's loop
constexpr std::int64_t kPackedBytes = 8192;   // of elements that are packed for a call of another library
constexpr std::int64_t kLoopBlock = 1 << 14;  // of those that such a loop takes where they lie

// Where element `at` of the dimensions lies, and the step to the next along the fastest.
struct NdIterator {
    NdIterator(const std::int64_t *shape, const std::int64_t *strides, int ndim, std::int64_t at) noexcept
        : shape_(shape), strides_(strides), ndim_(ndim) {
        if (at == 0) {
            for (int d = 0; d < ndim; ++d) index_[d] = 0;
            return;
        }
        for (int d = ndim - 1; d >= 0; --d) {
            index_[d] = at % shape[d];
            at /= shape[d];
            offset += index_[d] * strides[d];
        }
    }
    std::int64_t run() const noexcept { return ndim_ == 0 ? 1 : shape_[ndim_ - 1] - index_[ndim_ - 1]; }
    std::int64_t stride() const noexcept { return ndim_ == 0 ? 0 : strides_[ndim_ - 1]; }
    bool has_rows() const noexcept { return ndim_ > 1; }
    // Rows along the fastest dimension from this place on, if it is the first of one, and the step to the next.
    std::int64_t rows() const noexcept {
        return !has_rows() || index_[ndim_ - 1] != 0 ? 0 : shape_[ndim_ - 2] - index_[ndim_ - 2];
    }
    std::int64_t row_stride() const noexcept { return strides_[ndim_ - 2]; }
    void advance(std::int64_t n) noexcept { advance(ndim_ - 1, n); }
    void advance_rows(std::int64_t n) noexcept { advance(ndim_ - 2, n); }

    std::int64_t offset = 0;

private:
    void advance(int d, std::int64_t n) noexcept {
        for (; d >= 0; --d) {
            index_[d] += n;
            offset += n * strides_[d];
            if (index_[d] < shape_[d] || d == 0) return;
            offset -= index_[d] * strides_[d];
            index_[d] = 0;
            n = 1;
        }
    }

    const std::int64_t *shape_;
    const std::int64_t *strides_;
    int ndim_;
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

// From the type of the elements to that which is reduced. Any byte but 0 is true to what reads Bools.
template <typename T>
Cast loading_cast(const ReduceLaunch &launch) noexcept {
    if (std::is_same_v<T, Bool> && launch.type == ElementType::bool_)
        return cast_of(ElementType::uint8, ElementType::uint8);
    return cast_of(launch.type, launch.compute);
}

// Loads elements as the type that is reduced, packed.
template <typename T>
void load_elements(const ReduceLaunch &launch, const char *from, std::int64_t stride, T *to,
                   std::int64_t n) noexcept {
    if constexpr (std::is_same_v<T, Bool>) return load_truths(launch.type, from, stride, to, n);
    loading_cast<T>(launch)(from, stride, to, 1, n);
}

// Packs n elements, each converted to `size` bytes. In any order: short rows that lie close together by columns,
// which are fewer and longer. Each column reads the cache lines of its rows again; of rows far apart these may
// compete for a few places in the cache.
template <bool kInAnyOrder>
void pack(const ReduceLaunch &launch, NdIterator &it, std::int64_t base, const Cast cast, void *to, int size,
          std::int64_t n) noexcept {
    constexpr std::int64_t kShortRow = 16;
    constexpr std::int64_t kCloseBytes = 256;
    const bool by_columns =
        kInAnyOrder && it.has_rows() && std::abs(it.row_stride()) * size_of(launch.type) <= kCloseBytes;
    auto *packed = static_cast<char *>(to);
    for (std::int64_t i = 0; i < n;) {
        const std::int64_t run = std::min(it.run(), n - i);
        const char *from = element_at(launch, base + it.offset);
        const std::int64_t rows = by_columns && run < kShortRow ? std::min(it.rows(), (n - i) / run) : 0;
        if (rows > run) {
            const std::int64_t step = it.stride() * size_of(launch.type);
            for (std::int64_t j = 0; j < run; ++j)
                cast(from + j * step, it.row_stride(), packed + (i + j * rows) * size, 1, rows);
            it.advance_rows(rows);
            i += rows * run;
        } else {
            cast(from, it.stride(), packed + i * size, 1, run);
            it.advance(run);
            i += run;
        }
    }
}

// Loads up to n elements, packed; returns how many.
template <bool kInAnyOrder, typename T>
std::int64_t gather(const ReduceLaunch &launch, NdIterator &it, std::int64_t base, T *to,
                    std::int64_t n) noexcept {
    pack<kInAnyOrder>(launch, it, base, loading_cast<T>(launch), to, sizeof(T), n);
    return n;
}

// What at most kBlock packed elements come to.
template <Op op, typename T>
typename Reducer<op, T>::A reduce_block(const T *elements, std::int64_t n, std::int64_t first) noexcept {
    using F = Reducer<op, T>;
    using A = typename F::A;
    if constexpr (op == Op::var) return variance_of<F>(elements, n);
    A sum = F::of(elements[0], first);
    std::int64_t i = 1;
    if constexpr (op == Op::argmax || op == Op::argmin) {
        for (; i < n; ++i) sum = F::join_next(sum, F::of(elements[i], first + i));
        return sum;
    }
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

// The same of more.
template <Op op, typename T>
typename Reducer<op, T>::A reduce_long_block(const T *elements, std::int64_t n, std::int64_t first) noexcept {
    using F = Reducer<op, T>;
    if constexpr (is_complex<T> && (op == Op::max || op == Op::min)) {
        const std::int64_t whole = n - n % kComplexBlock;
        T result;
        if (whole > 0 && find_complex<op == Op::min>(elements, whole, &result))
            return whole == n ? result : F::join(result, reduce_block<op>(elements + whole, n - whole, whole));
    }
    auto sum = reduce_block<op>(elements, std::min(n, kBlock), first);
    for (std::int64_t at = kBlock; at < n; at += kBlock)
        sum = F::join(sum, reduce_block<op>(elements + at, std::min(n - at, kBlock), first + at));
    return sum;
}

// Whether what comes later changes nothing any more, of what any or all asks.
constexpr bool is_decided(std::uint8_t kinds, Op asked) noexcept {
    using F = Reducer<Op::any, Bool>;
    return (kinds & (asked == Op::any ? F::kNonzero : F::kZero)) != 0;
}

// The loop of another library that joins partial results, or none.
template <Op op, typename T>
HostLoop joining_loop() noexcept {
    constexpr ElementType kOwn = ElementTypeOf<T>::value;
    switch (op) {
        case Op::sum: return loop_of(Op::add, kOwn);
        case Op::prod: return loop_of(Op::multiply, kOwn);
        case Op::max: return loop_of(Op::maximum, kOwn);
        case Op::min: return loop_of(Op::minimum, kOwn);
        default: return {};
    }
}

// The same along elements that are so far apart. Packed complex numbers are summed by vectors here, and one by one
// there.
template <Op op, typename T>
HostLoop joining_loop_along(std::int64_t stride) noexcept {
    return op == Op::sum && is_complex<T> && stride == 1 ? HostLoop{} : joining_loop<op, T>();
}

// Joins each of n elements beside each other with one of as many others.
template <typename T>
void join_rows(const HostLoop &loop, const T *a, const T *b, T *joined, std::int64_t n) noexcept {
    constexpr std::int64_t kPacked[] = {1, 1};
    call_loop(loop,
              {{reinterpret_cast<const char *>(a), reinterpret_cast<const char *>(b)},
               kPacked,
               2,
               sizeof(T),
               joined,
               sizeof(T)},
              n);
}

// Joins n elements of `size` bytes into one value.
inline void join_run(const HostLoop &loop, void *value, const char *elements, std::int64_t size,
                     std::int64_t stride, std::int64_t n) noexcept {
    const std::int64_t strides[] = {0, stride};
    const auto bytes = static_cast<std::size_t>(size);
    call_loop(loop, {{static_cast<const char *>(value), elements}, strides, 2, bytes, value, 0}, n);
}

// What n elements come to, by such a loop: with one result it takes all of them in one go, sums of floats in
// pairs.
template <typename T>
T joined_by(const HostLoop &loop, const T *elements, std::int64_t stride, std::int64_t n) noexcept {
    T value = *elements;
    if (n > 1) join_run(loop, &value, reinterpret_cast<const char *>(elements + stride), sizeof(T), stride, n - 1);
    return value;
}

// What n elements come to, one run after the other: for what is exact, so that no order of joining is better.
template <typename T>
T joined_in_order(const ReduceLaunch &launch, const HostLoop &loop, NdIterator &it, std::int64_t base,
                  std::int64_t n, T value) noexcept {
    while (n > 0) {
        const std::int64_t part = std::min({it.run(), n, kLoopBlock});
        join_run(loop, &value, element_at(launch, base + it.offset), sizeof(T), it.stride(), part);
        it.advance(part);
        n -= part;
    }
    return value;
}

}  // namespace cukern::host
