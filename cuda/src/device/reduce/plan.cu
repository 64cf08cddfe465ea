#include "device/reduce/plan.h"

#include <algorithm>
#include <cstdlib>

#include "plan/rounding.h"

namespace cukern::cuda {
namespace {

// How many blocks share a result, so that there are enough of them and each has work; as much as scratch memory
// holds.
int parts_for(const ReduceLaunch &launch, const ReduceTraits &traits, std::int64_t wanted, std::int64_t blocks,
              std::int64_t most) noexcept {
    if (launch.scratch == nullptr) return 1;
    const std::int64_t fit = launch.scratch_bytes / traits.partial_bytes / launch.kept;
    return static_cast<int>(std::max<std::int64_t>(1, std::min({wanted / blocks, most, fit})));
}

// The least segments of a thread, of each of which it has so many loads.
std::int64_t segments_of(std::int64_t loads) noexcept { return divided_up(kInFlight, loads); }

// Whether all of these steps are of whole vectors; without `dimension`, if that is one.
bool are_whole(const std::int64_t *strides, int ndim, int dimension, int element_bytes) noexcept {
    for (int d = 0; d < ndim; ++d)
        if (d != dimension && strides[d] * element_bytes % 16 != 0) return false;
    return true;
}

bool begins_at_vector(const ReduceLaunch &launch) noexcept {
    return reinterpret_cast<std::uintptr_t>(launch.in) % 16 == 0;
}

// The dimension of the least steps, of those of at least so many elements; -1: none.
int fastest_of(const std::int64_t *shape, const std::int64_t *strides, int ndim, std::int64_t least = 2) noexcept {
    int found = -1;
    for (int d = ndim - 1; d >= 0; --d)
        if (shape[d] >= least && strides[d] != 0 && (found < 0 || std::abs(strides[d]) < std::abs(strides[found])))
            found = d;
    return found;
}

int longest_of(const std::int64_t *shape, int ndim) noexcept {
    return static_cast<int>(std::max_element(shape, shape + ndim) - shape);
}

// How threads lie over the dimensions.
struct ColumnsLayout {
    int across;       // the kept dimension that columns lie along; -1: there is one column
    int down;         // the reduced one that a thread goes down
    bool along_down;  // whether neighbouring threads lie along `down`, whose steps are less than those of columns
};

ColumnsLayout lay_columns(const ReduceLaunch &launch, bool index) noexcept {
    ColumnsLayout layout;
    const int last = launch.num_reduced - 1;
    layout.across = fastest_of(launch.kept_shape, launch.kept_strides, launch.num_kept);
    const auto fastest_from = [&](std::int64_t least) {
        return fastest_of(launch.reduced_shape, launch.reduced_strides, launch.num_reduced, least);
    };
    int fastest = index ? -1 : fastest_from(kLeastRows);  // which has elements for several threads
    if (fastest < 0) fastest = std::max(0, fastest_from(2));
    layout.along_down = layout.across < 0 ||
                        std::abs(launch.reduced_strides[fastest]) < std::abs(launch.kept_strides[layout.across]);
    layout.down = longest_of(launch.reduced_shape, launch.num_reduced);
    // Of indices the first or the last one, to which the others' index is added: the last one's lie together, as
    // short as it may be.
    if (layout.along_down && (launch.reduced_shape[fastest] >= kLeastRows || (index && fastest == last)))
        layout.down = fastest;
    if (index && layout.down > 0) layout.down = last;
    layout.along_down = layout.along_down && layout.down == fastest;
    return layout;
}

// The kept dimensions in the order in which columns are counted, from the fastest on: the one that they lie along,
// those that continue it in memory, though not in `out` or backwards, and the others as they are in `out`.
struct ColumnsOrder {
    int dimensions[kMaxReduceDims];
    std::int64_t beside;  // columns that lie side by side
};

ColumnsOrder order_columns(const ReduceLaunch &launch, int across) noexcept {
    ColumnsOrder order{{}, 1};
    bool is_ordered[kMaxReduceDims] = {};
    int count = 0;
    const auto add = [&](int d) {
        is_ordered[d] = true;
        order.dimensions[count++] = d;
    };
    for (int next = across; next >= 0;) {
        add(next);
        order.beside *= launch.kept_shape[next];
        next = -1;
        for (int d = 0; d < launch.num_kept; ++d)
            if (!is_ordered[d] && launch.kept_shape[d] > 1 &&
                std::abs(launch.kept_strides[d]) == order.beside * std::abs(launch.kept_strides[across]))
                next = d;
    }
    for (int d = launch.num_kept - 1; d >= 0; --d)
        if (!is_ordered[d]) add(d);
    return order;
}

// The kept dimensions in this order, of vectors of `size` columns. Returns the step of columns in `out`.
std::int64_t add_kept(const ReduceLaunch &launch, int across, const ColumnsOrder &order, int size,
                      PairedDimensions *kept) noexcept {
    std::int64_t place = 1;  // in `out`, of the dimensions from the fastest on
    std::int64_t places[kMaxReduceDims];
    for (int d = launch.num_kept - 1; d >= 0; --d) {
        places[d] = place;
        place *= launch.kept_shape[d];
    }
    for (int i = launch.num_kept - 1; i >= 0; --i) {
        const int d = order.dimensions[i];
        const int by = d == across ? size : 1;
        kept->add(launch.kept_shape[d] / by, launch.kept_strides[d] * by, places[d] * by);
    }
    return across < 0 ? 1 : places[across];
}

// Whether columns are packed, and all rows begin at a vector and end with one.
bool are_vectors(const ReduceLaunch &launch, const ReduceTraits &traits, int across) noexcept {
    return across >= 0 && launch.kept_strides[across] == 1 && begins_at_vector(launch) &&
           launch.kept_shape[across] * traits.element_bytes % 16 == 0 &&
           are_whole(launch.kept_strides, launch.num_kept, across, traits.element_bytes) &&
           are_whole(launch.reduced_strides, launch.num_reduced, -1, traits.element_bytes);
}

// Whether single columns are faster than vectors of them: of little work, and where vectors leave multiprocessors
// idle, unless rows are shared, and single columns do not.
bool are_few_vectors(const ReduceLaunch &launch, const ReduceTraits &traits, int down) noexcept {
    const std::int64_t elements = launch.kept * launch.reduced;
    const int height_bits = tile_height_bits(launch.reduced_shape[down], 16);
    const std::int64_t blocks = (launch.kept << height_bits) / kThreads;  // of single columns
    return elements < kLittleWork || (elements < kMediumWork && blocks / traits.vector < kMultiprocessors / 2 &&
                                      blocks >= kMultiprocessors / 4);
}

// How many rows a thread takes at least where joins are long, of `rows` for each: fewer where that leaves
// multiprocessors idle.
std::int64_t heavy_rows(std::int64_t blocks, std::int64_t rows) noexcept {
    std::int64_t least = kHeavyRows;
    while (least > kVectorLoads && blocks * (rows / least) < kMultiprocessors / 2) least /= 2;
    return least;
}

}  // namespace

ReduceGrid plan_rows(const ReduceLaunch &launch, const ReduceTraits &traits, RowsPlan *plan) noexcept {
    RowsPlan &p = *plan;
    ReduceGrid grid{};
    const int last = launch.num_reduced - 1;
    for (int d = 0; d < launch.num_kept; ++d) p.kept.add(launch.kept_shape[d], launch.kept_strides[d]);
    for (int d = 0; d < last; ++d) p.segments.add(launch.reduced_shape[d], launch.reduced_strides[d]);
    p.num_segments = static_cast<int>(launch.reduced / launch.reduced_shape[last]);
    p.rows = static_cast<unsigned>(launch.kept);
    p.n = static_cast<int>(launch.reduced_shape[last]);
    const bool aligned = begins_at_vector(launch) &&
                         are_whole(launch.kept_strides, launch.num_kept, -1, traits.element_bytes) &&
                         are_whole(launch.reduced_strides, last, -1, traits.element_bytes);
    // A row that is not aligned touches one vector more.
    const std::int64_t vectors = divided_up(p.n, traits.vector) + (aligned ? 0 : 1);
    grid.parts = 1;
    const bool has_short_rows = vectors <= 32 && p.rows > 1 && p.num_segments == 1;
    if (has_short_rows) {
        p.groups.bits = bits_from(vectors);
        const std::int64_t blocks = divided_up(launch.kept, (kThreads >> p.groups.bits) * kInFlight);
        if (blocks >= kMultiprocessors) {
            grid.is_short = true;  // whose kernel shares nothing
            grid.blocks = static_cast<unsigned>(blocks);
            return grid;
        }
    }
    const int vectors_of_thread = has_short_rows ? kShortRowVectors : row_vectors(traits.index);
    p.groups.bits = std::clamp(bits_from(divided_up(vectors, vectors_of_thread)), kLeastRowBits, kThreadBits);
    // Few rows: wider groups, as long as each thread has its loads in flight, and a block of its own for a row if
    // it has twice as many.
    while (p.groups.bits < kThreadBits && launch.kept << p.groups.bits < kRowBlocks * kThreads &&
           vectors >> p.groups.bits > (p.groups.bits + 1 < kThreadBits ? 1 : 2) * kInFlight)
        ++p.groups.bits;
    const std::int64_t blocks = divided_up(launch.kept, kThreads >> p.groups.bits);
    // Of a segment: with all loads that threads have, or where that leaves multiprocessors idle, with fewer.
    const std::int64_t most_loads = row_loads(traits.element_bytes, traits.index, traits.variance, true);
    const int least_loads = p.groups.bits == kThreadBits ? least_row_loads(traits.element_bytes) : kInFlight;
    const std::int64_t shares = std::max(
        vectors / (kThreads * most_loads),
        std::min(vectors / (kThreads * least_loads), std::int64_t{kMultiprocessors} / (blocks * p.num_segments)));
    if (p.num_segments == 1) {
        grid.parts = parts_for(launch, traits, kRowBlocks, blocks, shares);
        grid.split = grid.parts > 1;
        p.share = grid.parts;
    } else if (shares > 0 && launch.scratch != nullptr && blocks * p.num_segments <= kRowBlocks) {
        p.share = parts_for(launch, traits, kRowBlocks, blocks * p.num_segments, shares);
        grid.parts = p.share * p.num_segments;
        grid.split = true;
    } else {
        grid.parts = parts_for(launch, traits, kRowBlocks, blocks,
                               p.num_segments / segments_of(std::max(std::int64_t{1}, vectors >> p.groups.bits)));
        p.share = static_cast<int>(divided_up(p.num_segments, grid.parts));
    }
    // A share at once, if threads have so many loads.
    if (grid.split)
        p.loads = static_cast<int>(std::min(divided_up(vectors, std::int64_t{kThreads} * p.share), most_loads));
    p.pieces = Divider::make(static_cast<std::uint32_t>(grid.parts));
    p.parts = Divider::make(static_cast<std::uint32_t>(grid.split ? p.share : 1));
    // What threads add to an index beyond the end stays below what ReduceLimits leaves.
    static_assert(kRowBlocks * kThreads * row_loads(8, false, false, true) < 1 << 22);
    grid.blocks = static_cast<unsigned>(blocks * grid.parts);
    return grid;
}

ReduceGrid plan_columns(const ReduceLaunch &launch, const ReduceTraits &traits, ColumnsPlan *plan) noexcept {
    ColumnsPlan &p = *plan;
    ReduceGrid grid{};
    const ColumnsLayout layout = lay_columns(launch, traits.index);
    const ColumnsOrder order = order_columns(launch, layout.across);
    // Of single columns alone may loads come in another order than their indices, as those of several segments do.
    const bool in_order = !traits.index || launch.num_reduced == 1;
    grid.size = 1;
    if (in_order && are_vectors(launch, traits, layout.across) && !are_few_vectors(launch, traits, layout.down))
        grid.size = traits.vector;
    const int size = grid.size;
    grid.is_short = size == 1 && launch.reduced <= short_column(traits.element_bytes);
    if (grid.is_short) return grid;  // plan_short_columns does the rest
    p.columns = static_cast<unsigned>(launch.kept / size);
    p.out_stride = add_kept(launch, layout.across, order, size, &p.kept);
    p.n = static_cast<int>(launch.reduced_shape[layout.down]);
    p.stride = launch.reduced_strides[layout.down];
    p.num_segments = static_cast<int>(launch.reduced / p.n);
    for (int d = 0; d < launch.num_reduced; ++d)
        if (d != layout.down) p.segments.add(launch.reduced_shape[d], launch.reduced_strides[d]);
    const bool down_is_last = layout.down == launch.num_reduced - 1;
    p.row_weight = down_is_last ? 1 : static_cast<unsigned>(p.num_segments);
    p.segment_weight = down_is_last ? static_cast<unsigned>(p.n) : 1;
    if (layout.along_down) {
        p.width_bits = 0;
        p.height_bits = std::min(kColumnThreadBits, bits_from(divided_up(p.n, kColumnElements)));
        // Few results: more threads, as long as each has its loads in flight.
        while (p.height_bits < kThreadBits && launch.kept << p.height_bits < kColumnBlocks * kThreads &&
               p.n >> p.height_bits > kInFlight)
            ++p.height_bits;
    } else {
        // Rows of threads where there are enough rows of elements for each to have some loads in flight.
        const bool alone = takes_all_rows(p.n, p.columns, order.beside, traits.element_bytes, traits.index);
        p.height_bits = alone ? 0 : tile_height_bits(p.n, size * traits.element_bytes);
        // More of them where multiprocessors are idle, and no blocks share rows.
        while (size == 1 && launch.scratch == nullptr && p.height_bits < kMostHeightBits &&
               launch.kept << p.height_bits < kMultiprocessors * kThreads &&
               p.n >> p.height_bits >= 2 * kVectorLoads)
            ++p.height_bits;
        p.width_bits = std::min(kThreadBits - p.height_bits, bits_from(order.beside / size));
        // Narrow tiles: more rows of threads, but where there are results enough not for so few elements of each.
        const auto has_few_results = [&] { return launch.kept << p.height_bits < kColumnBlocks * kThreads; };
        while (!alone && p.width_bits + p.height_bits < kThreadBits && p.n >> p.height_bits >= kVectorLoads &&
               (has_few_results() || p.n >> p.height_bits >= kManyRows))
            ++p.height_bits;
    }
    p.tile.bits = p.width_bits + p.height_bits;
    p.deep = is_deep(traits.element_bytes, size, traits.is_heavy(), p.width_bits == kThreadBits);
    // Few results: threads share their segments, too.
    for (int bits = 0; p.tile.bits < kThreadBits && launch.kept << p.tile.bits < kColumnBlocks * kThreads &&
                       p.num_segments >> bits >= kInFlight;
         ++bits)
        ++p.tile.bits;
    p.segment_step = 1 << (p.tile.bits - p.width_bits - p.height_bits);
    p.step = p.stride * (1 << p.height_bits);
    const std::int64_t tiles = divided_up(p.columns, 1 << p.width_bits);
    const std::int64_t blocks = divided_up(tiles, p.tile.count());
    // Blocks that share results take other rows, or where there are few of them, other segments. Shares of rows
    // whose joins are long are multiples of what the threads of a block take at least.
    const bool in_whole_rounds = layout.along_down && traits.is_heavy();
    const std::int64_t rows = in_whole_rounds ? heavy_rows(blocks, p.n >> p.height_bits) : kVectorLoads;
    const std::int64_t whole = rows << p.height_bits;
    const std::int64_t row_parts = in_whole_rounds && p.n / whole > 1 ? divided_up(p.n, whole) : p.n / whole;
    const std::int64_t segment_parts =
        p.num_segments / (segments_of(std::max(1, p.n >> p.height_bits)) * p.segment_step);
    grid.parts = parts_for(launch, traits, kSharedColumnBlocks, blocks, std::max(row_parts, segment_parts));
    const bool shares_rows = row_parts >= segment_parts;
    p.share = shares_rows ? static_cast<int>(divided_up(p.n, grid.parts)) : p.n;
    if (in_whole_rounds && shares_rows && grid.parts > 1) {
        p.share = static_cast<int>(std::min(divided_up(p.share, whole) * whole, std::int64_t{p.n}));
        grid.parts = static_cast<int>(divided_up(p.n, p.share));
    }
    // Ends of shares beyond n, by less than a share, and than `whole` for each, stay below what ReduceLimits
    // leaves.
    static_assert((kHeavyRows << kThreadBits) <= 1 << 13);
    grid.blocks = static_cast<unsigned>(blocks * grid.parts);
    p.segment_share = shares_rows ? p.num_segments : static_cast<int>(divided_up(p.num_segments, grid.parts));
    return grid;
}

unsigned plan_short_columns(const ReduceLaunch &launch, ShortColumnsPlan *plan) noexcept {
    ShortColumnsPlan &p = *plan;
    const int across = fastest_of(launch.kept_shape, launch.kept_strides, launch.num_kept);
    add_kept(launch, across, order_columns(launch, across), 1, &p.kept);
    p.columns = static_cast<unsigned>(launch.kept);
    p.n = static_cast<int>(launch.reduced);
    for (int i = 0; i < p.n; ++i) {
        int index = i;
        for (int d = launch.num_reduced - 1; d >= 0; --d) {
            const int length = static_cast<int>(launch.reduced_shape[d]);
            p.places[i] += index % length * launch.reduced_strides[d];
            index /= length;
        }
    }
    return static_cast<unsigned>(divided_up(launch.kept, kThreads));
}

}  // namespace cukern::cuda
