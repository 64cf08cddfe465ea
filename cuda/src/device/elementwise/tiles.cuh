// Blocks that take tiles of an array, for operands that are packed along another dimension than the result.
#pragma once

#include <cstdint>

#include "device/grid.cuh"

namespace cukern::cuda {

// A row is an index along the dimension in which the operand is packed, a column one along all other dimensions in
// their order. A tile has 2^column_bits columns. Each warp has a tile of its own in it, of 2^lane_bits columns, so
// that its threads share sectors of the operand and of out. A thread has `each` rows.
struct Tiles {
    Divider across;  // tiles side by side
    std::int8_t column_bits;
    std::int8_t lane_bits;

    // A thread's column, and the first of its rows, which are kThreads >> column_bits apart.
    __device__ void find(int each, std::uint32_t *row, std::uint32_t *column) const {
        constexpr int kLaneBits = 5;
        std::uint32_t tile_column;
        const std::uint32_t tile_row = across.divide(blockIdx.x, &tile_column);
        const std::uint32_t lane = threadIdx.x % 32;
        const std::uint32_t warp = threadIdx.x / 32;
        const int warp_bits = column_bits - lane_bits;  // of the warps side by side
        const std::uint32_t warp_row = warp >> warp_bits;
        const std::uint32_t lane_row = lane >> lane_bits;
        *row = tile_row * each * (kThreads >> column_bits) + (warp_row << (kLaneBits - lane_bits)) + lane_row;
        *column = (tile_column << column_bits) + ((warp - (warp_row << warp_bits)) << lane_bits) + lane -
                  (lane_row << lane_bits);
    }
};

}  // namespace cukern::cuda
