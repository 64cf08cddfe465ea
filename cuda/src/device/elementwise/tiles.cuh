// Tiles of an array, for operands that lie closest along another dimension than the result.
#pragma once

#include <cstdint>

#include "device/grid.cuh"

namespace cukern::cuda {

// A row is an index along one dimension, a column one along all others. A tile has as many threads as fill it,
// side by side along its columns and then its rows, whatever their number: it may end inside a warp. A thread has
// `each` rows.
struct Tiles {
    Divider threads;     // of a tile
    Divider width;       // of a tile, in columns
    Divider across;      // tiles side by side
    std::uint32_t rows;  // of threads, in a tile

    // The column of a thread, and the first of its rows, which are `rows` apart.
    __device__ void find(std::uint32_t thread, int each, std::uint32_t *row, std::uint32_t *column) const {
        std::uint32_t in_tile;
        std::uint32_t in_row;
        std::uint32_t tile_column;
        const std::uint32_t tile_row = across.divide(threads.divide(thread, &in_tile), &tile_column);
        *row = tile_row * each * rows + width.divide(in_tile, &in_row);
        *column = tile_column * width.by + in_row;
    }
};

}  // namespace cukern::cuda
