// Reductions of elements that lie apart, to results that lie beside each other.
//
// Idea: a tile of results goes over its rows, whose loops vectorise; tiles are as wide as partial results fit into
// the cache of a core, so that rows are read in long parts. Sums of floats are of groups of kGroup rows, which are
// joined in pairs as a binary counter carries. Variances are of groups of kBlock rows in two passes, joined
// likewise.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

#include "host/cache_line.h"
#include "host/reduce_block.h"
#include "host/versions.h"

namespace cukern::host {

constexpr std::int64_t kTileBytes = 32768;  // of partial results: whole rows, or long parts, are read at once
constexpr std::int64_t kNarrow = 64;        // results of a tile from which on another library's loop pays, if any
constexpr std::int64_t kGroup = 32;
constexpr std::int64_t kIndexRows = 1 << 30;  // that 32-bit indices count
constexpr int kMostGroups = 30;               // as a power of two

// Results of at most kFewReduced elements each are taken by tiles if at least kManyKept lie in a row, whatever the
// strides. argmax, argmin, any and all of more elements are taken one by one if fewer than kFewColumns results lie
// in a row.
constexpr std::int64_t kFewReduced = 16;
constexpr std::int64_t kManyKept = 64;
constexpr std::int64_t kFewColumns = 16;

// The step in the input from a result's elements to those of the next one.
inline std::int64_t column_step(const ReduceLaunch &launch) noexcept {
    return launch.kept_strides[launch.num_kept - 1];
}

constexpr bool asks_truth(Op op) noexcept { return op == Op::any || op == Op::all; }

// Whether results are taken by tiles: their elements lie closer to those of the next result than to each other, or
// are few.
inline bool lies_in_columns(const ReduceLaunch &launch) noexcept {
    const int last = launch.num_kept - 1;
    if (last < 0 || launch.kept_shape[last] < 4 || column_step(launch) == 0) return false;
    if (launch.reduced == 1) return true;
    // Another library finds places in packed elements, by vectors, and compares elements with zero.
    const bool finds_place = launch.op == Op::argmax || launch.op == Op::argmin;
    if ((finds_place || asks_truth(launch.op)) && launch.kept_shape[last] < kFewColumns &&
        launch.reduced > kFewReduced)
        return false;
    const std::int64_t reduced_step = std::abs(launch.reduced_strides[launch.num_reduced - 1]);
    if (column_step(launch) == 1) return reduced_step != 1;
    return std::abs(column_step(launch)) < reduced_step ||
           (launch.reduced <= (asks_truth(launch.op) ? 2 : 1) * kFewReduced &&
            launch.kept_shape[last] >= kManyKept);
}

// How many results a tile has at most: half as many of what needs further memory, for stacks may be small.
template <Op op, typename T>
inline constexpr std::int64_t kTile =
    std::max<std::int64_t>(kNarrow, kTileBytes / (op == Op::var || op == Op::argmax || op == Op::argmin ? 2 : 1) /
                                        std::max(sizeof(T), sizeof(typename Reducer<op, T>::A)));

// Rows that are joined into a tile one after the other. What loops of vectors go over begins at a line of the
// cache: `argmax` of int64 (1000, 1000) over axis 0 took 220 or 295 us, by where the stack lay.
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
          it_(launch.reduced_shape, launch.reduced_strides, launch.num_reduced, begin) {}

    std::int64_t at() const noexcept { return at_; }

    // What the rows before `end` come to; there is one at least.
    void reduce(std::int64_t end, A *sums) noexcept {
        if constexpr (op == Op::var) {
            reduce_variances(end, sums);
        } else if constexpr (op == Op::argmax || op == Op::argmin) {
            find_extremes(std::min(end, at_ + kIndexRows), sums);
            for (alignas(kLine) A later[kTile<op, T>]; at_ < end;) {
                find_extremes(std::min(end, at_ + kIndexRows), later);
                for (std::int64_t k = 0; k < m_; ++k) sums[k] = F::join_later(sums[k], later[k]);
            }
        } else {
            constexpr bool kIsShort = std::is_arithmetic_v<T> || op == Op::sum || op == Op::prod;  // to join
            if constexpr (kIsShort && std::is_same_v<A, T>)
                if (is_stored())
                    return join_by_fours<std::conditional_t<op == Op::sum, typename RealPart<T>::type, T>>(end,
                                                                                                           sums);
            const T *x = next();
            if constexpr (std::is_same_v<A, T>) {
                const HostLoop loop = m_ >= kNarrow ? joining_loop<op, T>() : HostLoop{};
                if (loop.function != nullptr) {
                    if (at_ < end && x != row_)
                        join_rows(loop, x, next(), sums, m_);
                    else
                        std::copy_n(x, m_, sums);
                    while (at_ < end) join_rows(loop, sums, next(), sums, m_);
                    return;
                }
            }
            for (std::int64_t k = 0; k < m_; ++k) sums[k] = F::of(x[k], at_ - 1);
            while (at_ < end) {
                x = next();
                const auto join = [x, sums, m = m_, place = at_ - 1] {
                    for (std::int64_t k = 0; k < m; ++k) sums[k] = F::join(sums[k], F::of(x[k], place));
                };
                if constexpr (op == Op::any || (op == Op::prod && is_complex<T>))
                    run_by_vectors<kNeverFused>(join);
                else
                    join();
            }
        }
    }

private:
    // Whether rows are taken where they lie. A Bool is looked at as any byte is: true where it is not zero.
    bool is_stored() const noexcept {
        constexpr bool kOfBytes = op == Op::any;
        return column_step(launch_) == 1 &&
               (launch_.type == ElementTypeOf<T>::value || (kOfBytes && size_of(launch_.type) == 1));
    }

    const T *next() noexcept {
        const char *row = element_at(launch_, base_ + it_.offset);
        it_.advance(1);
        ++at_;
        if (is_stored()) return reinterpret_cast<const T *>(row);
        load_elements(launch_, row, column_step(launch_), row_, m_);
        return row_;
    }

    // Four rows at a time, so that what they come to is loaded and stored once: products in order, all else in
    // pairs. The parts of complex numbers are summed by themselves.
    template <typename P>
    void join_by_fours(std::int64_t end, A *joined) noexcept {
        using J = Reducer<op, P>;
        constexpr int kBits = std::is_integral_v<P> && sizeof(P) == 8 ? 512 : kNeverFused;
        const std::int64_t m = is_complex<T> && !is_complex<P> ? 2 * m_ : m_;
        auto *const all = reinterpret_cast<P *>(joined);
        const auto row = [this] { return reinterpret_cast<const P *>(next()); };
        const auto four = [](P a, P b, P c, P d) {
            if constexpr (op == Op::prod)
                return J::join(J::join(J::join(a, b), c), d);
            else
                return J::join(J::join(a, b), J::join(c, d));
        };
        bool is_first = true;
        for (; at_ + 4 <= end; is_first = false) {
            const P *const a = row();
            const P *const b = row();
            const P *const c = row();
            const P *const d = row();
            if (is_first)
                run_by_vectors<kBits>([=] {
                    for (std::int64_t k = 0; k < m; ++k) all[k] = four(a[k], b[k], c[k], d[k]);
                });
            else if constexpr (op == Op::prod)
                run_by_vectors<kBits>([=] {
                    for (std::int64_t k = 0; k < m; ++k) all[k] = J::join(four(all[k], a[k], b[k], c[k]), d[k]);
                });
            else
                run_by_vectors<kBits>([=] {
                    for (std::int64_t k = 0; k < m; ++k) all[k] = J::join(all[k], four(a[k], b[k], c[k], d[k]));
                });
        }
        for (; at_ < end; is_first = false) {
            const P *const x = row();
            if (is_first && at_ == end) {
                std::copy_n(x, m, all);
                continue;
            }
            const P *const before = is_first ? x : all;
            const P *const later = is_first ? row() : x;
            run_by_vectors<kBits>([=] {
                for (std::int64_t k = 0; k < m; ++k) all[k] = J::join(before[k], later[k]);
            });
        }
    }

    // Values and their places lie apart, of one size, so that the loop vectorises.
    void find_extremes(std::int64_t end, A *found) noexcept {
        using Value = decltype(A::value);
        using V = std::conditional_t<std::is_same_v<Value, bool>, std::uint8_t, Value>;
        using Wide = std::conditional_t<std::is_same_v<V, double>, double, std::int64_t>;
        using Index = std::conditional_t<sizeof(V) <= 4, std::int32_t, Wide>;
        alignas(kLine) V values[kTile<op, T>];
        alignas(kLine) Index places[kTile<op, T>] = {};
        const std::int64_t begin = at_;
        const T *x = next();
        for (std::int64_t k = 0; k < m_; ++k) values[k] = to_arithmetic(x[k]);
        while (at_ < end) {
            const auto place = static_cast<Index>(at_ - begin);
            x = next();
            const auto join = [x, place, m = m_, &values, &places] {
                for (std::int64_t k = 0; k < m; ++k) {
                    const V value = to_arithmetic(x[k]);
                    bool is_beyond = false;
                    if constexpr (is_complex<V>)  // most are told by their real parts
                        if ((op == Op::argmax ? value.real < values[k].real : value.real > values[k].real) &&
                            value.imag == value.imag)
                            continue;
                    if constexpr (std::is_same_v<V, Value>)
                        is_beyond = F::beyond(value, values[k]);
                    else
                        is_beyond = op == Op::argmax ? value > values[k] : value < values[k];
                    values[k] = is_beyond ? value : values[k];
                    places[k] = is_beyond ? place : places[k];
                }
            };
            if constexpr (std::is_arithmetic_v<V> && sizeof(V) == 8)  // SSE2 cannot compare integers of 64 bits
                run_by_vectors(join);
            else
                join();
        }
        for (std::int64_t k = 0; k < m_; ++k)
            found[k] = {static_cast<Value>(values[k]), begin + static_cast<std::int64_t>(places[k])};
    }

    void reduce_variances(std::int64_t end, A *sums) noexcept {
        using P = typename F::P;
        const NdIterator start = it_;
        const std::int64_t begin = at_;
        alignas(kLine) P pivots[F::kParts][kTile<op, T>];
        alignas(kLine) P means[F::kParts][kTile<op, T>] = {};
        alignas(kLine) P squares[kTile<op, T>] = {};
        const T *x = next();
        for (int part = 0; part < F::kParts; ++part)
            for (std::int64_t k = 0; k < m_; ++k) pivots[part][k] = F::part(x[k], part);
        for (;;) {
            for (int part = 0; part < F::kParts; ++part)
                for (std::int64_t k = 0; k < m_; ++k) means[part][k] += F::part(x[k], part) - pivots[part][k];
            if (at_ == end) break;
            x = next();
        }
        const auto count = static_cast<P>(end - begin);
        for (auto &part : means)
            for (std::int64_t k = 0; k < m_; ++k) part[k] /= count;
        it_ = start;
        for (at_ = begin; at_ < end;) {
            x = next();
            for (int part = 0; part < F::kParts; ++part)
                for (std::int64_t k = 0; k < m_; ++k) {
                    const P distance = (F::part(x[k], part) - pivots[part][k]) - means[part][k];
                    squares[k] += distance * distance;
                }
        }
        for (std::int64_t k = 0; k < m_; ++k) {
            sums[k].count = count;
            sums[k].squares = squares[k];
            for (int part = 0; part < F::kParts; ++part) {
                sums[k].pivot[part] = pivots[part][k];
                sums[k].mean[part] = means[part][k];
            }
        }
    }

    const ReduceLaunch &launch_;
    const std::int64_t base_;
    const std::int64_t m_;
    std::int64_t at_;
    NdIterator it_;
    alignas(kLine) T row_[kTile<op, T>];
};

// Elements [begin, end) of `m` results beside each other, the first of which begins at `base`.
template <Op op, typename T>
void take_tile(const ReduceLaunch &launch, std::int64_t base, std::int64_t m, std::int64_t begin, std::int64_t end,
               void *parts) noexcept {
    using F = Reducer<op, T>;
    using A = typename F::A;
    auto *const out = static_cast<A *>(parts);
    TileRows<op, T> rows(launch, base, m, begin);
    constexpr bool kIsSum = op == Op::sum && !std::is_integral_v<A>;
    if constexpr (!kIsSum && op != Op::var) {
        rows.reduce(end, out);
    } else {
        constexpr std::int64_t kRows = kIsSum ? kGroup : kBlock;
        const std::int64_t all = (end - begin - 1) / kRows + 1;
        int levels = 0;
        while (all >> levels != 0) ++levels;
        // Of 1, 2, 4, ... groups, where `groups` has a bit. Not on the stack, which may be small.
        const std::unique_ptr<A[]> waiting(all > 1 ? new (std::nothrow) A[levels * m] : nullptr);
        if (waiting == nullptr) return rows.reduce(end, out);
        std::uint64_t groups = 0;
        while (rows.at() < end) {
            const std::int64_t stop = std::min(end, rows.at() + kRows);
            if ((groups & 1U) == 0) {
                rows.reduce(stop, waiting.get());
            } else {
                rows.reduce(stop, out);
                int level = 0;
                for (; (groups >> level & 1U) != 0; ++level)
                    for (std::int64_t k = 0; k < m; ++k) out[k] = F::join(waiting[level * m + k], out[k]);
                std::copy_n(out, m, &waiting[level * m]);
            }
            ++groups;
        }
        bool is_first = true;
        for (int level = 0; level < levels; ++level) {
            if ((groups >> level & 1U) == 0) continue;
            for (std::int64_t k = 0; k < m; ++k)
                out[k] = is_first ? waiting[level * m + k] : F::join(waiting[level * m + k], out[k]);
            is_first = false;
        }
    }
}

}  // namespace cukern::host
