// The CUDA back-end's launchers: each enqueues on a stream of the current device and returns CUDA's error.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/launch.h"

namespace cukern::cuda {

// Loads the module of a kernel that does nothing; fails where the device has no code in this build.
cudaError_t probe_kernels() noexcept;

// The build compiles them for some element types at a time; without a type they find it.
template <typename T>
cudaError_t launch_elementwise(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept;
cudaError_t launch_elementwise(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept;

// Whether the kernels of a type serve an operation.
constexpr bool has_kernel(Op op, ElementType type) {
    return computes_in(op, type) || (is_logical(op) && logical_type(type) == type);
}

// Whether an operation is long: its packed kernels are of it alone, and strided_kernel calls it.
constexpr bool is_function(Op op, ElementType type) {
    switch (op) {
        case Op::divide:
        case Op::floor_divide:
        case Op::remainder:
        case Op::pow:
        case Op::reciprocal: return true;
        case Op::sign: return kind_of(type) == 'c';
        case Op::copysign: return false;
        default: return info(op).rule == ResultRule::sized;
    }
}

// The type whose kernels serve operands of any strides: integers and floats of less than 32 bits compute in 32,
// and are narrowed.
constexpr ElementType wide_type(ElementType type) {
    if (size_of(type) >= 4) return type;
    return is_floating(type) ? ElementType::float32 : ElementType::int32;
}
// Most arrays reduce to few dimensions, and span at most 2**31 elements of each operand; others are launched in
// parts. With a type: one part, as planned.
constexpr int kStridedDims = 8;
constexpr std::int64_t kStridedReach = (std::int64_t{1} << 31) - 1;
// Which elements a thread takes: `each`, which are so far apart along one dimension. Their first ones are in the
// order of the array, or in tiles (device/elementwise/tiles.cuh).
struct StridedPlan {
    int dimension;
    std::int64_t apart;
    int each;
    std::int64_t columns;  // in tiles: elements of one row; else all elements that are the first of a thread
    bool in_tiles;
    int column_bits;
    int lane_bits;
    std::int64_t across;  // tiles side by side
    unsigned blocks;
};
StridedPlan plan_strided(const ElementwiseLaunch &launch) noexcept;
template <typename T>
cudaError_t launch_strided(const ElementwiseLaunch &launch, const StridedPlan &plan, cudaStream_t stream) noexcept;
// Elements of a thread at most, where results of so many bytes are computed.
constexpr int strided_elements(int size) { return size <= 8 ? 4 : 2; }
cudaError_t launch_strided(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept;

// The type whose kernels load the elements of a reduction as they are stored: one for all types of which only the
// bits count, and the signed one for extremes of integers, which flip bits anyway.
constexpr ElementType stored_type(Op op, ElementType type) {
    switch (op) {
        case Op::sum:
        case Op::prod: return type == ElementType::int64 ? ElementType::uint64 : type;
        case Op::any:
        case Op::all: return type == ElementType::complex128 ? type : type_of('u', size_of(type));
        case Op::max:
        case Op::min:
        case Op::argmax:
        case Op::argmin: return kind_of(type) == 'u' ? type_of('i', size_of(type)) : type;
        default: return type;
    }
}
constexpr bool has_stored_kernel(Op op, ElementType type) {
    if (info(op).rule == ResultRule::variance) return is_floating(type) || kind_of(type) == 'c';
    return stored_type(op, type) == type && (type != ElementType::bool_ || op != Op::max);
}

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

// Whether the kernels load what is stored, and all at once; else elements are converted first, or taken in pieces.
bool reduces_as_stored(const ReduceLaunch &launch, const ReduceLimits &limits) noexcept;
// Whether the packed dimension is reduced, of what they serve; else it is kept.
bool reduces_along_rows(const ReduceLaunch &launch) noexcept;
template <typename T>
cudaError_t launch_stored_reduction(const ReduceLaunch &launch, cudaStream_t stream) noexcept;
cudaError_t launch_stored_reduction(const ReduceLaunch &launch, cudaStream_t stream) noexcept;
cudaError_t launch_in_pieces(const ReduceLaunch &launch, const ReduceLimits &limits, cudaStream_t stream) noexcept;
// The scratch memory that a reduction takes, in bytes. In pieces it needs it, else it may be without.
std::int64_t reduction_scratch(const ReduceLaunch &launch, const ReduceLimits &limits = {}) noexcept;
cudaError_t launch_reduction(const ReduceLaunch &launch, cudaStream_t stream,
                             const ReduceLimits &limits = {}) noexcept;

cudaError_t launch_scan(const ScanLaunch &launch, cudaStream_t stream) noexcept;

template <typename T>
cudaError_t launch_matmul_tiled(const MatmulLaunch &launch, cudaStream_t stream) noexcept;

}  // namespace cukern::cuda
