// Reductions on the GPU: which kernel takes a launch. Results depend on the shape, the alignment
// and on whether there is scratch memory: no atomics, a fixed order of joining.
//
// The build compiles this file once for each element type, whose name CUKERN_TYPE is.

#include "device/reduce/columns.cuh"
#include "device/reduce/rows.cuh"
#include "device/reduce/strided.cuh"

namespace cukern::cuda {

// Of elements as they are stored: results are of the type that they have unless another is asked for.
template <Op op, typename T>
cudaError_t launch_stored(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    if constexpr (!reduces_stored(op, ElementTypeOf<T>::value)) {
        return cudaErrorInvalidValue;
    } else {
        using F = ShortReducer<op, T>;
        using S = std::conditional_t<op == Op::sum && (std::is_integral_v<T> || std::is_same_v<T, Bool>),
                                     accumulator_t<T>, T>;
        using R = reduced_t<op, S>;
        return are_rows(launch) ? launch_rows<F, T, R>(launch, stream) : launch_columns<F, T, R>(launch, stream);
    }
}

template <Op op, typename C>
cudaError_t launch_converted(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    if constexpr (!reduces_in(op, ElementTypeOf<C>::value))
        return cudaErrorInvalidValue;
    else
        return launch_strided_reduction<Reducer<op, C>, C, reduced_t<op, C>>(launch, stream);
}

template <Op op, typename T>
cudaError_t launch_reduction_op(const ReduceLaunch &launch, bool stored, cudaStream_t stream) noexcept {
    if constexpr (is_reduction(op))
        return stored ? launch_stored<op, T>(launch, stream) : launch_converted<op, T>(launch, stream);
    else
        return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t launch_reduction(const ReduceLaunch &launch, bool stored, cudaStream_t stream) noexcept {
    switch (launch.op) {
#define CUKERN_OP(id, kind, types, rule, doc) \
    case Op::id: return launch_reduction_op<Op::id, T>(launch, stored, stream);
#include "cukern/ops.def"
#undef CUKERN_OP
        case Op::copy: break;
    }
    return cudaErrorInvalidValue;
}

template cudaError_t launch_reduction<CTypeOf<ElementType::CUKERN_TYPE>>(const ReduceLaunch &, bool,
                                                                         cudaStream_t) noexcept;

}  // namespace cukern::cuda
