// Reductions on the CPU.
//
// Idea: results are taken one by one (reduce_range.h), and those that lie beside each other by tiles
// (reduce_columns.h). They are shared out among the threads; of few long ones, and of long rows of them, pieces
// whose length follows from the shape, so that the number of threads changes nothing.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "host/costs.h"
#include "host/kernels.h"
#include "host/reduce_columns.h"
#include "host/reduce_range.h"
#include "host/thread_pool.h"

namespace cukern::host {
namespace {

constexpr std::int64_t kPiece = 1 << 16;
constexpr std::int64_t kPieceRows = 256;  // of rows of results beside each other
constexpr std::int64_t kMostPieces = 256;
constexpr std::int64_t kMostInRow = 1 << 15;  // of longer ones each thread has a wide part
constexpr std::int64_t kFewRows = 16;
constexpr std::int64_t kDecidingSize = 16;  // bytes of a part that may decide

// One operation on one element type, to what shares the work out. A part is what some elements of a result have
// come to.
struct Steps {
    Op op;  // as which the operation is reduced
    std::int64_t part_size;
    std::int64_t result_size;
    std::int64_t tile;     // results that a tile has at most
    bool parts_are_plain;  // those of all elements are results, unless there is something to divide by
    // Results [begin, end), one by one.
    void (*take_each)(const ReduceLaunch &launch, const Finish &finish, std::int64_t begin,
                      std::int64_t end) noexcept;
    // Elements [begin, end) of the result that begins at `base`, and of `m` results beside each other.
    void (*take_range)(const ReduceLaunch &launch, std::int64_t base, std::int64_t begin, std::int64_t end,
                       void *part) noexcept;
    void (*take_tile)(const ReduceLaunch &launch, std::int64_t base, std::int64_t m, std::int64_t begin,
                      std::int64_t end, void *parts) noexcept;
    // Joins the pieces of `count` results, which lie beside each other, in pairs into the first.
    void (*join_pieces)(void *parts, std::int64_t pieces, std::int64_t count) noexcept;
    void (*store)(const void *parts, std::int64_t n, const Finish &finish, void *out) noexcept;
    bool (*decides)(const void *part, Op asked) noexcept;  // null: no part makes later ones needless
};

template <Op op, typename T>
void take_range(const ReduceLaunch &launch, std::int64_t base, std::int64_t begin, std::int64_t end,
                void *part) noexcept {
    *static_cast<typename Reducer<op, T>::A *>(part) = reduce_range<op, T>(launch, base, begin, end);
}

template <typename F>
void join_pieces(void *all, std::int64_t pieces, std::int64_t count) noexcept {
    auto *const parts = static_cast<typename F::A *>(all);
    for (std::int64_t step = 1; step < pieces; step *= 2)
        for (std::int64_t j = 0; j + step < pieces; j += 2 * step)
            for (std::int64_t k = 0; k < count; ++k)
                parts[j * count + k] = F::join(parts[j * count + k], parts[(j + step) * count + k]);
}

// Choices that are the same for all results come first, so that loops vectorise.
template <Op op, typename T>
void store_results(const void *parts, std::int64_t n, const Finish &given, void *results) noexcept {
    using F = Reducer<op, T>;
    using R = reduced_t<op, T>;
    const Finish finish = given;  // which no store of a result changes
    const auto *const joined = static_cast<const typename F::A *>(parts);
    auto *const out = static_cast<R *>(results);
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

template <Op op, typename T>
void take_each(const ReduceLaunch &launch, const Finish &finish, std::int64_t begin, std::int64_t end) noexcept {
    const bool is_own = launch.type == ElementTypeOf<T>::value;
    auto *out = static_cast<reduced_t<op, T> *>(launch.out);
    if constexpr (op == Op::argmax || op == Op::argmin) {
        if (is_own && find_places_of_runs(launch, begin, end)) return;
    } else if constexpr (op == Op::any) {
        if (ask_truth_of_runs(launch, finish, begin, end)) return;
    } else if constexpr (op == Op::sum && std::is_integral_v<T>) {
        if (sum_runs_of_integers<T>(launch, finish, begin, end)) return;
    } else if constexpr (std::is_same_v<typename Reducer<op, T>::A, T>) {
        static_assert(std::is_same_v<reduced_t<op, T>, T>);
        const std::int64_t stride = launch.num_reduced == 1 ? launch.reduced_strides[0] : 0;
        if (is_own && join_runs(launch, joining_loop_along<op, T>(stride), begin, end)) {
            if (finish.divisor != 0) store_results<op, T>(out + begin, end - begin, finish, out + begin);
            return;
        }
    }
    NdIterator it(launch.kept_shape, launch.kept_strides, launch.num_kept, begin);
    for (std::int64_t i = begin; i < end; ++i, it.advance(1)) {
        const auto all = reduce_range<op, T>(launch, it.offset, 0, launch.reduced);
        out[i] = Reducer<op, T>::template result<reduced_t<op, T>>(all, finish);
    }
}

template <Op op, typename T>
bool decides_by(const void *part, Op asked) noexcept {
    return decides<op, T>(*static_cast<const typename Reducer<op, T>::A *>(part), asked);
}

template <Op op, typename T>
constexpr Steps steps_of() noexcept {
    using F = Reducer<op, T>;
    using R = reduced_t<op, T>;
    static_assert(kTile<op, T> * sizeof(typename F::A) <= kTileBytes);
    constexpr bool kMayDecide = op == Op::any || finds_truth<op, T>;
    static_assert(!kMayDecide || sizeof(typename F::A) <= kDecidingSize);
    Steps steps{};
    steps.op = op;
    steps.part_size = sizeof(typename F::A);
    steps.result_size = sizeof(R);
    steps.tile = kTile<op, T>;
    steps.parts_are_plain =
        std::is_same_v<typename F::A, R> && (op == Op::sum || op == Op::prod || op == Op::max || op == Op::min);
    steps.take_each = take_each<op, T>;
    steps.take_range = take_range<op, T>;
    steps.take_tile = take_tile<op, T>;
    steps.join_pieces = join_pieces<F>;
    steps.store = store_results<op, T>;
    if constexpr (kMayDecide) steps.decides = decides_by<op, T>;
    return steps;
}

template <Op op, typename T>
constexpr Steps kSteps = steps_of<op, T>();

// Results [begin, end), which lie beside each other in the input.
void reduce_columns(const Steps &steps, const ReduceLaunch &launch, const Finish &finish, std::int64_t begin,
                    std::int64_t end) noexcept {
    const bool are_plain = steps.parts_are_plain && finish.divisor == 0;
    auto *out = static_cast<char *>(launch.out) + begin * steps.result_size;
    alignas(kLine) char parts[kTileBytes];
    NdIterator it(launch.kept_shape, launch.kept_strides, launch.num_kept, begin);
    for (std::int64_t i = begin; i < end;) {
        const std::int64_t run = std::min(it.run(), end - i);
        const std::int64_t tiles = (run - 1) / steps.tile + 1;
        const std::int64_t m = (run - 1) / tiles + 1;  // tiles that are alike
        steps.take_tile(launch, it.offset, m, 0, launch.reduced, are_plain ? out : parts);
        if (!are_plain) steps.store(parts, m, finish, out);
        it.advance(m);
        i += m;
        out += m * steps.result_size;
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

// The first piece that makes later ones needless; the number of pieces while none does.
class DecidingPiece {
public:
    explicit DecidingPiece(std::int64_t pieces) noexcept : piece_(pieces) {}

    std::int64_t get() const noexcept { return piece_.load(std::memory_order_relaxed); }
    void lower_to(std::int64_t piece) noexcept {
        std::int64_t earliest = get();
        while (piece < earliest && !piece_.compare_exchange_weak(earliest, piece)) continue;
    }

private:
    std::atomic<std::int64_t> piece_;
};

// Whether results from all over are decided by so many elements.
bool are_decided_by(const Steps &steps, const ReduceLaunch &launch, std::int64_t elements) noexcept {
    constexpr std::int64_t kAsked = 16;
    const std::int64_t step = (launch.kept - 1) / kAsked + 1;
    for (std::int64_t i = 0; i < launch.kept; i += step) {
        const NdIterator it(launch.kept_shape, launch.kept_strides, launch.num_kept, i);
        alignas(16) char part[kDecidingSize];
        steps.take_range(launch, it.offset, 0, elements, part);
        if (!steps.decides(part, launch.op)) return false;
    }
    return true;
}

// How many elements of a result are looked at, by what some results tell: threads that are woken for rows which
// end where they begin cost more than they save.
std::int64_t likely_looked_at(const Steps &steps, const ReduceLaunch &launch) noexcept {
    if (steps.decides != nullptr)
        for (const std::int64_t few : {kFewTruths, kFirstTruths})
            if (few < launch.reduced && are_decided_by(steps, launch, few)) return few;
    return launch.reduced;
}

// One result, its pieces by several threads, into the first of `parts`. Returns how many pieces count.
std::int64_t reduce_pieces(const Steps &steps, const ReduceLaunch &launch, const Pieces &pieces, std::int64_t base,
                           std::int64_t grain, char *parts) noexcept {
    if (steps.decides != nullptr) {  // the first elements may decide, before threads are woken
        steps.take_range(launch, base, 0, std::min(launch.reduced, kFirstTruths), parts);
        if (steps.decides(parts, launch.op)) return 1;
    }
    DecidingPiece deciding(pieces.count);
    parallel_for(pieces.count, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t piece = begin; piece < end && piece <= deciding.get(); ++piece) {
            const std::int64_t start = piece * pieces.length;
            const std::int64_t stop = std::min(launch.reduced, start + pieces.length);
            char *const part = parts + piece * steps.part_size;
            steps.take_range(launch, base, start, stop, part);
            if (steps.decides != nullptr && steps.decides(part, launch.op)) deciding.lower_to(piece);
        }
    });
    return std::min(pieces.count, deciding.get() + 1);
}

// A row of results that lie beside each other, by tiles of pieces of their elements, into the first row of
// `parts`.
void reduce_pieces_of_row(const Steps &steps, const ReduceLaunch &launch, const Pieces &pieces, std::int64_t base,
                          std::int64_t row, std::int64_t worth, char *parts) noexcept {
    const std::int64_t tiles = (row - 1) / steps.tile + 1;
    const std::int64_t tile = (row - 1) / tiles + 1;
    const std::int64_t grain = std::max<std::int64_t>(1, worth / (pieces.length * tile));
    parallel_for(pieces.count * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t task = begin; task < end; ++task) {
            const std::int64_t piece = task / tiles;
            const std::int64_t first = task % tiles * tile;
            const std::int64_t m = std::min(tile, row - first);
            const std::int64_t start = piece * pieces.length;
            const std::int64_t stop = std::min(launch.reduced, start + pieces.length);
            // Not in `parts`, whose lines of cache other threads write to.
            alignas(kLine) char own[kTileBytes];
            steps.take_tile(launch, base + first * column_step(launch), m, start, stop, own);
            std::memcpy(parts + (piece * row + first) * steps.part_size, own,
                        static_cast<std::size_t>(m * steps.part_size));
        }
    });
}

void reduce_by(const Steps &steps, const ReduceLaunch &launch) noexcept {
    const Finish finish = finish_of(launch.op, launch.reduced, launch.correction);
    const bool in_columns = launch.reduced > 0 && lies_in_columns(launch);
    const std::int64_t row = in_columns ? launch.kept_shape[launch.num_kept - 1] : 1;  // results beside each other
    const Pieces pieces = pieces_of(launch, row);
    const double elements = static_cast<double>(launch.kept) * static_cast<double>(launch.reduced);
    const std::int64_t worth =
        host_grain(steps.op, launch.type, elements, elements * size_of(launch.type));  // elements
    const auto bytes = static_cast<std::size_t>(pieces.count * row * steps.part_size);
    const std::unique_ptr<char[]> parts(pieces.are_used ? new (std::nothrow) char[bytes] : nullptr);
    if (parts == nullptr) {
        const bool may_share = elements > static_cast<double>(worth);
        const std::int64_t looked_at = in_columns || !may_share ? launch.reduced : likely_looked_at(steps, launch);
        // The other results may tell something else: a thread takes so much at most.
        constexpr std::int64_t kMostUntold = 32;
        const std::int64_t rows = std::min(worth / std::max<std::int64_t>(1, looked_at),
                                           kMostUntold * worth / std::max<std::int64_t>(1, launch.reduced));
        const std::int64_t grain = std::max<std::int64_t>(in_columns ? kNarrow : 1, rows);
        parallel_for(launch.kept, grain, [&](std::int64_t begin, std::int64_t end) {
            if (in_columns) return reduce_columns(steps, launch, finish, begin, end);
            steps.take_each(launch, finish, begin, end);
        });
        return;
    }
    auto *out = static_cast<char *>(launch.out);
    for (std::int64_t i = 0; i < launch.kept; i += row) {
        const NdIterator it(launch.kept_shape, launch.kept_strides, launch.num_kept, i);
        std::int64_t count = pieces.count;
        if (in_columns)
            reduce_pieces_of_row(steps, launch, pieces, it.offset, row, worth, parts.get());
        else
            count = reduce_pieces(steps, launch, pieces, it.offset,
                                  std::max<std::int64_t>(1, worth / pieces.length), parts.get());
        steps.join_pieces(parts.get(), count, row);
        steps.store(parts.get(), row, finish, out + i * steps.result_size);
    }
}

// The type by whose code one is reduced: sums and products of uint64 have the bits of those of int64. What is
// converted becomes uint64 all the same.
template <Op op, typename T>
using as_signed =
    std::conditional_t<(op == Op::sum || op == Op::prod) && std::is_same_v<T, std::uint64_t>, std::int64_t, T>;

template <Op op>
void reduce_op(const ReduceLaunch &launch) noexcept {
    constexpr auto kExists = [](ElementType type) { return reduces_in(op, type); };
    switch (launch.compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id:                                                 \
        if constexpr (is_made(ElementType::id, kExists))                  \
            return reduce_by(kSteps<op, as_signed<op, ctype>>, launch);   \
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

// Unsigned integers as signed ones, which as_signed reduces.
ReduceLaunch in_signed(const ReduceLaunch &launch) noexcept {
    ReduceLaunch own = launch;
    if (own.compute == ElementType::uint64 && own.type == ElementType::uint64) own.type = ElementType::int64;
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
        case Op::sum: return reduce_op<Op::sum>(in_signed(launch));
        case Op::prod: return reduce_op<Op::prod>(in_signed(launch));
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
