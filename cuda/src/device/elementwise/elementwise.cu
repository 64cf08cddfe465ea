// Elementwise kernels: those of packed operands, and which kernel serves what.
//
// contiguous_kernel
//   Idea: a thread takes one 16-byte vector of each operand; an operand given by value costs no memory. The
//   elements after the last whole vector take a thread each.
//   Moves every byte once and does next to no arithmetic: limited by device memory.
//
// The build compiles this file for groups of element types, each with those that CUKERN_EACH_TYPE names.

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
    std::int64_t n;
    Op op;
};

// `Operations`: One of them, or AnyOf a group.
template <typename Operations, typename T, int inputs>
__global__ void __launch_bounds__(kThreads)
    contiguous_kernel(const ContiguousParams<T, typename Operations::Result, inputs> p) {
    using Result = typename Operations::Result;
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const std::int64_t vectors = p.n / Vector<T>::kSize;
    if (i < vectors) {
        Words x[inputs];
#pragma unroll
        for (int j = 0; j < inputs; ++j)
            x[j] = p.in[j] != nullptr ? reinterpret_cast<const Words *>(p.in[j])[i] : repeat(p.values[j]);
        reinterpret_cast<Elements<Result, Vector<T>::kSize> *>(p.out)[i] = Operations::of_vector(p.op, x);
        return;
    }
    const std::int64_t at = vectors * Vector<T>::kSize + (i - vectors);
    if (at >= p.n) return;
    T element[inputs];
#pragma unroll
    for (int j = 0; j < inputs; ++j) element[j] = p.in[j] != nullptr ? p.in[j][at] : p.values[j];
    p.out[at] = Operations::of_element(p.op, element);
}

inline bool is_vector_aligned(const ElementwiseLaunch &launch) noexcept {
    for (int i = 0; i < launch.num_operands; ++i)
        if (!launch.immediate[i] && reinterpret_cast<std::uintptr_t>(launch.data[i]) % 16 != 0) return false;
    return true;
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
    const std::int64_t vectors = p.n / Vector<T>::kSize;
    return launch_kernel<contiguous_kernel<Operations, T, inputs>>(blocks_for(vectors + p.n % Vector<T>::kSize),
                                                                   kThreads, stream, p);
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
            if (is_contiguous(launch) && is_vector_aligned(launch))
                return launch_contiguous<OperationsOf<op, T>, T, arity(op)>(launch, stream);
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
