// Reductions that convert elements on load, or of 2**31 elements a result and more, over any strides.
//
// strided_reduce_kernel
//   Idea: a group of threads takes a result, each element's place is found by dividing its index through the
//   shape, and its value is converted on load. Limited by these divisions.
#pragma once

#include "device/reduce/group.cuh"

namespace cukern::cuda {

// Blocks that share the results, for each of 132 multiprocessors 16.
constexpr std::int64_t kStridedBlocks = 2112;

// A result may have 2**31 elements and more, so that their indices take 64 bits.
struct LongDimensions {
    int ndim;
    std::int64_t shape[kMaxReduceDims];
    std::int64_t strides[kMaxReduceDims];

    // A function, and 32-bit quotients where they do: inlined, divisions were most of each kernel.
    __device__ __noinline__ std::int64_t offset_at(std::int64_t index) const {
        std::int64_t offset = 0;
#pragma unroll 1
        for (int d = ndim - 1; d > 0; --d) {
            const std::int64_t next = (index | shape[d]) >> 32 == 0 ? static_cast<std::uint32_t>(index) /
                                                                          static_cast<std::uint32_t>(shape[d])
                                                                    : index / shape[d];
            offset += (index - next * shape[d]) * strides[d];
            index = next;
        }
        return ndim > 0 ? offset + index * strides[0] : offset;
    }
};

template <typename R, typename A>
struct StridedReduceParams {
    const void *in;
    ElementType type;
    Groups groups;  // one a result
    std::int64_t results;
    std::int64_t reduced;  // elements of each
    Dimensions kept;
    LongDimensions places;  // of the reduced elements
    Target<R, A> target;
};

template <typename C>
__device__ __noinline__ C load_one_converted(const void *data, ElementType type, std::int64_t index) {
    return load_as<C>(data, type, index);
}

template <typename F, typename C, typename R>
__global__ void __launch_bounds__(kThreads)
    strided_reduce_kernel(const __grid_constant__ StridedReduceParams<R, typename F::A> p) {
    using A = typename F::A;
    const int parts = p.target.parts;
    const int part = static_cast<int>(blockIdx.x % parts);
    const int group = p.groups.size();
    const int lane = p.groups.lane();
    const std::int64_t result =
        static_cast<std::int64_t>(blockIdx.x / parts) * p.groups.count() + p.groups.index();
    A sums[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) sums[j] = F::identity();
    if (result < p.results) {
        const std::int64_t base = p.kept.offset_at(result);
        const std::int64_t share = (p.reduced + parts - 1) / parts;
        const std::int64_t end = min(p.reduced, (part + 1) * share);
        for (std::int64_t i = part * share + lane; i < end; i += kInFlight * group) {
#pragma unroll
            for (int j = 0; j < kInFlight; ++j) {
                const std::int64_t at = i + j * group;
                if (at >= end) continue;
                const std::int64_t offset = base + p.places.offset_at(at);
                const C element = p.type == ElementTypeOf<C>::value ? static_cast<const C *>(p.in)[offset]
                                                                    : load_one_converted<C>(p.in, p.type, offset);
                sums[j] = F::join(sums[j], value_of<F>(element, at, p.target.bits));
            }
        }
    }
    A sum = F::join(F::join(sums[0], sums[1]), F::join(sums[2], sums[3]));
    sum = join_group<F>(sum, p.groups);
    if (lane == 0 && result < p.results) p.target.template store<F>(result, part, sum);
}

template <typename F, typename C, typename R>
cudaError_t launch_strided_reduction(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    StridedReduceParams<R, typename F::A> p;
    p.in = launch.in;
    p.type = launch.type;
    p.results = launch.kept;
    p.reduced = launch.reduced;
    for (int d = 0; d < launch.num_kept; ++d) p.kept.add(launch.kept_shape[d], launch.kept_strides[d]);
    p.places.ndim = launch.num_reduced;
    std::copy_n(launch.reduced_shape, launch.num_reduced, p.places.shape);
    std::copy_n(launch.reduced_strides, launch.num_reduced, p.places.strides);
    p.groups.bits = std::min(kThreadBits, bits_from((launch.reduced + kInFlight - 1) / kInFlight));
    const std::int64_t rows = kThreads >> p.groups.bits;
    const std::int64_t blocks = (launch.kept + rows - 1) / rows;
    p.target = make_target<F, C, R>(
        launch, parts_for<typename F::A>(launch, kStridedBlocks, blocks, launch.reduced / (kThreads * kInFlight)));
    const cudaError_t error = launch_kernel<strided_reduce_kernel<F, C, R>>(
        static_cast<unsigned>(blocks * p.target.parts), kThreads, stream, p);
    if (error != cudaSuccess) return error;
    return combine<F, R>(launch, p.target, stream);
}

}  // namespace cukern::cuda
