// The second kernel of a product whose tiles are shared: adds up their parts.
//
// Idea: a thread takes a vector of elements of a tile, and goes through the blocks that have had steps of it, in
// the order of k. Parts lie in scratch memory as tiles. Limited by the L2 cache, where they still
// are.
#pragma once

#include <cstdint>

#include "device/block_size.h"
#include "device/follow.cuh"
#ifndef __CUDACC_RTC__
#include "device/launch_kernel.h"
#endif
#include "device/matmul/multiply_add.cuh"
#include "device/matmul/operands.cuh"
#include "device/matmul/tile_work.cuh"
#include "device/vector.cuh"

namespace cukern::cuda {

template <typename T>
struct JoinParams {
    TileSchedule schedule;
    const T *parts;
    Result<T> c;
    std::int64_t m, n;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) join_tiles_kernel(const __grid_constant__ JoinParams<T> p) {
    const TileSchedule &s = p.schedule;
    constexpr int kVector = Vector<T>::kSize;
    const int vectors = s.tile_rows * s.tile_columns / kVector;
    const int blocks = vectors / kThreads;
    const int shared = static_cast<int>(blockIdx.x) / blocks;
    const int index = (static_cast<int>(blockIdx.x) - shared * blocks) * kThreads + static_cast<int>(threadIdx.x);
    const TilePlace place = place_of(s, s.whole + shared);
    const std::int64_t row = place.row + index * kVector / s.tile_columns;
    const std::int64_t column = place.column + index * kVector % s.tile_columns;
    follow_kernel_before();  // all threads: of parts that one block had, none has more to do
    if (row >= p.m || column >= p.n) return;
    const int first = shared * s.steps;
    const int end = first + s.steps;
    const int of_longer = (s.share + 1) * s.longer;
    int block = first < of_longer ? first / (s.share + 1) : s.longer + (first - of_longer) / s.share;
    int begin = s.share_begin(block);
    if (begin <= first && s.share_begin(block + 1) >= end) return;  // one block had all of it
    Vector<T> sum{};
    while (begin < end) {
        const int part = block + shared;
        const auto more =
            reinterpret_cast<const Vector<T> *>(p.parts)[static_cast<std::int64_t>(part) * vectors + index];
#pragma unroll
        for (int e = 0; e < kVector; ++e) sum.values[e] = add(sum.values[e], more.values[e]);
        begin = s.share_begin(++block);
    }
    T *const to = p.c.data + place.product * p.c.batch + row * p.c.row + column * p.c.column;
#pragma unroll
    for (int e = 0; e < kVector; ++e)
        if (column + e < p.n) to[e * p.c.column] = sum.values[e];
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone

template <typename T>
cudaError_t launch_join(const MatmulLaunch &launch, const TileSchedule &schedule, const Result<T> &c,
                        cudaStream_t stream) noexcept {
    if (schedule.shared == 0) return cudaSuccess;
    JoinParams<T> p{schedule, static_cast<const T *>(launch.scratch), c, launch.m, launch.n};
    const std::int64_t blocks = schedule.shared * (schedule.tile_elements() / Vector<T>::kSize / kThreads);
    return launch_kernel<join_tiles_kernel<T>>(static_cast<unsigned>(blocks), kThreads, stream, p);
}

#endif

}  // namespace cukern::cuda
