// Elementwise kernels: those of packed operands, and which kernel serves what.
//
// contiguous_kernel
//   Idea: a thread takes one 16-byte vector of each operand; an operand given by value costs no memory. What lies
//   before the first whole vector of out and after the last takes a thread an element. An operand that is aligned
//   otherwise than out is loaded by elements, which neighbouring threads find in the L1 cache.
//   Moves every byte once and does next to no arithmetic: limited by device memory.
//
// The build compiles this file for groups of element types, each with those that CUKERN_EACH_TYPE names.

#include <algorithm>

#include "device/elementwise/convert.cuh"
#include "device/elementwise/layouts.cuh"
#include "device/elementwise/strided.cuh"
#include "device/elementwise/where.cuh"
#include "device/kernels.h"
#include "device/launch_kernel.h"

namespace cukern::cuda {

template <typename T, typename R, int inputs>
struct ContiguousParams {
    R *out;
    const T *in[inputs];  // null: the value below
    T values[inputs];
    bool aligned[inputs];  // as out is
    int head;              // elements before the first whole vector of out
    std::int64_t n;
    Op op;
};

// `Operations`: One of them, or AnyOf a group.
template <typename Operations, typename T, int inputs>
__global__ void __launch_bounds__(kThreads)
    contiguous_kernel(const ContiguousParams<T, typename Operations::Result, inputs> p) {
    using Result = typename Operations::Result;
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    constexpr int kSize = Vector<T>::kSize;
    const std::int64_t vectors = (p.n - p.head) / kSize;
    if (i < vectors) {
        const std::int64_t first = p.head + i * kSize;
        Words x[inputs];
#pragma unroll
        for (int j = 0; j < inputs; ++j) {
            if (p.in[j] == nullptr)
                x[j] = repeat(p.values[j]);
            else if (p.aligned[j])
                x[j] = *reinterpret_cast<const Words *>(p.in[j] + first);
            else
                x[j] = load_elements<T>(p.in[j] + first, 1);
        }
        *reinterpret_cast<Elements<Result, kSize> *>(p.out + first) = Operations::of_vector(p.op, x);
        return;
    }
    const std::int64_t rest = i - vectors;
    const std::int64_t at = rest < p.head ? rest : vectors * kSize + rest;
    if (at >= p.n) return;
    T element[inputs];
#pragma unroll
    for (int j = 0; j < inputs; ++j) element[j] = p.in[j] != nullptr ? p.in[j][at] : p.values[j];
    p.out[at] = Operations::of_element(p.op, element);
}

// How many bytes lie before the first vector of so many bytes.
inline std::uintptr_t bytes_before(const void *data, std::uintptr_t vector) noexcept {
    return (vector - reinterpret_cast<std::uintptr_t>(data) % vector) % vector;
}

// The elements of out before its first whole vector, and which operands are aligned as it is: whether all are.
template <typename T, typename R, int inputs>
bool align(const ElementwiseLaunch &launch, int *head, bool (&aligned)[inputs]) noexcept {
    const auto before = bytes_before(launch.data[0], Vector<T>::kSize * sizeof(R)) / sizeof(R);
    *head = static_cast<int>(std::min<std::int64_t>(static_cast<std::int64_t>(before), launch.count));
    bool all = true;
    for (int j = 0; j < inputs; ++j) {
        aligned[j] =
            launch.immediate[j + 1] || bytes_before(launch.data[j + 1], sizeof(Words)) == before * sizeof(T);
        all = all && aligned[j];
    }
    return all;
}

// Whether vectors of packed operands serve best. Where operands of a short operation are aligned in several ways,
// broadcast_kernel serves an aligned out, and strided_kernel elements of less than 4 bytes.
template <typename Operations, typename T, int inputs>
bool takes_vectors(const ElementwiseLaunch &launch, bool is_long) noexcept {
    for (int j = 0; j < launch.num_operands; ++j) {  // complex numbers may begin at any of their parts
        const std::uintptr_t size = j == 0 ? sizeof(typename Operations::Result) : sizeof(T);
        if (!launch.immediate[j] && reinterpret_cast<std::uintptr_t>(launch.data[j]) % size != 0) return false;
    }
    int head = 0;
    bool aligned[inputs];
    const bool all = align<T, typename Operations::Result>(launch, &head, aligned);
    return all || is_long || (head != 0 && sizeof(T) >= 4);
}

template <typename Operations, typename T, int inputs>
cudaError_t launch_contiguous(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    ContiguousParams<T, typename Operations::Result, inputs> p;
    p.op = launch.op;
    p.out = static_cast<typename Operations::Result *>(launch.data[0]);
    p.n = launch.count;
    for (int j = 0; j < inputs; ++j) {
        p.in[j] = launch.immediate[j + 1] ? nullptr : static_cast<const T *>(launch.data[j + 1]);
        p.values[j] = launch.immediate[j + 1] ? value_of<T>(launch, j + 1) : T{};
    }
    align<T, typename Operations::Result>(launch, &p.head, p.aligned);
    const std::int64_t vectors = (p.n - p.head) / Vector<T>::kSize;
    const std::int64_t threads = p.n - vectors * (Vector<T>::kSize - 1);
    return launch_kernel<contiguous_kernel<Operations, T, inputs>>(blocks_for(threads), kThreads, stream, p);
}

// Of operands that are not all packed.
template <Group group, typename T>
cudaError_t launch_group(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    if constexpr (!has_functions<group>) {
        cudaError_t error = cudaSuccess;
        if (launch_layout<group, T>(launch, stream, &error)) return error;
    }
    return launch_strided(launch, stream);
}

template <Op op, typename T>
cudaError_t launch_op(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    constexpr ElementType kType = ElementTypeOf<T>::value;
    if constexpr (!has_kernel(op, kType)) {
        return cudaErrorInvalidValue;
    } else {
        constexpr Group kGroup = group_of(op, kType);
        if constexpr (op == Op::copy) {
            if (!is_contiguous(launch) && is_packed_conversion<T>(launch))
                return launch_convert<T>(launch, stream);
        }
        // Functions of complex numbers are long, and strided_kernel has them, too.
        constexpr bool kHasContiguous =
            kernel_type(op, kType) == kType && !(has_functions<kGroup> && is_complex<T>);
        if constexpr (kHasContiguous) {
            using Operations = OperationsOf<op, T>;
            if (is_contiguous(launch) && takes_vectors<Operations, T, arity(op)>(launch, has_functions<kGroup>))
                return launch_contiguous<Operations, T, arity(op)>(launch, stream);
            if constexpr (op == Op::where) {
                if (has_packed_condition<T>(launch)) return launch_where<T>(launch, stream);
            }
        }
        return launch_group<kGroup, T>(launch, stream);
    }
}

template <typename T>
cudaError_t launch_elementwise(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    switch (launch.op) {
#define CUKERN_OP(id, kind, types, rule, doc) \
    case Op::id: return launch_op<Op::id, T>(launch, stream);
#include "cukern/ops.def"
#undef CUKERN_OP
        case Op::copy: return launch_op<Op::copy, T>(launch, stream);
        case Op::clip: return launch_op<Op::clip, T>(launch, stream);
    }
    return cudaErrorInvalidValue;
}

#define CUKERN_INSTANTIATE(type)                                                                   \
    template cudaError_t launch_elementwise<CTypeOf<ElementType::type>>(const ElementwiseLaunch &, \
                                                                        cudaStream_t) noexcept;    \
    template cudaError_t launch_strided<CTypeOf<ElementType::type>>(const ElementwiseLaunch &,     \
                                                                    cudaStream_t) noexcept;
CUKERN_EACH_TYPE(CUKERN_INSTANTIATE)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::cuda
