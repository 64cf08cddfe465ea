// The CUDA back-end's launchers: each enqueues on a stream of the current device and returns CUDA's error.
#pragma once

#include <cuda_runtime_api.h>

#include "device/kernel_types.h"
#include "plan/launch.h"

namespace cukern::cuda {

// Loads the module of a kernel that does nothing; fails where the device has no code in this build.
cudaError_t probe_kernels() noexcept;

// The build compiles them for some element types at a time; without a type they find it.
template <typename T>
cudaError_t launch_elementwise(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept;
cudaError_t launch_elementwise(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept;

// Which elements a thread takes: `each` of them along one dimension, `apart` from one to the next. An index along
// it is a row. In tiles (device/elementwise/tiles.cuh) a column is an index along all other dimensions; else along
// all, of which this one counts the first elements of threads alone.
struct StridedPlan {
    int dimension;
    std::int64_t apart;  // in tiles: how many rows of threads each has
    int each;
    std::int64_t columns;
    int order[kStridedDims];  // the dimensions of the columns, from the fastest
    bool in_tiles;
    std::int64_t width;   // of a tile, in columns
    std::int64_t across;  // tiles side by side
    unsigned blocks;
};
// Whether tiles lie the other way, since an operand lies closest along a dimension of a few elements.
bool turns_tiles(const ElementwiseLaunch &launch, int operand, int dimension) noexcept;
StridedPlan plan_strided(const ElementwiseLaunch &launch) noexcept;
template <typename T>
cudaError_t launch_strided(const ElementwiseLaunch &launch, const StridedPlan &plan, cudaStream_t stream) noexcept;
cudaError_t launch_strided(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept;

// Whether results are float32, as 16-bit floats are added up, and not rounded to the type of elements.
constexpr bool returns_wide(const ReduceLaunch &launch) {
    return (launch.op == Op::sum || launch.op == Op::prod || launch.op == Op::mean) &&
           kind_of(launch.type) == 'f' && size_of(launch.type) == 2 && launch.compute == ElementType::float32;
}

// What is reduced at once.
struct ReduceLimits {
    // Elements of a result: indices are 32 bits wide, also beyond the end by what all blocks that share a row
    // take.
    std::int64_t reduced = (std::int64_t{1} << 31) - (1 << 22);
    std::int64_t converted_bytes = 16 << 20;  // of elements, which then are read from the L2 cache
    std::int64_t slots = 1 << 16;             // of partial results of pieces
};

// The type of elements that the kernels load: another one than that of the input, if those are converted first.
ElementType loaded_type(const ReduceLaunch &launch) noexcept;
// Whether the kernels load what is stored, and all at once; else elements are converted first, or taken in pieces.
bool reduces_as_stored(const ReduceLaunch &launch, const ReduceLimits &limits) noexcept;
// Whether the kernels for rows serve it: the packed dimension is reduced, and its rows are not short.
bool reduces_along_rows(const ReduceLaunch &launch) noexcept;
template <typename T>
cudaError_t launch_stored_reduction(const ReduceLaunch &launch, cudaStream_t stream) noexcept;
cudaError_t launch_stored_reduction(const ReduceLaunch &launch, cudaStream_t stream) noexcept;
cudaError_t launch_in_pieces(const ReduceLaunch &launch, const ReduceLimits &limits, cudaStream_t stream) noexcept;
// The scratch memory that a reduction takes, in bytes. In pieces it needs it, else it may be without.
std::int64_t reduction_scratch(const ReduceLaunch &launch, const ReduceLimits &limits = {}) noexcept;
cudaError_t launch_reduction(const ReduceLaunch &launch, cudaStream_t stream,
                             const ReduceLimits &limits = {}) noexcept;

// Whether scans read elements of a type as they are stored; else they have to be converted first.
constexpr bool scans_from(ElementType type, ElementType compute) {
    return type == compute || (is_integer(compute) && (is_integer(type) || kind_of(type) == 'b'));
}
// The scratch memory that a scan takes, in bytes; the launch needs all of it.
std::int64_t scan_scratch(const ScanLaunch &launch) noexcept;
// More lines than a grid counts are taken in parts.
constexpr std::int64_t kMostLines = (std::int64_t{1} << 31) - 1 - 256;
cudaError_t launch_scan(const ScanLaunch &launch, cudaStream_t stream,
                        std::int64_t most_lines = kMostLines) noexcept;

}  // namespace cukern::cuda
