// Launches strided_kernel: how each operand is loaded, and where columns and rows lie.
#pragma once

#include "device/elementwise/strided.cuh"
#include "device/kernels.h"
#include "device/launch_kernel.h"

namespace cukern::cuda {

template <typename T>
Loading loading_of(const ElementwiseLaunch &launch, int operand) noexcept {
    const ElementType type = launch.types[operand];
    const bool is_real = kind_of(type) != 'c';
    const auto size = static_cast<std::uintptr_t>(size_of(type));
    const bool is_whole = is_complex<T> && reinterpret_cast<std::uintptr_t>(launch.data[operand]) % size == 0;
    const bool has_bits = size <= sizeof(T) && (is_real || is_whole);
    if (launch.immediate[operand]) return Loading::value;
    if (launch.compute == ElementType::bool_ || (launch.op == Op::where && operand == 1))
        return has_bits && is_real ? Loading::bits_of_truth : Loading::truth;
    if (launch.split) return Loading::split;
    if (!has_bits) return type == ElementTypeOf<T>::value ? Loading::t : Loading::other;
    if (type == ElementTypeOf<T>::value) return Loading::bits_of_t;
    if (std::is_same_v<T, float> && type == ElementType::bfloat16) return Loading::bits_of_bfloat16;
    if (std::is_same_v<T, float> && type == ElementType::float16) return Loading::bits_of_float16;
    if (is_wide<T> && is_short_integer(type)) return Loading::bits_of_short_integer;
    return loads_integers<T> && is_within_int64(type) ? Loading::bits_of_integer : Loading::bits_of_other;
}

constexpr bool is_of_bits(Loading loading) {
    return loading >= Loading::bits_of_t && loading <= Loading::bits_of_truth;
}

// Whether T may hold more of an element than a narrower type that is computed in: of integers, but not of bytes.
constexpr bool may_be_too_wide(Loading loading, ElementType type) {
    const bool is_converted = loading == Loading::bits_of_short_integer || loading == Loading::bits_of_other ||
                              loading == Loading::other;
    return is_converted && is_integer(type) && size_of(type) > 1;
}

// Sets how an input is loaded: whether T's kernels can.
template <typename T, int inputs>
bool set_loading(const ElementwiseLaunch &launch, int input, StridedParams<T, inputs> *p) noexcept {
    const ElementType type = launch.types[input + 1];
    const Loading loading = loading_of<T>(launch, input + 1);
    p->loadings[input] = loading;
    if (is_of_bits(loading)) p->sizes[input] = static_cast<std::int8_t>(size_of(type));
    switch (loading) {
        case Loading::value: p->values[input] = value_of<T>(launch, input + 1); return true;
        case Loading::bits_of_truth:
            // All but the sign of a float.
            p->masks[input] = static_cast<LowBits<T>>(
                kind_of(type) == 'f' ? (std::uint64_t{1} << (8 * size_of(type) - 1)) - 1 : ~std::uint64_t{0});
            return true;
        case Loading::truth: return true;
        case Loading::bits_of_short_integer: p->short_integers[input] = short_integer(type); break;
        case Loading::bits_of_integer:
            p->spare_bits[input] = static_cast<std::int8_t>(kind_of(type) == 'i' ? 64 - 8 * size_of(type) : 0);
            break;
        default: break;
    }
    return may_be_beside(type, ElementTypeOf<T>::value, inputs);
}

// Where columns lie: in tiles along all dimensions but one, else along all, of which one is shorter.
template <typename T, int inputs>
void set_columns(const ElementwiseLaunch &launch, const StridedPlan &plan, StridedParams<T, inputs> *p) noexcept {
    std::int64_t elements = 1;
    std::uint32_t length = 0;  // of the next faster dimension
    ColumnDimension<inputs> faster{};
    for (int i = 0; i < launch.ndim; ++i) {
        const int d = plan.order[i];
        const bool is_cut = d == plan.dimension;
        if (is_cut && plan.in_tiles) continue;
        ColumnDimension<inputs> strides{};
        for (int j = 0; j <= inputs; ++j) strides.strides[j] = static_cast<std::uint32_t>(launch.strides[j][d]);
        strides.row_stride = is_cut ? 1 : 0;
        ColumnDimension<inputs> &own = p->columns_by[p->dims++];
        own.elements = Divider::make(static_cast<std::uint32_t>(elements));
        for (int j = 0; j <= inputs; ++j) own.strides[j] = strides.strides[j] - length * faster.strides[j];
        own.row_stride = strides.row_stride - length * faster.row_stride;
        faster = strides;
        length = static_cast<std::uint32_t>(is_cut ? plan.apart : launch.shape[d]);
        elements *= length;
    }
}

template <typename T, int inputs>
cudaError_t launch_strided_of(const ElementwiseLaunch &launch, const StridedPlan &plan,
                              cudaStream_t stream) noexcept {
    StridedParams<T, inputs> p{};
    static_assert(sizeof p <= PreparedKernel::kMostBytes);
    p.op = launch.op;
    p.compute = launch.compute;
    // In 32 bits the complement of a truth is none.
    if (launch.compute == ElementType::bool_ && launch.op == Op::bitwise_invert) p.op = Op::logical_not;
    if (plan.in_tiles)
        p.tiles = {Divider::make(static_cast<std::uint32_t>(plan.apart * plan.width)),
                   Divider::make(static_cast<std::uint32_t>(plan.width)),
                   Divider::make(static_cast<std::uint32_t>(plan.across)), static_cast<std::uint32_t>(plan.apart)};
    p.rows = static_cast<std::uint32_t>(launch.shape[plan.dimension]);
    p.apart = static_cast<std::uint32_t>(plan.apart);
    p.columns = static_cast<std::uint32_t>(plan.columns);
    p.each = plan.each;
    p.in_tiles = plan.in_tiles;
    p.are_own = true;
    set_columns(launch, plan, &p);
    for (int j = 0; j <= inputs; ++j) {
        p.data[j] = launch.data[j];
        p.types[j] = launch.types[j];
        p.row_strides[j] = static_cast<std::int32_t>(launch.strides[j][plan.dimension]);
        p.steps[j] = static_cast<std::int32_t>(launch.strides[j][plan.dimension] * plan.apart);
        if (j > 0 && !set_loading(launch, j - 1, &p)) return cudaErrorInvalidValue;
        p.narrows[j] =
            launch.compute != ElementTypeOf<T>::value && launch.op != Op::copy &&
            (j == 0 ? launch.types[0] != launch.result : may_be_too_wide(p.loadings[j - 1], p.types[j]));
        if (j > 0) p.are_own = p.are_own && p.loadings[j - 1] == Loading::bits_of_t;
    }
    return launch_kernel<strided_kernel<T, inputs>>(plan.blocks, kThreads, stream, p, launch.prepared);
}

template <typename T>
cudaError_t launch_strided(const ElementwiseLaunch &launch, const StridedPlan &plan,
                           cudaStream_t stream) noexcept {
    if constexpr (wide_type(ElementTypeOf<T>::value) == ElementTypeOf<T>::value) {
        switch (launch.num_operands - 1) {
            case 1: return launch_strided_of<T, 1>(launch, plan, stream);
            case 2: return launch_strided_of<T, 2>(launch, plan, stream);
            case 3: return launch_strided_of<T, 3>(launch, plan, stream);
            default: break;
        }
    }
    return cudaErrorInvalidValue;
}

}  // namespace cukern::cuda
