// Products by kernels of our own: which one takes a product, with how much scratch memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "plan/launch.h"

namespace cukern::cuda {

struct TileSchedule;

// What kernels have to know of a device: how much shared memory a block may ask for, too.
struct Chip {
    int multiprocessors;
    int shared_bytes;
    int generation;  // the major number of the compute capability that its code is for
};

// That of the current device; asked for once.
cudaError_t current_chip(Chip *chip) noexcept;

std::int64_t own_product_scratch(const MatmulLaunch &launch, const Chip &chip) noexcept;  // in bytes
cudaError_t launch_own_product(const MatmulLaunch &launch, const Chip &chip, cudaStream_t stream) noexcept;

// c' = b' @ a': the same results, from the other side.
MatmulLaunch transposed(const MatmulLaunch &launch) noexcept;

// The kernels, each with its schedule. A launch has at most kMostTiles of the smallest tiles.
template <typename T>
TileSchedule schedule_tiled(const MatmulLaunch &launch, const Chip &chip) noexcept;
template <typename T>
cudaError_t launch_matmul_tiled(const MatmulLaunch &launch, const TileSchedule &schedule,
                                cudaStream_t stream) noexcept;
template <typename T>
TileSchedule schedule_sliced(const MatmulLaunch &launch, const Chip &chip) noexcept;
template <typename T>
cudaError_t launch_matmul_sliced(const MatmulLaunch &launch, const TileSchedule &schedule, const Chip &chip,
                                 cudaStream_t stream) noexcept;

// Estimates are in microseconds. A launch has elements, and k is not 0.
constexpr double kNever = 1e30;
// kNever where neither m nor n is 1, or there are too many blocks.
template <typename T>
double time_of_vector(const MatmulLaunch &launch) noexcept;
template <typename T>
cudaError_t launch_matmul_vector(const MatmulLaunch &launch, cudaStream_t stream) noexcept;
// float32 and float64 alone; c has to be row-major.
template <typename T>
double time_of_short(const MatmulLaunch &launch, const Chip &chip) noexcept;
template <typename T>
cudaError_t launch_matmul_short(const MatmulLaunch &launch, cudaStream_t stream) noexcept;
// float32 and float64 alone; float64 for generations that have tensor cores for it.
constexpr bool has_direct(ElementType type, int generation) {
    return type == ElementType::float32 || (generation >= 8 && generation < 12);
}
template <typename T>
double time_of_direct(const MatmulLaunch &launch) noexcept;
template <typename T>
cudaError_t launch_matmul_direct(const MatmulLaunch &launch, cudaStream_t stream) noexcept;
template <>
double time_of_direct<float>(const MatmulLaunch &launch) noexcept;
template <>
double time_of_direct<double>(const MatmulLaunch &launch) noexcept;
template <>
cudaError_t launch_matmul_direct<float>(const MatmulLaunch &launch, cudaStream_t stream) noexcept;
template <>
cudaError_t launch_matmul_direct<double>(const MatmulLaunch &launch, cudaStream_t stream) noexcept;

}  // namespace cukern::cuda
