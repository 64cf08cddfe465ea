// Packed operands of one element type.
//
// contiguous_kernel
//   Idea: a thread takes one 16-byte vector of each operand (where results are shorter than elements of 8 bytes,
//   four, one after the other); an operand given by value costs no memory, and for functions neither one that is
//   one element. What lies before the first whole vector of out and after the last takes a thread an element.
//   Where an operand is aligned otherwise than out, its vectors are put together from the two aligned ones that
//   hold each, of 8 bytes from two elements. Moves every byte once and does next to no arithmetic: limited by
//   device memory.
#pragma once

#include "device/elementwise/operands.cuh"
#include "device/follow.cuh"

#ifndef __CUDACC_RTC__
#include <algorithm>

#include "device/launch_kernel.h"
#endif

namespace cukern::cuda {

template <typename T, typename R, int inputs>
struct ContiguousParams {
    R *out;                // its first whole vector
    const T *in[inputs];   // what belongs to it; null: the value below
    bool repeats[inputs];  // of functions: one element for all
    T values[inputs];
    std::int64_t vectors;
    int head;      // elements before the first vector
    int rest;      // before it and after the last
    int rounds;    // of a block, each of a vector a thread
    bool aligned;  // all operands as out is
    Op op;
};

// Blocks that a multiprocessor has at least, which leaves elements of 8 bytes and more 48 registers. Of float64
// kernels take up to 40, quotients of complex128 38.
template <typename T>
inline constexpr int kContiguousBlocks = kMultiprocessorThreads * (sizeof(T) >= 8 ? 5 : 6) / 8 / kThreads;

// Rounds of a block where results are shorter than operands of 8 bytes, if there are so many vectors: blocks of
// one round end before the next ones have begun to read. (Of 4 bytes there is no gain.)
constexpr int kRounds = 4;
constexpr std::int64_t kManyVectors = 1 << 22;
template <typename T, typename R>
inline constexpr bool reads_most = sizeof(T) >= 8 && sizeof(R) < sizeof(T);

// Whether operands of one element are read as they are. Of other operations broadcast_kernel takes them.
template <typename Operations>
inline constexpr bool may_repeat = has_functions<Operations::kGroup>;

// `Operations`: One of them, or AnyOf a group.
template <typename Operations, typename T, int inputs>
__global__ void __launch_bounds__(kThreads, kContiguousBlocks<T>)
    contiguous_kernel(const ContiguousParams<T, typename Operations::Result, inputs> p) {
    using Result = typename Operations::Result;
    constexpr int kSize = Vector<T>::kSize;
    const int rounds = reads_most<T, Result> ? p.rounds : 1;
    std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * rounds * kThreads + threadIdx.x;
    follow_kernel_before();
#pragma unroll 1
    for (int round = 0; round < rounds; ++round, i += kThreads) {
        if (i >= p.vectors) {
            const std::int64_t rest = i - p.vectors;
            if (rest >= p.rest) return;
            const std::int64_t at = (rest < p.head ? 0 : p.vectors * kSize) + rest - p.head;
            T element[inputs];
#pragma unroll
            for (int j = 0; j < inputs; ++j)
                element[j] = p.in[j] == nullptr                       ? p.values[j]
                             : may_repeat<Operations> && p.repeats[j] ? *p.in[j]
                                                                      : p.in[j][at];
            p.out[at] = Operations::of_element(p.op, element);
            continue;
        }
        Words x[inputs];
#pragma unroll
        for (int j = 0; j < inputs; ++j) {
            if (p.in[j] == nullptr)
                x[j] = repeat(p.values[j]);
            else if (may_repeat<Operations> && p.repeats[j])
                x[j] = repeat(*p.in[j]);
            else if (Operations::kAligned || p.aligned)
                x[j] = reinterpret_cast<const Words *>(p.in[j])[i];
            else
                x[j] = load_shifted(p.in[j] + i * kSize);
        }
        reinterpret_cast<Elements<Result, kSize> *>(p.out)[i] = Operations::of_vector(p.op, x);
    }
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
// How many bytes lie before the first vector of so many bytes.
inline std::uintptr_t bytes_before(const void *data, std::uintptr_t vector) noexcept {
    return (vector - reinterpret_cast<std::uintptr_t>(data) % vector) % vector;
}

// How packed operands lie in vectors.
struct InVectors {
    bool whole;    // they begin at whole elements; complex numbers may begin at any of their parts
    bool aligned;  // all as out is
    int head;      // elements of out before the first vector
    std::int64_t vectors;
};

template <typename T, typename R>
InVectors in_vectors(const ElementwiseLaunch &launch) noexcept {
    constexpr int kSize = Vector<T>::kSize;
    const auto before = bytes_before(launch.data[0], kSize * sizeof(R));
    const std::uintptr_t head = before / sizeof(R);
    InVectors found{before % sizeof(R) == 0, true, 0, 0};
    for (int j = 1; j < launch.num_operands; ++j) {
        if (is_repeated(launch, j)) continue;
        const std::uintptr_t of_operand = bytes_before(launch.data[j], sizeof(Words));
        found.whole = found.whole && of_operand % sizeof(T) == 0;
        found.aligned = found.aligned && of_operand == head * sizeof(T);
    }
    const int beside = found.aligned ? 0 : kSize;  // elements beside vectors that load_shifted looks at
    found.head = static_cast<int>(std::min<std::int64_t>(static_cast<int>(head) + beside, launch.count));
    found.vectors = std::max<std::int64_t>(launch.count - found.head - beside, 0) / kSize;
    return found;
}

// `kernel`: a contiguous_kernel.
template <typename T, typename R, int inputs>
cudaError_t launch_vectors(const KernelOf<ContiguousParams<T, R, inputs>> &kernel, const ElementwiseLaunch &launch,
                           const InVectors &in, cudaStream_t stream) noexcept {
    ContiguousParams<T, R, inputs> p;
    p.op = launch.op;
    p.out = static_cast<R *>(launch.data[0]) + in.head;
    for (int j = 0; j < inputs; ++j) {
        const auto *const data = static_cast<const T *>(launch.data[j + 1]);
        p.repeats[j] = is_repeated(launch, j + 1);
        p.in[j] = launch.immediate[j + 1] ? nullptr : p.repeats[j] ? data : data + in.head;
        p.values[j] = launch.immediate[j + 1] ? value_of<T>(launch, j + 1) : T{};
    }
    p.vectors = in.vectors;
    p.head = in.head;
    p.rest = static_cast<int>(launch.count - in.vectors * Vector<T>::kSize);
    p.aligned = in.aligned;
    p.rounds = reads_most<T, R> && p.vectors >= kManyVectors ? kRounds : 1;
    const std::int64_t threads = (p.vectors + p.rest + p.rounds - 1) / p.rounds;
    return launch_kernel(kernel, blocks_for(threads), kThreads, stream, p, launch.prepared);
}

// Launches contiguous_kernel if it serves packed operands: whether it did.
template <Op op, typename T>
bool launch_contiguous(const ElementwiseLaunch &launch, cudaStream_t stream, cudaError_t *error) noexcept {
    using Operations = OperationsOf<op, T>;
    using Unaligned =
        std::conditional_t<Operations::kAligned, AnyOf<group_of(op, ElementTypeOf<T>::value), T>, Operations>;
    using Result = typename Operations::Result;
    static_assert(std::is_same_v<typename Unaligned::Result, Result>);
    constexpr int kInputs = arity(op);
    const InVectors in = in_vectors<T, Result>(launch);
    if (!in.whole) return false;
    const auto kernel = in.aligned ? kernel_of<contiguous_kernel<Operations, T, kInputs>>()
                                   : kernel_of<contiguous_kernel<Unaligned, T, kInputs>>();
    *error = launch_vectors<T, Result, kInputs>(kernel, launch, in, stream);
    return true;
}
#endif

}  // namespace cukern::cuda
