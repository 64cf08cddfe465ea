// Which kernel serves operands that are not all packed, of one element type.
#pragma once

#include "device/elementwise/broadcast.cuh"
#include "device/elementwise/interleaved.cuh"
#include "device/elementwise/transpose.cuh"
#include "device/kernels.h"

namespace cukern::cuda {

// Whether transposed operands of this group and type are transposed in shared memory. Signed integers are not:
// most of their operations take the kernels of unsigned ones (kernel_type), the others strided_kernel.
constexpr bool uses_transpose(Group group, ElementType type) {
    return (group == Group::arithmetic && kind_of(type) != 'i' && size_of(type) > 1) ||
           (group == Group::copies && bits_of(type) == type);
}

// Complex numbers may begin at any of their parts.
template <typename T>
bool has_whole_elements(const ElementwiseLaunch &launch) noexcept {
    std::uintptr_t addresses = 0;
    for (int j = 0; j < launch.num_operands; ++j)
        if (!launch.immediate[j]) addresses |= reinterpret_cast<std::uintptr_t>(launch.data[j]);
    return addresses % sizeof(T) == 0;
}

// As many elements as give each multiprocessor a block of threads with so many vectors each. Of fewer,
// strided_kernel gives a thread fewer: it took 2.2 to 2.6 us for 121,500 elements, broadcast_kernel 3.6 us for
// elements of 16 bits, 5.0 for those of 8, and transpose_kernel 4.8 to 6.3 (H200).
template <typename T>
constexpr std::int64_t elements_for_all(int vectors) {
    return std::int64_t{kMultiprocessors} * kThreads * vectors * Vector<T>::kSize;
}

// Whether the rows of an operand begin at vectors, as those of a packed result do.
template <typename T>
bool begins_at_vectors(const ElementwiseLaunch &launch, int operand) noexcept {
    if (reinterpret_cast<std::uintptr_t>(launch.data[operand]) % 16 != 0) return false;
    for (int d = 0; d < launch.ndim - 1; ++d)
        if (launch.strides[operand][d] % Vector<T>::kSize != 0) return false;
    return launch.shape[launch.ndim - 1] % Vector<T>::kSize == 0;
}

// Whether broadcast_kernel takes most vectors of the operands that are not packed as vectors: rows end where
// vectors do, or are so long that few of a warp's reach into the next row, and their elements lie side by side, or
// repeat. What it takes one by one costs twice as many instructions as in strided_kernel. Vectors of two or four
// elements, with results of one byte, are slower than single elements if rows don't begin at a vector: `less` of a
// row and a window of float32 (125083, 559) took 248 us by vectors, 132 by elements.
template <typename T, typename R>
bool has_vectors(const ElementwiseLaunch &launch) noexcept {
    constexpr int kSize = Vector<T>::kSize;
    constexpr std::int64_t kLongRow = 4 * 32 * kSize;
    const int last = launch.ndim - 1;
    const std::int64_t length = launch.shape[last];
    for (int j = 1; j < launch.num_operands; ++j) {
        if (launch.immediate[j] || is_packed(launch, j)) continue;
        const std::int64_t step = launch.strides[j][last];
        if (step < 0 || step > 2 || (length % kSize != 0 && length < kLongRow)) return false;
        if (sizeof(T) >= 4 && sizeof(R) == 1 && step == 1 && !begins_at_vectors<T>(launch, j)) return false;
    }
    return true;
}

// Launches one of the kernels for layouts, if one serves the operands' layout: whether it did.
template <Group group, typename T>
bool launch_layout(const ElementwiseLaunch &launch, cudaStream_t stream, cudaError_t *error) noexcept {
    if (!is_uniform(launch)) return false;
    const int last = launch.ndim - 1;
    if constexpr (has_interleaved<T> && uses_transpose(group, ElementTypeOf<T>::value)) {
        const int narrow = interleaved_operand(launch);
        if (narrow != 0 && launch.count >= elements_for_all<T>(2)) {
            *error = launch_interleaved<group, T>(launch, narrow, stream);
            return true;
        }
    }
    int transposed = -1;
    int operand = 0;
    while (transposed < 0 && ++operand < launch.num_operands) transposed = transposed_dimension(launch, operand);
    constexpr std::int64_t kFewColumns = 8;        // of out: neighbours of the operand meet in caches
    constexpr std::int64_t kLeastElements = 1024;  // of a transposed part
    // Else what lies before and behind the vectors of a row, which moves by elements, is too much: of 14 bfloat16
    // in rows of 20 transpose_kernel took 46 us, strided_kernel 25, of 19 float32 26 and 21 (H200).
    constexpr std::int64_t kLeastVectors = 8;
    const bool has_few_edges =
        begins_at_vectors<T>(launch, 0) || launch.shape[last] >= kLeastVectors * Vector<T>::kSize;
    // Where strided_kernel's tiles lie the other way it is faster: `maximum` of transposed float16 (5, 9898379)
    // and a window took 311 and 162 us, `subtract` of transposed int32 (95618, 15, 1, 3) in place 32 and 13.
    const bool fills_tiles = transposed >= 0 && !turns_tiles(launch, operand, transposed) && has_few_edges &&
                             has_whole_elements<T>(launch) &&
                             launch.shape[transposed] * launch.shape[last] >= kLeastElements &&
                             launch.count >= elements_for_all<T>(kTileStores);
    if (fills_tiles && launch.strides[0][last] == 1 && launch.shape[last] > kFewColumns) {
        if constexpr (uses_transpose(group, ElementTypeOf<T>::value)) {
            *error = launch_transpose<group, T>(launch, transposed, stream);
            return true;
        } else {
            return false;
        }
    }
    // Of longer elements strided_kernel is faster up to more of them: complex64 in windows (9347, 50) took it 2.6
    // us, broadcast_kernel 4.2, int64 (10, 5565, 18) 3.6 and 4.7; of bytes in steps (4165937,) 9.3 and 6.9.
    constexpr int kLeastVectorsEach = sizeof(T) < 4 ? 2 : sizeof(T) < 8 ? 8 : 16;
    // Of complex64 load_shifted loads whole ones.
    const bool has_whole = sizeof(T) != 8 || has_whole_elements<T>(launch);
    if (launch.count < elements_for_all<T>(kLeastVectorsEach) || !is_packed(launch, 0) || !has_whole ||
        !has_vectors<T, group_result_t<group, T>>(launch))
        return false;
    constexpr int kInputs = arity(group);
    *error = launch_broadcast<T, group_result_t<group, T>, kInputs>(
        kernel_of<broadcast_kernel<group, T, kInputs>>(), launch, stream);
    return true;
}

}  // namespace cukern::cuda
