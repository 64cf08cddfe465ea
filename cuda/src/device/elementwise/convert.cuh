// Copies of packed elements into packed elements of another type.
//
// convert_kernel
//   Idea: the source's type is the kernel's, that of out is a switch at run time which all threads take alike: one
//   kernel for each type serves all pairs. A thread takes up to four neighbouring elements at a time, and as many
//   times as make 16 bytes of loads, all under way before the first is used. Where these elements of out are more
//   than the 16 bytes that a thread writes at once, the next 16 are the next thread's, so that a warp writes whole
//   sectors, and a thread has the loads of one time alone under way. Where the source begins inside a vector,
//   elements are loaded one by one. Limited by device memory.
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
    bool at_once;     // whether those in `out` are
};

// Neighbours that a thread takes at a time, and how many times at most.
template <typename T>
inline constexpr int kNeighbours = sizeof(T) <= 4 ? 4 : 16 / static_cast<int>(sizeof(T));
template <typename T>
inline constexpr int kTimes = sizeof(T) <= 2 ? 4 / static_cast<int>(sizeof(T)) : 1;

// Whether a thread writes neighbours of so many bytes each at once.
template <typename T>
CUKERN_HD constexpr bool writes_at_once(std::size_t size) {
    return kNeighbours<T> * size <= sizeof(Words);
}

template <int count, typename T>
__device__ Elements<T, count> load_neighbours(const ConvertParams<T> &p, std::int64_t at) {
    if (p.in_vectors) return *reinterpret_cast<const Elements<T, count> *>(p.in + at);
    Elements<T, count> x;
#pragma unroll
    for (int e = 0; e < count; ++e) x.values[e] = p.in[at + e];
    return x;
}

template <typename To, typename T, int count>
__device__ void store_neighbours(const ConvertParams<T> &p, std::int64_t at, const Elements<T, count> &x) {
    Elements<To, count> converted;
#pragma unroll
    for (int e = 0; e < count; ++e) converted.values[e] = convert<To>(x.values[e]);
    *reinterpret_cast<Elements<To, count> *>(static_cast<To *>(p.out) + at) = converted;
}

// `x`: what a thread has loaded, its neighbours from element `first` on and then those `apart`.
template <typename To, typename T>
__device__ void store_all(const ConvertParams<T> &p, Words x, std::int64_t first) {
    using Neighbours = Elements<T, kNeighbours<T>>;
#pragma unroll 1
    for (int k = 0; k < kTimes<T>; ++k, first += p.apart) {
        const auto neighbours = take_front<Neighbours>(x);
        if (first + Neighbours::kSize > p.n) return;
        store_neighbours<To>(p, first, neighbours);
    }
}

// The same of longer elements: of a block's neighbours a thread takes as many at once as it writes.
template <typename To, typename T>
__device__ void load_and_store(const ConvertParams<T> &p) {
    constexpr int kEach = static_cast<int>(sizeof(Words) / sizeof(To));
    constexpr int kParts = kNeighbours<T> / kEach;
    const std::int64_t end = p.n - p.n % kNeighbours<T>;
    std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * p.block + threadIdx.x * kEach;
#pragma unroll 1
    for (int k = 0; k < kTimes<T>; ++k, first += p.apart) {
        Elements<T, kEach> x[kParts] = {};
#pragma unroll
        for (int i = 0; i < kParts; ++i)
            if (const std::int64_t at = first + i * kThreads * kEach; at < end)
                x[i] = load_neighbours<kEach>(p, at);
#pragma unroll
        for (int i = 0; i < kParts; ++i)
            if (const std::int64_t at = first + i * kThreads * kEach; at < end) store_neighbours<To>(p, at, x[i]);
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
        if (p.at_once && at + kSize <= p.n) x[k] = load_neighbours<kSize>(p, at);
    }
    Words words;
    memcpy(&words, x, sizeof words);
    switch (p.to) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id:                                                 \
        if constexpr (writes_at_once<T>(sizeof(ctype)))                   \
            store_all<ctype>(p, words, first);                            \
        else                                                              \
            load_and_store<ctype>(p);                                     \
        break;
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
                       reinterpret_cast<std::uintptr_t>(launch.data[1]) % (kNeighbours<T> * sizeof(T)) == 0,
                       writes_at_once<T>(static_cast<std::size_t>(size_of(launch.types[0])))};
    return launch_kernel<convert_kernel<T>>(static_cast<unsigned>((launch.count + block - 1) / block), kThreads,
                                            stream, p, launch.prepared);
}
#endif

}  // namespace cukern::cuda
