// Reductions over any strides and of any element type.
//
// strided_reduce_kernel
//   Idea: a group of threads takes a result, each element's place is found by dividing its index through the
//   shape, and its value is converted on load. Limited by these divisions.
#pragma once

#include "device/reduce/group.cuh"

namespace cukern::cuda {

// Blocks that share the results, for each of 132 multiprocessors 16.
constexpr std::int64_t kStridedBlocks = 2112;

template <typename R, typename A>
struct StridedReduceParams {
    const void *in;
    ElementType type;
    int num_kept;
    int num_reduced;
    Groups groups;  // one a result
    std::int64_t results;
    std::int64_t kept_shape[kMaxReduceDims];
    std::int64_t kept_strides[kMaxReduceDims];
    std::int64_t reduced_shape[kMaxReduceDims];
    std::int64_t reduced_strides[kMaxReduceDims];
    Target<R, A> target;
};

// A function, and 32-bit quotients where they do: inlined, divisions were most of each kernel.
inline __device__ __noinline__ std::int64_t place_of(std::int64_t index, const std::int64_t *shape,
                                                     const std::int64_t *strides, int ndim) {
    std::int64_t offset = 0;
    for (int d = ndim - 1; d > 0; --d) {
        const std::int64_t next = (index | shape[d]) >> 32 == 0
                                      ? static_cast<std::uint32_t>(index) / static_cast<std::uint32_t>(shape[d])
                                      : index / shape[d];
        offset += (index - next * shape[d]) * strides[d];
        index = next;
    }
    return ndim > 0 ? offset + index * strides[0] : offset;
}

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
        const std::int64_t base = place_of(result, p.kept_shape, p.kept_strides, p.num_kept);
        const std::int64_t share = (p.target.count + parts - 1) / parts;
        const std::int64_t end = min(p.target.count, (part + 1) * share);
        for (std::int64_t i = part * share + lane; i < end; i += kInFlight * group) {
#pragma unroll
            for (int j = 0; j < kInFlight; ++j) {
                const std::int64_t at = i + j * group;
                if (at >= end) continue;
                const std::int64_t offset = base + place_of(at, p.reduced_shape, p.reduced_strides, p.num_reduced);
                const C element = p.type == ElementTypeOf<C>::value ? static_cast<const C *>(p.in)[offset]
                                                                    : load_one_converted<C>(p.in, p.type, offset);
                sums[j] = F::join(sums[j], F::of(element, at));
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
    p.num_kept = launch.num_kept;
    p.num_reduced = launch.num_reduced;
    p.results = launch.kept;
    std::copy_n(launch.kept_shape, launch.num_kept, p.kept_shape);
    std::copy_n(launch.kept_strides, launch.num_kept, p.kept_strides);
    std::copy_n(launch.reduced_shape, launch.num_reduced, p.reduced_shape);
    std::copy_n(launch.reduced_strides, launch.num_reduced, p.reduced_strides);
    p.groups.bits = std::min(kThreadBits, bits_from((launch.reduced + kInFlight - 1) / kInFlight));
    const std::int64_t rows = kThreads >> p.groups.bits;
    const std::int64_t blocks = (launch.kept + rows - 1) / rows;
    p.target = make_target<F, R>(
        launch, parts_for<typename F::A>(launch, kStridedBlocks, blocks, launch.reduced / (kThreads * kInFlight)));
    strided_reduce_kernel<F, C, R><<<static_cast<unsigned>(blocks * p.target.parts), kThreads, 0, stream>>>(p);
    if (const cudaError_t error = cudaPeekAtLastError(); error != cudaSuccess) return error;
    return combine<F, R>(launch, p.target, stream);
}

}  // namespace cukern::cuda
