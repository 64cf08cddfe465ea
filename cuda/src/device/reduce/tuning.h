// The constants of the reductions' kernels, all measured on an H200 with 132 multiprocessors; docs/architecture.md
// has the figures. Time depends on them, and the order in which values join.
#pragma once

#include <cstdint>

#include "device/block_size.h"

namespace cukern::cuda {

constexpr int kInFlight = 4;  // loads of a thread before the first is used, where nothing asks for more

// So many loads of vectors, but fewer of short elements, of which each makes the code of a kernel longer by 8 or
// 16: as fast, and faster where a thread has the columns of a vector.
constexpr int loads_of(int element_bytes, int loads) { return element_bytes < 4 ? kInFlight : loads; }

// Which family: rows of the packed dimension where they are of at least so many bytes, of several that a group
// takes one after the other.
constexpr std::int64_t kShortSegment = 128;
// Rows of up to so many elements are taken as columns: where rows are vectors, and where they are not, so that
// edges take as long as all else. Of 9 and of 12 elements that took 0.25 to 1 of the time, of 4 to 64 in memory
// that is not aligned to vectors 0.16 to 1 (of 49 bytes or float32 1.1); variances and indices of 20 aligned
// float64 0.34 and 0.54. Of less than kLittleWork those alone that one thread takes: 3800 rows of 28 uint32
// took 2.2 us as columns, 1.9 as rows.
constexpr std::int64_t short_row(int element_bytes, bool heavy, bool is_vectors) {
    if (is_vectors) return heavy && element_bytes >= 8 ? 32 : 12;
    return element_bytes < 4 ? 32 : 64;
}
// Of few results, a block has fewer groups for rows than threads: there the columns, whose threads share segments.
constexpr std::int64_t kFewResults = 32;
constexpr std::int64_t kShortSegmentOfFew = 2048;

constexpr std::int64_t kPartialBytes = 4 << 20;  // of partial results: of blocks, and of pieces
constexpr std::int64_t kMostPartialBytes = 64;   // of one, whatever is computed
constexpr std::int64_t kLeastShared = 1024;      // elements of a result that blocks may share

// Rows: blocks that share them, 4 for each multiprocessor.
constexpr std::int64_t kRowBlocks = 4 * kMultiprocessors;
// The least loads of a thread where rows leave multiprocessors idle. Of bytes half as many, since each load holds
// 16 elements: results of up to 10^6 of them took 0.8 to 0.95 of the time; those of longer elements took up
// to 1.1.
constexpr int least_row_loads(int element_bytes) { return element_bytes == 1 ? kInFlight / 2 : kInFlight; }
constexpr int kRowSums = 2;       // running results of a thread along a row
constexpr int kLeastRowBits = 3;  // of the threads that take a row
// Vectors of a row for each thread, up to which groups stay narrow: joining threads takes longer than going on.
constexpr int row_vectors(bool index) { return index ? 32 : 16; }
// Of short rows that four at a time are too few for all multiprocessors: 70 such cases took 0.86 of the time, rows
// of argmax half. With one vector some took up to 1.2 of the time.
constexpr int kShortRowVectors = 2;
// Loads of a thread along a row. Of rows that blocks share it has many more to do, as many as registers hold
// beside an index. With 8 such rows of up to 8 bytes took 1.05 of the time, variances 0.87 to 1, elements of 16
// bytes as long.
constexpr int row_loads(int element_bytes, bool index, bool variance, bool split) {
    if (!split) return kInFlight;
    return loads_of(element_bytes, variance || element_bytes == 16 ? 8 : index ? 12 : 16);
}

// Columns: as many blocks as run at once, 8 for each multiprocessor. There are threads enough where each has a
// result.
constexpr std::int64_t kColumnBlocks = 1056;
// Blocks that share columns. Twice as many took sums over axis 0 of (16384, 16384) 3 percent longer in float32 and
// 4 in bfloat16, and reductions of single columns up to a fifth.
constexpr std::int64_t kSharedColumnBlocks = 528;
// Elements of a column up to which a thread takes all of them; of 16 bytes those that it loads at once: a second
// round of 5 complex128 took 1.12 of the time.
constexpr int kShortColumn = 16;
constexpr int short_column(int element_bytes) { return element_bytes < 16 ? kShortColumn : kInFlight; }
constexpr int kVectorLoads = 8;
// Elements up to which a thread takes a single column, not a vector of them: the unrolled code of a vector of
// short elements takes longer than what it loads. `max` of 4 rows of 30528 uint8 took 4.3 us by vectors, 1.7 by
// columns.
constexpr std::int64_t kLittleWork = 1 << 19;
// The same where vectors fill less than half of the multiprocessors, and columns at least a quarter of them: 0.3
// to 0.9 of the time; beyond this or with more blocks they took up to 1.8 of it.
constexpr std::int64_t kMediumWork = 1 << 23;
constexpr int kManyRows = 64;           // of a thread, beside which joining threads takes no time
constexpr std::int64_t kLeastRows = 8;  // that are worth for threads to lie along
// Elements of a column for each thread, up to which few threads lie along it: joining them takes longer than going
// on.
constexpr std::int64_t kColumnElements = 16;
constexpr int kColumnThreadBits = 6;  // of them, where there are results enough
// Loads of a thread down a column, or down those of a vector. `heavy`: indices and variances.
constexpr int column_loads(int element_bytes, int size, bool heavy) {
    if (size > 1) return loads_of(element_bytes, kVectorLoads);
    return element_bytes < 4 || (element_bytes == 4 && heavy) ? 16 : 8;
}
// Rows of a thread that takes elements which lie apart, for an index or a variance, whose joins are long code:
// with 8 one result of 2 * 10^6 elements took 1.4 to 2 times as long. Fewer where not half of the multiprocessors
// have work.
constexpr std::int64_t kHeavyRows = 32;
// Where a block has single columns of 4 bytes side by side, kInFlight loads are enough, and more rows at once were
// slower, by 6 to 16 %.
constexpr bool is_deep(int element_bytes, int size, bool heavy, bool wide) {
    return size > 1 || element_bytes != 4 || heavy || !wide;
}
// Blocks at once on a multiprocessor, for which registers are left (0: any): for short elements, where it was
// faster by up to 7 %; others need the registers.
constexpr int column_blocks_at_once(int element_bytes, int size, bool variance) {
    return element_bytes < 4 && size > 1 && !variance ? 4 : 0;
}
// Whether one thread takes all rows of its columns, since each of several has to find its place: where there are
// results for all threads, and few rows. Of 160, sums and extremes of 4 bytes took 1.3 of the time by one, shorter
// elements and indices 0.8 to 0.9. Where few columns lie beside each other, fewer results are enough: 24 rows of
// 25050 by 5 columns took half of the time, 48 of 24000 by 5 0.5 to 0.9.
constexpr std::int64_t kShortBeside = 32;
constexpr std::int64_t kResultsBeside = 1 << 16;
constexpr std::int64_t kRowsBeside = 65;
constexpr bool takes_all_rows(std::int64_t rows, std::int64_t results, std::int64_t beside, int element_bytes,
                              bool index) {
    if (results >= kColumnBlocks * kThreads) return rows < (index || element_bytes < 4 ? 256 : 128);
    return beside < kShortBeside && results >= kResultsBeside && rows < kRowsBeside;
}
// Bits of the rows of threads of a tile.
constexpr int tile_height_bits(std::int64_t rows, int load_bytes) {
    return rows < 16 ? 0 : rows < 32 ? 1 : load_bytes == 8 ? 3 : 2;
}
constexpr int kMostHeightBits = 4;  // of them, where there are few columns

}  // namespace cukern::cuda
