// Reductions on the GPU: which kernel takes a launch. Results depend on the shape, the alignment
// and on whether there is scratch memory: no atomics, a fixed order of joining.
//
// The build compiles this file for groups of element types, each with those that CUKERN_EACH_TYPE names.

#include "device/reduce/columns.cuh"
#include "device/reduce/rows.cuh"

namespace cukern::cuda {

// What a reduction is to the kernels, which tell a mean from a sum at its end, a product by a switch, and a
// minimum from a maximum by the bits of its elements.
constexpr Op kernel_of(Op op, ElementType type) {
    switch (op) {
        case Op::mean: return has_stored_kernel(op, type) ? op : Op::sum;
        case Op::prod: return Op::sum;
        case Op::std: return Op::var;
        case Op::min: return Op::max;
        case Op::argmin: return Op::argmax;
        case Op::all: return Op::any;
        default: return op;
    }
}

// Of elements as they are stored: results are of the type that they have unless another is asked for.
template <Op op, typename T>
cudaError_t launch_stored(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    constexpr ElementType kType = ElementTypeOf<T>::value;
    if constexpr (!has_stored_kernel(op, kType)) {
        return cudaErrorInvalidValue;
    } else {
        using F = KernelReducer<op, T>;
        using Long = std::conditional_t<gives_index<F>, Reducer<op, T>, F>;
        constexpr bool kWidens = op == Op::sum && (is_integer(kType) || kind_of(kType) == 'b');
        using R = std::conditional_t<std::is_same_v<F, IntegerVariance>, double,
                                     reduced_t<op, std::conditional_t<kWidens, accumulator_t<T>, T>>>;
        if (launch.slots > 0 && launch.slot >= launch.slots) return join_pieces<F, Long, T, R>(launch, stream);
        if constexpr (!has_columns_alone<F>)
            if (reduces_along_rows(launch)) return launch_rows<F, T, R>(launch, stream);
        return launch_columns<F, T, R>(launch, stream);
    }
}

template <typename T>
cudaError_t launch_stored_reduction(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    switch (kernel_of(launch.op, ElementTypeOf<T>::value)) {
        case Op::sum: return launch_stored<Op::sum, T>(launch, stream);
        case Op::mean: return launch_stored<Op::mean, T>(launch, stream);
        case Op::var: return launch_stored<Op::var, T>(launch, stream);
        case Op::max: return launch_stored<Op::max, T>(launch, stream);
        case Op::argmax: return launch_stored<Op::argmax, T>(launch, stream);
        case Op::any: return launch_stored<Op::any, T>(launch, stream);
        default: return cudaErrorInvalidValue;
    }
}

#define CUKERN_INSTANTIATE(type)                                                                   \
    template cudaError_t launch_stored_reduction<CTypeOf<ElementType::type>>(const ReduceLaunch &, \
                                                                             cudaStream_t) noexcept;
CUKERN_EACH_TYPE(CUKERN_INSTANTIATE)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::cuda
