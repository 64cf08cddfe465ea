// Copies of packed elements into packed elements of another type.
//
// convert_kernel
//   Idea: the source's type is the kernel's, that of out is a switch at run time which all threads take alike: one
//   kernel for each type serves all pairs. A thread takes four neighbouring elements at a time, so that what it
//   writes fills whole sectors even where out's elements are longer, and as many times four as make 16 bytes of
//   loads, all under way before the first is used. Where the source begins inside a vector, elements are loaded
//   one by one. Limited by device memory.
#pragma once

#include "device/elementwise/operands.cuh"
#include "device/follow.cuh"

#ifndef __CUDACC_RTC__
#include "device/launch_kernel.h"
#endif

namespace cukern::cuda {

template <typename T>
struct ConvertParams {
    void *out;
    const T *in;
    std::int64_t n;
    std::int64_t apart;  // from one of a thread's neighbours to the next; n where it takes them once
    int block;           // elements of a block
    ElementType to;
    bool in_vectors;  // whether a thread's neighbours in `in` are one
};

// Neighbours that a thread takes at a time, and how many times at most.
template <typename T>
inline constexpr int kNeighbours = sizeof(T) <= 4 ? 4 : 16 / static_cast<int>(sizeof(T));
template <typename T>
inline constexpr int kTimes = sizeof(T) <= 2 ? 4 / static_cast<int>(sizeof(T)) : 1;

// Writes neighbours by vectors of at most 16 bytes.
template <typename To, int count>
__device__ void store_neighbours(To *out, const To (&values)[count]) {
    constexpr int kBytes = count * static_cast<int>(sizeof(To));
    using Part = Elements<To, kBytes <= 16 ? count : 16 / static_cast<int>(sizeof(To))>;
#pragma unroll
    for (int i = 0; i < count; i += Part::kSize) {
        Part part;
#pragma unroll
        for (int e = 0; e < Part::kSize; ++e) part.values[e] = values[i + e];
        *reinterpret_cast<Part *>(out + i) = part;
    }
}

// `x`: what a thread has loaded, its neighbours from element `first` on and then those `apart`.
template <typename To, typename T>
__device__ void store_all(const ConvertParams<T> &p, Words x, std::int64_t first) {
    using Neighbours = Elements<T, kNeighbours<T>>;
    auto *const out = static_cast<To *>(p.out);
#pragma unroll 1
    for (int k = 0; k < kTimes<T>; ++k, first += p.apart) {
        const auto neighbours = take_front<Neighbours>(x);
        if (first + Neighbours::kSize > p.n) return;
        To converted[Neighbours::kSize];
#pragma unroll
        for (int e = 0; e < Neighbours::kSize; ++e) converted[e] = convert<To>(neighbours.values[e]);
        store_neighbours(out + first, converted);
    }
}

template <typename T>
__device__ __noinline__ void store_converted(void *data, ElementType type, std::int64_t index, T value) {
    store_as<T>(data, type, index, value);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) convert_kernel(const __grid_constant__ ConvertParams<T> p) {
    using Neighbours = Elements<T, kNeighbours<T>>;
    constexpr int kSize = Neighbours::kSize;
    static_assert(kTimes<T> * sizeof(Neighbours) == sizeof(Words));
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * p.block + threadIdx.x * kSize;
    Neighbours x[kTimes<T>] = {};
    follow_kernel_before();
#pragma unroll
    for (int k = 0; k < kTimes<T>; ++k) {
        const std::int64_t at = first + k * p.apart;
        if (at + kSize > p.n) continue;
        if (p.in_vectors) {
            x[k] = *reinterpret_cast<const Neighbours *>(p.in + at);
        } else {
#pragma unroll
            for (int e = 0; e < kSize; ++e) x[k].values[e] = p.in[at + e];
        }
    }
    Words words;
    memcpy(&words, x, sizeof words);
    switch (p.to) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: store_all<ctype>(p, words, first); break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    // What is left of the whole array.
    const std::int64_t at = p.n - p.n % kSize + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && at < p.n) store_converted<T>(p.out, p.to, at, p.in[at]);
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
// Whether a launch copies packed elements from T into another type.
template <typename T>
bool is_packed_conversion(const ElementwiseLaunch &launch) noexcept {
    return launch.op == Op::copy && launch.ndim == 1 && !launch.immediate[1] &&
           launch.types[1] == ElementTypeOf<T>::value && launch.strides[0][0] == 1 && launch.strides[1][0] == 1 &&
           reinterpret_cast<std::uintptr_t>(launch.data[0]) % 16 == 0 &&
           reinterpret_cast<std::uintptr_t>(launch.data[1]) % alignof(T) == 0;
}

template <typename T>
cudaError_t launch_convert(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    constexpr std::int64_t kOnce = std::int64_t{kThreads} * kNeighbours<T>;
    constexpr std::int64_t kMuch = kMultiprocessors * 4 * kOnce * kTimes<T>;
    const std::int64_t block = launch.count < kMuch ? kOnce : kOnce * kTimes<T>;
    ConvertParams<T> p{launch.data[0],
                       static_cast<const T *>(launch.data[1]),
                       launch.count,
                       launch.count < kMuch ? launch.count : kOnce,
                       static_cast<int>(block),
                       launch.types[0],
                       reinterpret_cast<std::uintptr_t>(launch.data[1]) % (kNeighbours<T> * sizeof(T)) == 0};
    return launch_kernel<convert_kernel<T>>(static_cast<unsigned>((launch.count + block - 1) / block), kThreads,
                                            stream, p, launch.prepared);
}
#endif

}  // namespace cukern::cuda
