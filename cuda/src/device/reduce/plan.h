// Where the threads of a reduction lie: planned on the host, for any element type alike, and read by the kernels.
#pragma once

#include "device/grid.cuh"
#include "device/reduce/tuning.h"
#ifndef __CUDACC_RTC__
#include "plan/launch.h"
#endif

namespace cukern::cuda {

// The threads of a block in groups of 2**bits that follow each other: no divisions, which took short reductions as
// long as their loads.
struct Groups {
    int bits;

    __host__ __device__ int size() const { return 1 << bits; }
    __host__ __device__ int count() const { return kThreads >> bits; }
    __device__ int index() const { return static_cast<int>(threadIdx.x) >> bits; }
    __device__ int lane() const { return static_cast<int>(threadIdx.x) & (size() - 1); }
};

// What a plan knows of a kernel.
struct ReduceTraits {
    int element_bytes;
    int vector;         // elements of 16 bytes, or 1: it has no kernels for vectors
    int partial_bytes;  // of a partial result
    bool index;         // it gives one
    bool variance;

    bool is_heavy() const { return index || variance; }
};

struct RowsPlan {
    Dimensions kept;
    Dimensions segments;  // the reduced dimensions but for the packed one
    int num_segments;
    int share;       // of the segments, that a group takes; or blocks that share one
    Divider pieces;  // of a grid's blocks that share a row; no divisions, as in Groups
    Divider parts;   // of these that share a segment
    int loads;       // of each of their threads at a time
    unsigned rows;
    int n;          // elements of a segment
    Groups groups;  // one a row
};

struct ColumnsPlan {
    unsigned columns;         // in vectors
    PairedDimensions kept;    // of these, the one that columns lie along last; and in `out`
    std::int64_t out_stride;  // of the columns of a vector
    // Of a block's threads, each of several tiles has some: side by side, in rows, and in other segments.
    Groups tile;
    int width_bits;
    int height_bits;
    // The reduced dimension that threads go down, of n elements; and the other ones, in which are segments.
    int n;
    std::int64_t stride;
    std::int64_t step;  // from one row of a thread to its next one
    Dimensions segments;
    int num_segments;
    int segment_step;
    unsigned row_weight;  // in the index of an element
    unsigned segment_weight;
    int share;  // of n, that a tile takes, and of the segments; of one of them all
    int segment_share;
    bool deep;  // whether threads have all their loads in flight, or kInFlight

    // Whether a thread has its columns alone.
    __host__ __device__ bool is_alone() const { return tile.bits == width_bits; }
};

// Columns of few elements, of which a thread takes one.
struct ShortColumnsPlan {
    unsigned columns;
    int n;
    PairedDimensions kept;                   // as of ColumnsPlan
    std::int64_t places[kShortColumn] = {};  // of the elements of a column, in the order of their indices
};

// Blocks, and how many of them share a result; and which kernel of the family.
struct ReduceGrid {
    unsigned blocks;
    int parts;
    bool is_short;  // rows of a vector a thread at most, or columns of few elements
    bool split;     // rows that blocks share
    int size;       // columns of a thread
};

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
ReduceGrid plan_rows(const ReduceLaunch &launch, const ReduceTraits &traits, RowsPlan *plan) noexcept;
ReduceGrid plan_columns(const ReduceLaunch &launch, const ReduceTraits &traits, ColumnsPlan *plan) noexcept;
unsigned plan_short_columns(const ReduceLaunch &launch, ShortColumnsPlan *plan) noexcept;  // returns the blocks
#endif

}  // namespace cukern::cuda
