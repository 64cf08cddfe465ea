// Which block computes which part of which tile of c.
//
// Idea: as many blocks as run at once take whole tiles, one after the other, while there is one for each. What is
// left of the tiles is shared among all blocks evenly, by steps along k: each takes a run of steps, which may end
// one tile and begin the next (M. Osama et al., Stream-K, PPoPP 2023). What a block has of a tile that it shares
// goes to scratch memory, where a second kernel adds up the parts, in the order of k. A few tiles are shared by a
// cluster of blocks each, which read each other's shared memory and need no second kernel. Long sums of results of
// some thousand elements a side may be cut among more blocks than run at once: they round less.
#pragma once

#include <cstdint>

#include "device/grid.cuh"
#ifndef __CUDACC_RTC__
#include "plan/launch.h"
#endif

namespace cukern::cuda {

struct TileSchedule {
    int tile_rows, tile_columns;
    int down, across;   // tiles of a product
    int band;           // rows of tiles that are gone through together
    int steps;          // along k, of a tile
    int whole;          // tiles that one block computes each
    int shared;         // the others
    int share, longer;  // steps of those that a block has; so many blocks have one more
    int blocks;
    int cluster;  // blocks that share each tile, and add up their parts themselves; else 1
    // By tiles of a product, of a band, rows of a band and of the last one, and by steps.
    Divider of_product, of_band, of_height, of_last_height, of_steps;
    int waves;  // that blocks run in; last, since no kernel reads it: the fields that kernels read stay close

    std::int64_t tile_elements() const noexcept { return std::int64_t{tile_rows} * tile_columns; }
    // The part that a block has of a shared tile has the sum of both numbers for its own: from one part to the
    // next, the block or the tile changes.
    std::int64_t scratch_elements() const noexcept {
        return shared == 0 ? 0 : (std::int64_t{blocks} + shared) * tile_elements();
    }

    __host__ __device__ int share_begin(int block) const noexcept {
        return block * share + (block < longer ? block : longer);
    }
};

// A block adds the number of blocks to that of its last tile before it sees that there is none left: the sum has
// to fit in 31 bits.
constexpr std::int64_t kMostTiles = std::int64_t{1} << 30;

#ifndef __CUDACC_RTC__  // which compiles the kernels alone

// Which long sums are cut among more blocks than run at once.
struct Cuts {
    int parts = 0;        // at least, or some more; 0: no sums are cut
    int least_steps = 0;  // of a part
    int most_tiles = 0;   // of the product, for each block that runs at once
    int least_even = 0;   // steps of a sum where the tiles keep all of these blocks busy as it is
};

// How many steps adding up the parts of shared tiles takes as long as, and how many of them a block has at least.
struct Sharing {
    int cost;
    int least;
    Cuts cuts = {};
};

// Tiles of a kernel that takes `depth` of k in a step, of which a device runs `blocks` at once. A batch has to
// have at most kMostTiles.
TileSchedule schedule_tiles(const MatmulLaunch &launch, int rows, int columns, int depth, std::int64_t blocks,
                            const Sharing &sharing) noexcept;

// The same, of a kernel whose clusters of up to `most` blocks can share a tile, where that takes fewer steps.
TileSchedule schedule_clusters(const TileSchedule &schedule, std::int64_t blocks, const Sharing &sharing,
                               int most) noexcept;

#endif

}  // namespace cukern::cuda
