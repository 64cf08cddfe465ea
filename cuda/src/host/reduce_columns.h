// Reductions of elements that lie apart, to results that lie beside each other.
//
// Idea: a tile of kTile results goes over its rows, whose loops vectorise. Sums of floats are of groups of kGroup
// rows, which are joined in pairs as a binary counter carries.
#pragma once

#include "host/reduce_block.h"

namespace cukern::host {

constexpr std::int64_t kTile = 64;
constexpr std::int64_t kGroup = 16;
constexpr int kMostGroups = 40;  // as a power of two

constexpr bool reduces_columns(Op op) noexcept { return op != Op::var; }

// Whether results are taken by tiles: they lie beside each other in the input, and what is reduced does not.
inline bool lies_in_columns(const ReduceLaunch &launch) noexcept {
    const int last = launch.num_kept - 1;
    return last >= 0 && launch.kept_strides[last] == 1 && launch.kept_shape[last] >= 4 &&
           (launch.num_reduced == 0 || launch.reduced_strides[launch.num_reduced - 1] != 1);
}

// Rows that are joined into a tile one after the other.
template <Op op, typename T>
class TileRows {
public:
    using F = Reducer<op, T>;
    using A = typename F::A;

    TileRows(const ReduceLaunch &launch, std::int64_t base, std::int64_t m, std::int64_t begin) noexcept
        : launch_(launch),
          base_(base),
          m_(m),
          at_(begin),
          walk_(launch.reduced_shape, launch.reduced_strides, launch.num_reduced, begin) {}

    std::int64_t at() const noexcept { return at_; }

    // What the rows before `end` come to; there is one at least.
    void reduce(std::int64_t end, A *sums) noexcept {
        if (loop_.function != nullptr) return reduce_by_loop(end, sums);
        const T *x = next();
        for (std::int64_t k = 0; k < m_; ++k) sums[k] = F::of(x[k], at_ - 1);
        while (at_ < end) {
            x = next();
            if constexpr (op == Op::argmax || op == Op::argmin)
                for (std::int64_t k = 0; k < m_; ++k) sums[k] = F::join_next(sums[k], F::of(x[k], at_ - 1));
            else
                for (std::int64_t k = 0; k < m_; ++k) sums[k] = F::join(sums[k], F::of(x[k], at_ - 1));
        }
    }

private:
    const T *next() noexcept {
        const char *row = element_at(launch_, base_ + walk_.offset);
        walk_.advance(1);
        ++at_;
        if (launch_.type == ElementTypeOf<T>::value) return reinterpret_cast<const T *>(row);
        cast_of(launch_.type, ElementTypeOf<T>::value)(row, 1, row_, 1, m_);
        return row_;
    }

    void reduce_by_loop(std::int64_t end, A *sums) noexcept {
        T values[kTile];
        std::copy_n(next(), m_, values);
        constexpr std::int64_t kPacked[] = {1, 1};
        while (at_ < end)
            call_loop(loop_,
                      {{reinterpret_cast<const char *>(values), reinterpret_cast<const char *>(next())},
                       kPacked,
                       2,
                       sizeof(T),
                       values,
                       sizeof(T)},
                      m_);
        for (std::int64_t k = 0; k < m_; ++k) sums[k] = F::of(values[k], 0);
    }

    const ReduceLaunch &launch_;
    const std::int64_t base_;
    const std::int64_t m_;
    std::int64_t at_;
    Walk walk_;
    const HostLoop loop_ = extreme_loop<op, T>();
    T row_[kTile];
};

// Elements [begin, end) of `m` results beside each other, the first of which begins at `base`.
template <Op op, typename T>
[[gnu::noinline]] void reduce_tile(const ReduceLaunch &launch, std::int64_t base, std::int64_t m,
                                   std::int64_t begin, std::int64_t end,
                                   typename Reducer<op, T>::A *out) noexcept {
    using F = Reducer<op, T>;
    using A = typename F::A;
    TileRows<op, T> rows(launch, base, m, begin);
    if constexpr (op != Op::sum || std::is_integral_v<A>) {
        rows.reduce(end, out);
    } else {
        A waiting[kMostGroups][kTile];  // of 1, 2, 4, ... groups, where `groups` has a bit
        std::uint64_t groups = 0;
        while (rows.at() < end) {
            rows.reduce(std::min(end, rows.at() + kGroup), out);
            int level = 0;
            for (; level < kMostGroups - 1 && (groups >> level & 1U) != 0; ++level)
                for (std::int64_t k = 0; k < m; ++k) out[k] = F::join(waiting[level][k], out[k]);
            std::copy_n(out, m, waiting[level]);
            ++groups;
        }
        bool is_first = true;
        for (int level = 0; level < kMostGroups; ++level) {
            if ((groups >> level & 1U) == 0) continue;
            for (std::int64_t k = 0; k < m; ++k)
                out[k] = is_first ? waiting[level][k] : F::join(waiting[level][k], out[k]);
            is_first = false;
        }
    }
}

}  // namespace cukern::host
