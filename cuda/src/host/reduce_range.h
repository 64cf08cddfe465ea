// Results of reductions one by one: what the elements of a result come to.
//
// Idea: blocks of kBlock elements, gathered where they are not packed, are reduced by eight running results, and
// joined in pairs as a binary counter carries: sums are then as accurate as NumPy's pairwise ones, whatever the
// strides. Long runs of elements are taken where they lie, by another library's loops where it has some.
#pragma once

#include <algorithm>
#include <cstdint>

#include "host/integer_sums.h"
#include "host/reduce_block.h"
#include "host/reduce_truths.h"

namespace cukern::host {

constexpr int kLevels = 64;
constexpr std::int64_t kLeastRun = 8;        // elements of a result, all of which a call takes
constexpr std::int64_t kLeastIntegers = 32;  // integers in a row that are added up where they lie

// From how many elements in a row on a call without packing pays: it takes 10 to 60 ns.
template <typename T>
constexpr std::int64_t kLeastLoop = 2048 / sizeof(T);

// The same of a call that looks for a place. NumPy counts elements of a byte or two in groups, which it joins at
// the end of a call; the first bool that fits ends the search.
template <typename T>
constexpr std::int64_t kLeastPlaceRun = std::is_same_v<T, Bool> ? 1 : (sizeof(T) > 2 ? 512 : 4096) / sizeof(T);

// The place of the largest or least of one result's elements, by another library's function for packed ones;
// others are packed first, and so are short rows.
template <Op op, typename T>
[[gnu::noinline]] typename Reducer<op, T>::A place_of(const ReduceLaunch &launch, HostIndexFunction function,
                                                      NdIterator &it, std::int64_t base, std::int64_t begin,
                                                      std::int64_t end) noexcept {
    using F = Reducer<op, T>;
    auto best = F::identity();
    constexpr std::int64_t kLength = kPackedBytes / sizeof(T);
    alignas(64) T packed[kLength];
    const bool is_packed = launch.type == ElementTypeOf<T>::value && it.stride() == 1;
    for (std::int64_t at = begin; at < end;) {
        const std::int64_t first = at;
        const T *elements = packed;
        const std::int64_t run = std::min(it.run(), end - at);
        if (is_packed && (run >= kLeastPlaceRun<T> || run == end - at)) {
            elements = reinterpret_cast<const T *>(element_at(launch, base + it.offset));
            it.advance(run);
            at += run;
        } else {
            at += gather<false>(launch, it, base, packed, std::min(kLength, end - at));
        }
        std::intptr_t index = 0;
        function(const_cast<T *>(elements), at - first, &index, nullptr);
        best = F::join_later(best, F::of(elements[index], first + index));
        if constexpr (std::is_same_v<T, Bool>)
            if (best.value == (op == Op::argmax)) break;
    }
    return best;
}

// Joins what a block has come to with those before it.
template <typename F>
void join_block(typename F::A sum, typename F::A *waiting, std::uint64_t *blocks) noexcept {
    int level = 0;
    for (; (*blocks >> level & 1U) != 0; ++level) sum = F::join(waiting[level], sum);
    waiting[level] = sum;
    ++*blocks;
}

// The sum of n integers that lie packed in runs.
inline std::uint64_t sum_of_runs(const ReduceLaunch &launch, IntegerSum sum_of, NdIterator &it, std::int64_t base,
                                 std::int64_t n) noexcept {
    std::uint64_t sum = 0;
    while (n > 0) {
        const std::int64_t run = std::min(it.run(), n);
        sum += sum_of(element_at(launch, base + it.offset), run);
        it.advance(run);
        n -= run;
    }
    return sum;
}

// Reduces elements [begin, end) of one result.
template <Op op, typename T>
[[gnu::noinline]] typename Reducer<op, T>::A reduce_range(const ReduceLaunch &launch, std::int64_t base,
                                                          std::int64_t begin, std::int64_t end) noexcept {
    using F = Reducer<op, T>;
    using A = typename F::A;
    constexpr ElementType kOwn = ElementTypeOf<T>::value;
    if constexpr (op == Op::any) return kinds_of_range(launch, base, begin, end);
    const bool is_own = launch.type == kOwn;
    NdIterator it(launch.reduced_shape, launch.reduced_strides, launch.num_reduced, begin);
    if constexpr (op == Op::argmax || op == Op::argmin) {
        const HostIndexFunction function = index_function_of(kOwn, op == Op::argmax);
        if (function != nullptr && (is_own || launch.reduced >= kLeastRun))
            return place_of<op, T>(launch, function, it, base, begin, end);
    }
    if constexpr (op == Op::sum && std::is_integral_v<T>)
        if (const IntegerSum sum_of = integer_sum_of(launch.type);
            sum_of != nullptr && it.stride() == 1 && it.run() >= kLeastIntegers)
            return static_cast<T>(sum_of_runs(launch, sum_of, it, base, end - begin));
    constexpr bool kJoinsElements = std::is_same_v<A, T>;
    const HostLoop loop = kJoinsElements ? joining_loop_along<op, T>(it.stride()) : HostLoop{};
    if constexpr (kJoinsElements && (std::is_integral_v<A> || op == Op::max || op == Op::min))
        if (loop.function != nullptr && is_own && it.run() >= kLeastLoop<T>)
            return joined_in_order(launch, loop, it, base, end - begin, F::identity());
    constexpr std::int64_t kMost = kJoinsElements ? kPackedBytes / sizeof(T) : kBlock;
    alignas(64) T elements[kMost];
    const std::int64_t length = kJoinsElements && loop.function == nullptr ? kLongBlock : kMost;
    constexpr bool kInAnyOrder = op != Op::argmax && op != Op::argmin;
    A waiting[kLevels];  // of 1, 2, 4, ... blocks, where `blocks` has a bit
    std::uint64_t blocks = 0;
    for (std::int64_t at = begin; at < end;) {
        const std::int64_t first = at;
        const T *block = elements;
        std::int64_t n = std::min(it.run(), end - at);
        A sum;
        if constexpr (kJoinsElements) {
            if (loop.function != nullptr && is_own && n >= kLeastLoop<T>) {
                n = std::min(n, kLoopBlock);
                block = reinterpret_cast<const T *>(element_at(launch, base + it.offset));
                sum = joined_by(loop, block, it.stride(), n);
                if (n == end - begin) return sum;
                it.advance(n);
                at += n;
                join_block<F>(sum, waiting, &blocks);
                continue;
            }
        }
        n = std::min(n, length);
        if (is_own && it.stride() == 1 && (n >= length / 2 || n == end - at)) {
            block = reinterpret_cast<const T *>(element_at(launch, base + it.offset));
            it.advance(n);
            at += n;
        } else {
            n = gather<kInAnyOrder>(launch, it, base, elements, std::min(length, end - at));
            at += n;
        }
        if constexpr (kJoinsElements)
            sum = loop.function != nullptr ? joined_by(loop, block, 1, n) : reduce_long_block<op>(block, n, first);
        else
            sum = reduce_block<op>(block, n, first);
        if (at - first == end - begin) return sum;
        join_block<F>(sum, waiting, &blocks);
    }
    A sum = F::identity();
    for (int level = 0; level < kLevels && blocks >> level != 0; ++level)
        if ((blocks >> level & 1U) != 0) sum = F::join(waiting[level], sum);
    return sum;
}

// Calls take(i, first) for results [begin, end), `first` being where the elements of result i begin.
template <typename Take>
void for_each_result(const ReduceLaunch &launch, std::int64_t begin, std::int64_t end, const Take &take) noexcept {
    NdIterator it(launch.kept_shape, launch.kept_strides, launch.num_kept, begin);
    const std::int64_t step = it.stride() * size_of(launch.type);
    for (std::int64_t i = begin; i < end;) {
        const std::int64_t stop = std::min(end, i + it.run());
        const char *first = element_at(launch, it.offset);
        it.advance(stop - i);
        take(i, first);
        while (++i < stop) take(i, first += step);
    }
}

// Whether the elements of a result follow each other in one run, all of which a function takes in a call.
inline bool has_runs(const ReduceLaunch &launch) noexcept {
    return launch.num_reduced == 1 && launch.reduced >= kLeastRun && launch.reduced <= kLoopBlock;
}

// Results [begin, end), each by one call. False where elements don't lie so, or there is no function for them.
inline bool find_places_of_runs(const ReduceLaunch &launch, std::int64_t begin, std::int64_t end) noexcept {
    const HostIndexFunction function = index_function_of(launch.type, launch.op == Op::argmax);
    if (!has_runs(launch) || function == nullptr || launch.reduced_strides[0] != 1) return false;
    auto *out = static_cast<std::int64_t *>(launch.out);
    for_each_result(launch, begin, end, [=, n = launch.reduced](std::int64_t i, const char *first) {
        std::intptr_t index = 0;
        function(const_cast<char *>(first), n, &index, nullptr);
        out[i] = index;
    });
    return true;
}

inline bool ask_truth_of_runs(const ReduceLaunch &launch, const Finish &given, std::int64_t begin,
                              std::int64_t end) noexcept {
    if (!has_runs(launch) || launch.reduced_strides[0] != 1) return false;
    using F = Reducer<Op::any, Bool>;
    using R = reduced_t<Op::any, Bool>;
    auto *out = static_cast<R *>(launch.out);
    const DecidingKind among = deciding_kind(launch.type, launch.op);
    for_each_result(launch, begin, end,
                    [=, finish = given, size = size_of(launch.type), asked = launch.op, n = launch.reduced](
                        std::int64_t i, const char *first) {
                        out[i] = F::result<R>(kinds_of_run(among, asked, first, size, n), finish);
                    });
    return true;
}

template <typename T>
bool sum_runs_of_integers(const ReduceLaunch &launch, const Finish &given, std::int64_t begin,
                          std::int64_t end) noexcept {
    const IntegerSum sum_of = integer_sum_of(launch.type);
    if (!has_runs(launch) || launch.reduced_strides[0] != 1 || sum_of == nullptr) return false;
    using R = reduced_t<Op::sum, T>;
    auto *out = static_cast<R *>(launch.out);
    for_each_result(launch, begin, end,
                    [=, finish = given, n = launch.reduced](std::int64_t i, const char *first) {
                        out[i] = Reducer<Op::sum, T>::template result<R>(static_cast<T>(sum_of(first, n)), finish);
                    });
    return true;
}

// Of elements of the type that results have.
inline bool join_runs(const ReduceLaunch &launch, const HostLoop &loop, std::int64_t begin,
                      std::int64_t end) noexcept {
    if (!has_runs(launch) || loop.function == nullptr) return false;
    const std::int64_t size = size_of(launch.type);
    const std::int64_t stride = launch.reduced_strides[0];
    auto *out = static_cast<char *>(launch.out);
    for_each_result(launch, begin, end,
                    [&loop, out, size, stride, n = launch.reduced](std::int64_t i, const char *first) {
                        char *const joined = out + i * size;
                        std::memcpy(joined, first, static_cast<std::size_t>(size));
                        join_run(loop, joined, first + stride * size, size, stride, n - 1);
                    });
    return true;
}

}  // namespace cukern::host
