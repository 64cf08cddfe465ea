// What the kernels of reductions share: groups of threads that take a result together, and where it goes.
//
// combine_kernel
//   Idea: where one result takes more than one block, blocks leave partial results in scratch memory; a warp joins
//   those of one result.
#pragma once

#include <algorithm>

#include "device/grid.cuh"
#include "device/kernels.h"
#include "device/shuffle.cuh"
#include "device/vector.cuh"
#include "formulas/reducers.cuh"

namespace cukern::cuda {

constexpr int kInFlight = 4;  // loads of a thread before the first is used

template <typename F, typename = void>
inline constexpr bool gives_index = false;
template <typename F>
inline constexpr bool gives_index<F, std::void_t<decltype(F::A::index)>> = true;

// Joins what comes later among a thread's own elements.
template <typename F, typename A = typename F::A>
__device__ A join_later(A a, A b) {
    if constexpr (gives_index<F>)
        return F::join_later(a, b);
    else
        return F::join(a, b);
}

// Joins `loads` values in pairs, so that sums stay accurate and all loads come before the first use.
template <typename F, int loads, typename A = typename F::A>
__device__ A join_pairs(A (&values)[loads]) {
#pragma unroll
    for (int by = 1; by < loads; by *= 2)
#pragma unroll
        for (int j = 0; j + by < loads; j += 2 * by) values[j] = join_later<F>(values[j], values[j + by]);
    return values[0];
}

// The threads of a block in groups of 2**bits that follow each other: no divisions, which took short reductions as
// long as their loads.
struct Groups {
    int bits;

    __device__ int size() const { return 1 << bits; }
    __device__ int count() const { return kThreads >> bits; }
    __device__ int index() const { return static_cast<int>(threadIdx.x) >> bits; }
    __device__ int lane() const { return static_cast<int>(threadIdx.x) & (size() - 1); }
};

// The exponent of the first power of two from n on.
inline int bits_from(std::int64_t n) noexcept {
    int bits = 0;
    while ((std::int64_t{1} << bits) < n) ++bits;
    return bits;
}

constexpr int kThreadBits = 8;
static_assert(kThreads == 1 << kThreadBits);

// Joins the values of each group in its first thread. All threads of the block take part.
template <typename F, typename A = typename F::A>
__device__ A join_group(A value, Groups groups) {
    __shared__ alignas(16) unsigned char memory[8 * sizeof(A)];
    auto *shared = reinterpret_cast<A *>(memory);
    for (int by = min(groups.size(), 32) / 2; by > 0; by /= 2) value = F::join(value, shuffled_down(value, by));
    if (groups.size() <= 32) return value;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    __syncthreads();  // the memory may be in use still
    if (threadIdx.x % 32 == 0) shared[warp] = value;
    __syncthreads();
    if (groups.lane() == 0)
        for (int i = 1; i < groups.size() / 32; ++i) value = F::join(value, shared[warp + i]);
    return value;
}

// Where a result goes: the results themselves, or partial ones.
template <typename R, typename A>
struct Target {
    R *out;
    A *partial;  // null: to out
    int parts;
    std::int64_t count;  // of the elements of a result

    template <typename F>
    __device__ void store(std::int64_t result, int part, A value) const {
        if (partial != nullptr)
            partial[result * parts + part] = value;
        else
            out[result] = F::template result<R>(value, count);
    }
};

template <typename F, typename R>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const Target<R, typename F::A> target, std::int64_t results) {
    const std::int64_t result = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    typename F::A value = F::identity();
    if (result < results)
        for (int part = lane; part < target.parts; part += 32)
            value = F::join(value, target.partial[result * target.parts + part]);
    value = join_group<F>(value, Groups{5});
    if (lane == 0 && result < results) target.out[result] = F::template result<R>(value, target.count);
}

// How many blocks share a result, so that there are enough of them and each has work; as much as scratch memory
// holds.
template <typename A>
int parts_for(const ReduceLaunch &launch, std::int64_t wanted, std::int64_t blocks, std::int64_t most) noexcept {
    if (launch.scratch == nullptr) return 1;
    const auto fit = launch.scratch_bytes / static_cast<std::int64_t>(sizeof(A)) / launch.kept;
    return static_cast<int>(std::max<std::int64_t>(1, std::min({wanted / blocks, most, fit})));
}

template <typename F, typename R>
Target<R, typename F::A> make_target(const ReduceLaunch &launch, int parts) noexcept {
    return {static_cast<R *>(launch.out), parts > 1 ? static_cast<typename F::A *>(launch.scratch) : nullptr,
            parts, launch.reduced};
}

template <typename F, typename R>
cudaError_t combine(const ReduceLaunch &launch, const Target<R, typename F::A> &target,
                    cudaStream_t stream) noexcept {
    if (target.parts == 1) return cudaSuccess;
    combine_kernel<F, R><<<blocks_for(launch.kept * 32), kThreads, 0, stream>>>(target, launch.kept);
    return cudaPeekAtLastError();
}

}  // namespace cukern::cuda
