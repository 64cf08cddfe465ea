// How a block finds its tiles in a schedule, and where they lie.
#pragma once

#include <cstdint>

#include "device/matmul/tile_schedule.h"

namespace cukern::cuda {

// The first row and column of a tile, and the product of the batch that it is of.
struct TilePlace {
    std::int64_t product, row, column;
};

__device__ __forceinline__ TilePlace place_of(const TileSchedule &s, int tile) {
    std::uint32_t in_product;
    std::uint32_t in_band;
    const std::uint32_t product = s.of_product.divide(static_cast<std::uint32_t>(tile), &in_product);
    const auto first = static_cast<int>(s.of_band.divide(in_product, &in_band)) * s.band;
    const Divider &of_height = first + s.band <= s.down ? s.of_height : s.of_last_height;
    std::uint32_t row;
    const std::uint32_t column = of_height.divide(in_band, &row);
    return {product, static_cast<std::int64_t>(first + static_cast<int>(row)) * s.tile_rows,
            static_cast<std::int64_t>(column) * s.tile_columns};
}

// A block's parts of tiles, one after the other: steps [step, end) of a tile.
struct TileWork {
    int tile;
    int step, end;

    // Whether there is a part.
    __device__ __forceinline__ bool start(const TileSchedule &s) {
        const int block = static_cast<int>(blockIdx.x);
        next_step_ = s.share_begin(block);
        end_of_share_ = s.share_begin(block + 1);
        tile = block - s.blocks;
        return next(s);
    }

    // The block's part of its cluster's tile, the only one that it has.
    __device__ __forceinline__ void start_in_cluster(const TileSchedule &s) {
        tile = static_cast<int>(blockIdx.x) / s.cluster;
        const int rank = static_cast<int>(blockIdx.x) - tile * s.cluster;
        step = rank * s.steps / s.cluster;
        end = (rank + 1) * s.steps / s.cluster;
    }

    __device__ __forceinline__ bool next(const TileSchedule &s) {
        if (tile < s.whole) {
            tile += s.blocks;
            step = 0;
            end = s.steps;
            if (tile < s.whole) return true;
        }
        if (next_step_ >= end_of_share_) return false;
        const auto shared = static_cast<int>(s.of_steps.divide(static_cast<std::uint32_t>(next_step_)));
        tile = s.whole + shared;
        step = next_step_ - shared * s.steps;
        end = min(s.steps, step + end_of_share_ - next_step_);
        next_step_ += end - step;
        return true;
    }

    __device__ __forceinline__ bool is_whole(const TileSchedule &s) const { return step == 0 && end == s.steps; }
    // Where the part of a shared tile lies in scratch memory, in tiles.
    __device__ __forceinline__ std::int64_t part(const TileSchedule &s) const {
        return static_cast<int>(blockIdx.x) + tile - s.whole;
    }
    // That of the block's first one, which its next ones follow.
    static __device__ __forceinline__ int first_part(const TileSchedule &s) {
        const int block = static_cast<int>(blockIdx.x);
        return block + static_cast<int>(s.of_steps.divide(static_cast<std::uint32_t>(s.share_begin(block))));
    }

private:
    int next_step_;
    int end_of_share_;
};

}  // namespace cukern::cuda
