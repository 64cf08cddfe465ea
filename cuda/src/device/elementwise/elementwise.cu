// Elementwise operations on the GPU: which kernel serves what.
//
// The build compiles this file for groups of element types, each with those that CUKERN_EACH_TYPE names.

#include "device/elementwise/contiguous.cuh"
#include "device/elementwise/convert.cuh"
#include "device/elementwise/layouts.cuh"
#include "device/elementwise/strided_launch.cuh"
#include "device/elementwise/where.cuh"
#include "device/kernels.h"

namespace cukern::cuda {

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
        if constexpr (has_packed_kernel<op>(kType)) {
            cudaError_t error = cudaSuccess;
            if (is_contiguous(launch, has_functions<kGroup>) && launch_contiguous<op, T>(launch, stream, &error))
                return error;
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
                                                                    const StridedPlan &, cudaStream_t) noexcept;
CUKERN_EACH_TYPE(CUKERN_INSTANTIATE)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::cuda
