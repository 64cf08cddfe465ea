// Reductions on the CPU.
//
// Idea: blocks of kBlock elements, gathered where they are not packed, are reduced by eight running results, and
// joined in pairs as a binary counter carries: sums are then as accurate as NumPy's pairwise ones, whatever the
// strides. Results that lie beside each other are taken by tiles (reduce_columns.h). Results are shared out among
// the threads; of few long ones, and of long rows of them, pieces whose length follows from the shape, so that the
// number of threads changes nothing.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "host/costs.h"
#include "host/kernels.h"
#include "host/integer_sums.h"
#include "host/reduce_columns.h"
#include "host/reduce_truths.h"
#include "host/thread_pool.h"

namespace cukern::host {
namespace {

constexpr int kLevels = 64;
constexpr std::int64_t kLeastRun = 8;        // elements of a result, all of which a call takes
constexpr std::int64_t kLeastIntegers = 32;  // integers in a row that are added up where they lie
constexpr std::int64_t kPiece = 1 << 16;
constexpr std::int64_t kPieceRows = 256;  // of rows of results beside each other
constexpr std::int64_t kMostPieces = 256;
constexpr std::int64_t kMostInRow = 1 << 15;  // of longer ones each thread has a wide part
constexpr std::int64_t kFewRows = 16;

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
std::uint64_t sum_of_runs(const ReduceLaunch &launch, IntegerSum sum_of, NdIterator &it, std::int64_t base,
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

// Results [begin, end) of elements that follow each other in one run, all of it by one function, another library's
// but for truths. False where there is none.
template <Op op, typename T>
bool reduce_runs(const ReduceLaunch &launch, std::int64_t begin, std::int64_t end) noexcept {
    constexpr ElementType kOwn = ElementTypeOf<T>::value;
    const std::int64_t n = launch.reduced;
    if (launch.num_reduced != 1 || n < kLeastRun || n > kLoopBlock) return false;
    constexpr bool kTakesOthers = op == Op::any || (op == Op::sum && std::is_integral_v<T>);
    if (!kTakesOthers && launch.type != kOwn) return false;
    const std::int64_t stride = launch.reduced_strides[0];
    [[maybe_unused]] NdIterator it(launch.kept_shape, launch.kept_strides, launch.num_kept, begin);
    [[maybe_unused]] const auto elements = [&] {
        const auto *first = reinterpret_cast<const T *>(element_at(launch, it.offset));
        it.advance(1);
        return first;
    };
    if constexpr (op == Op::argmax || op == Op::argmin) {
        const HostIndexFunction function = index_function_of(kOwn, op == Op::argmax);
        if (function == nullptr || stride != 1) return false;
        for (std::int64_t i = begin; i < end; ++i) {
            std::intptr_t index = 0;
            function(const_cast<T *>(elements()), n, &index, nullptr);
            static_cast<std::int64_t *>(launch.out)[i] = index;
        }
        return true;
    } else if constexpr (op == Op::any) {
        if (stride != 1) return false;
        const DecidingKind among = deciding_kind(launch.type, launch.op);
        const int size = size_of(launch.type);
        const Finish finish = finish_of(launch.op, n, launch.correction);
        for (std::int64_t i = begin; i < end; ++i, it.advance(1)) {
            const auto kinds = kinds_of_run(among, launch.op, element_at(launch, it.offset), size, n);
            static_cast<Bool *>(launch.out)[i] = Reducer<op, T>::template result<Bool>(kinds, finish);
        }
        return true;
    } else if constexpr (op == Op::sum && std::is_integral_v<T>) {
        const IntegerSum sum_of = integer_sum_of(launch.type);
        if (stride != 1 || sum_of == nullptr) return false;
        const Finish finish = finish_of(launch.op, n, launch.correction);
        for (std::int64_t i = begin; i < end; ++i, it.advance(1))
            static_cast<reduced_t<op, T> *>(launch.out)[i] = Reducer<op, T>::template result<reduced_t<op, T>>(
                static_cast<T>(sum_of(element_at(launch, it.offset), n)), finish);
        return true;
    } else if constexpr (std::is_same_v<typename Reducer<op, T>::A, T>) {
        using R = reduced_t<op, T>;
        const HostLoop loop = joining_loop_along<op, T>(stride);
        if (loop.function == nullptr) return false;
        const Finish finish = finish_of(launch.op, n, launch.correction);
        for (std::int64_t i = begin; i < end; ++i)
            static_cast<R *>(launch.out)[i] =
                Reducer<op, T>::template result<R>(joined_by(loop, elements(), stride, n), finish);
        return true;
    } else {
        return false;
    }
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

// Joins the pieces of `count` results, which lie beside each other, in pairs into the first.
template <typename F>
void join_pieces(typename F::A *parts, std::int64_t pieces, std::int64_t count) noexcept {
    for (std::int64_t step = 1; step < pieces; step *= 2)
        for (std::int64_t j = 0; j + step < pieces; j += 2 * step)
            for (std::int64_t k = 0; k < count; ++k)
                parts[j * count + k] = F::join(parts[j * count + k], parts[(j + step) * count + k]);
}

// What joined values come to. Choices that are the same for all of them come first, so that loops vectorise.
template <Op op, typename T>
void store_results(const typename Reducer<op, T>::A *joined, std::int64_t n, const Finish &given,
                   reduced_t<op, T> *out) noexcept {
    using F = Reducer<op, T>;
    using R = reduced_t<op, T>;
    const Finish finish = given;  // which no store of a result changes
    if constexpr (op == Op::any) {
        const auto kind = finish.all ? F::kZero : F::kNonzero;
        const auto wanted = static_cast<typename F::A>(finish.all ? 0 : kind);
        for (std::int64_t k = 0; k < n; ++k) out[k] = from_arithmetic<R>((joined[k] & kind) == wanted);
    } else if (op == Op::sum && finish.divisor == 0) {
        for (std::int64_t k = 0; k < n; ++k) out[k] = F::template result<R>(joined[k], Finish{});
    } else {
        for (std::int64_t k = 0; k < n; ++k) out[k] = F::template result<R>(joined[k], finish);
    }
}

// Results [begin, end), which lie beside each other in the input.
template <Op op, typename T>
[[gnu::noinline]] void reduce_columns(const ReduceLaunch &launch, const Finish &finish, std::int64_t begin,
                                      std::int64_t end) noexcept {
    using F = Reducer<op, T>;
    using R = reduced_t<op, T>;
    auto *out = static_cast<R *>(launch.out);
    constexpr bool kMayBePlain =
        std::is_same_v<typename F::A, R> && (op == Op::sum || op == Op::prod || op == Op::max || op == Op::min);
    const bool are_plain = kMayBePlain && finish.divisor == 0;  // results: joined values as they are
    typename F::A sums[kTile<op, T>];
    NdIterator it(launch.kept_shape, launch.kept_strides, launch.num_kept, begin);
    for (std::int64_t i = begin; i < end;) {
        const std::int64_t run = std::min(it.run(), end - i);
        const std::int64_t tiles = (run - 1) / kTile<op, T> + 1;
        const std::int64_t m = (run - 1) / tiles + 1;  // tiles that are alike
        typename F::A *joined = sums;
        if constexpr (kMayBePlain)
            if (are_plain) joined = out + i;
        reduce_tile<op, T>(launch, it.offset, m, 0, launch.reduced, joined);
        if (!are_plain) store_results<op, T>(sums, m, finish, out + i);
        it.advance(m);
        i += m;
    }
}

constexpr std::int64_t kFirstTruths = 4096;

// How the elements of a result are cut into pieces, which follows from the shape alone.
struct Pieces {
    std::int64_t length = kPiece;
    std::int64_t count = 1;
    bool are_used = false;
};

// Rows of results are read as they lie, a piece of them a task: a part of each row would be a stride away from the
// next.
Pieces pieces_of(const ReduceLaunch &launch, std::int64_t row) noexcept {
    Pieces pieces;
    const bool by_rows = row >= kNarrow;
    if (by_rows) {
        pieces.length = kPieceRows;
        while ((launch.reduced - 1) / pieces.length >= kMostPieces) pieces.length *= 2;
    }
    pieces.count = (launch.reduced - 1) / pieces.length + 1;
    pieces.are_used =
        pieces.count > 1 && (by_rows ? row <= kMostInRow && launch.kept < row * kFewRows : launch.kept < kNarrow);
    return pieces;
}

template <Op op, typename T>
void reduce_as(const ReduceLaunch &launch) noexcept {
    using F = Reducer<op, T>;
    using A = typename F::A;
    using R = reduced_t<op, T>;
    auto *out = static_cast<R *>(launch.out);
    const Finish finish = finish_of(launch.op, launch.reduced, launch.correction);
    const bool in_columns = launch.reduced > 0 && lies_in_columns(launch);
    const std::int64_t row = in_columns ? launch.kept_shape[launch.num_kept - 1] : 1;  // results beside each other
    Pieces pieces = pieces_of(launch, row);
    const double elements = static_cast<double>(launch.kept) * static_cast<double>(launch.reduced);
    const std::int64_t worth = host_grain(op, launch.type, elements, elements * size_of(launch.type));  // elements
    const std::unique_ptr<A[]> parts(pieces.are_used ? new (std::nothrow) A[pieces.count * row] : nullptr);
    if (parts == nullptr) {
        const std::int64_t grain =
            std::max<std::int64_t>(in_columns ? kNarrow : 1, worth / std::max<std::int64_t>(1, launch.reduced));
        parallel_for(launch.kept, grain, [&](std::int64_t begin, std::int64_t end) {
            if (in_columns) return reduce_columns<op, T>(launch, finish, begin, end);
            if (reduce_runs<op, T>(launch, begin, end)) return;
            NdIterator it(launch.kept_shape, launch.kept_strides, launch.num_kept, begin);
            for (std::int64_t i = begin; i < end; ++i, it.advance(1)) {
                const A all = reduce_range<op, T>(launch, it.offset, 0, launch.reduced);
                out[i] = F::template result<R>(all, finish);
            }
        });
        return;
    }
    const std::int64_t tiles = (row - 1) / kTile<op, T> + 1;
    const std::int64_t tile = (row - 1) / tiles + 1;
    for (std::int64_t i = 0; i < launch.kept; i += row) {
        const NdIterator it(launch.kept_shape, launch.kept_strides, launch.num_kept, i);
        if constexpr (op == Op::any || finds_truth<op, T>) {
            if (!in_columns) {  // the first elements may decide, before other threads are woken
                parts[0] = reduce_range<op, T>(launch, it.offset, 0, std::min(launch.reduced, kFirstTruths));
                if (decides<op, T>(parts[0], launch.op)) {
                    out[i] = F::template result<R>(parts[0], finish);
                    continue;
                }
            }
        }
        const std::int64_t grain = std::max<std::int64_t>(1, worth / (pieces.length * tile));
        std::atomic<std::int64_t> decided{pieces.count};  // a piece that makes later ones needless
        parallel_for(pieces.count * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t task = begin; task < end; ++task) {
                const std::int64_t piece = task / tiles;
                const std::int64_t first = task % tiles * tile;
                const std::int64_t start = piece * pieces.length;
                const std::int64_t stop = std::min(launch.reduced, start + pieces.length);
                if (!in_columns) {
                    if (piece > decided.load(std::memory_order_relaxed)) return;
                    parts[piece] = reduce_range<op, T>(launch, it.offset, start, stop);
                    if (decides<op, T>(parts[piece], launch.op)) {
                        std::int64_t earliest = decided.load(std::memory_order_relaxed);
                        while (piece < earliest && !decided.compare_exchange_weak(earliest, piece)) continue;
                    }
                    continue;
                }
                const std::int64_t m = std::min(tile, row - first);
                A sums[kTile<op, T>];  // not in `parts`, whose lines of cache other threads write to
                reduce_tile<op, T>(launch, it.offset + first * column_step(launch), m, start, stop, sums);
                std::copy_n(sums, m, &parts[piece * row + first]);
            }
        });
        join_pieces<F>(parts.get(), std::min(pieces.count, decided.load() + 1), row);
        store_results<op, T>(parts.get(), row, finish, out + i);
    }
}

template <Op op>
void reduce_op(const ReduceLaunch &launch) noexcept {
    constexpr auto kExists = [](ElementType type) { return reduces_in(op, type); };
    switch (launch.compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)                     \
    case ElementType::id:                                                                     \
        if constexpr (is_made(ElementType::id, kExists)) return reduce_as<op, ctype>(launch); \
        break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
}

// A mean of bool or of short integers has their exact sum, as whose quotient the reducer gives a float64.
ReduceLaunch in_integers(const ReduceLaunch &launch) noexcept {
    ReduceLaunch own = launch;
    const bool is_exact = kind_of(launch.type) == 'b' || (is_integer(launch.type) && size_of(launch.type) < 8);
    if (launch.compute == ElementType::float64 && is_exact) own.compute = ElementType::int64;
    return own;
}

// The largest of bools tells whether any is true, and the least whether all are: these stop where that is decided.
ReduceLaunch in_truths(const ReduceLaunch &launch) noexcept {
    ReduceLaunch own = launch;
    own.op = launch.op == Op::max ? Op::any : Op::all;
    return own;
}

// Short runs of elements cost more to find than to reduce. Elements of a longer dimension are taken first instead,
// if all elements of a result lie within the cache. No place is asked for, and sums are as accurate in either
// order.
constexpr std::int64_t kShortRun = 16;
constexpr std::int64_t kCacheBytes = 1 << 20;

int longer_dimension(const ReduceLaunch &launch) noexcept {
    const int last = launch.num_reduced - 1;
    if (last < 1 || launch.op == Op::argmax || launch.op == Op::argmin || launch.reduced_shape[last] >= kShortRun)
        return -1;
    int longest = last;
    std::int64_t extent = 1;  // in elements
    for (int d = last; d >= 0; --d) {
        extent += (launch.reduced_shape[d] - 1) * std::abs(launch.reduced_strides[d]);
        if (launch.reduced_shape[d] > launch.reduced_shape[longest]) longest = d;
    }
    return longest != last && extent * size_of(launch.type) <= kCacheBytes ? longest : -1;
}

// Operations that differ in what becomes of the joined value are reduced by one of them.
void run_in_order(const ReduceLaunch &launch) noexcept {
    switch (launch.op) {
        case Op::mean: return reduce_op<Op::sum>(in_integers(launch));
        case Op::sum: return reduce_op<Op::sum>(launch);
        case Op::prod: return reduce_op<Op::prod>(launch);
        case Op::var:
        case Op::std: return reduce_op<Op::var>(launch);
        case Op::max:
        case Op::min:
            if (launch.compute == ElementType::bool_) return reduce_op<Op::any>(in_truths(launch));
            return launch.op == Op::max ? reduce_op<Op::max>(launch) : reduce_op<Op::min>(launch);
        case Op::any:
        case Op::all: return reduce_op<Op::any>(launch);
        case Op::argmax: return reduce_op<Op::argmax>(launch);
        case Op::argmin: return reduce_op<Op::argmin>(launch);
        default: break;
    }
}

}  // namespace

void run_reduction(const ReduceLaunch &launch) noexcept {
    const int longest = longer_dimension(launch);
    if (longest < 0) return run_in_order(launch);
    ReduceLaunch reordered = launch;
    const int last = launch.num_reduced - 1;
    std::swap(reordered.reduced_shape[longest], reordered.reduced_shape[last]);
    std::swap(reordered.reduced_strides[longest], reordered.reduced_strides[last]);
    run_in_order(reordered);
}

}  // namespace cukern::host
