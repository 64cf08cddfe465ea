// Elementwise kernels: one template for packed operands, one for any strides and element types.
//
// contiguous_kernel
//   Idea: a thread takes one 16-byte vector of each operand; an operand given by value costs no memory. The
//   elements after the last whole vector take a thread each.
//   Moves every byte once and does next to no arithmetic: limited by device memory.
// strided_kernel
//   Idea: a thread takes four elements of out, a block's threads apart, and finds their operands' places by
//   dividing indices through the shape. All loads of an operand are under way before the first is used. Operands
//   of another type are converted on load and store; the type is uniform over the launch. All operations of as
//   many operands share a kernel, of which the conversions are most, as functions; results are of the type that is
//   computed in, also truths, until they are stored. Limited by memory while neighbouring threads touch
//   neighbouring elements, else by the number of sectors.
//
// The build compiles this file for groups of element types, each with those that CUKERN_EACH_TYPE names.

#include <algorithm>

#include "cukern/testing.h"
#include "device/elementwise/convert.cuh"
#include "device/elementwise/layouts.cuh"
#include "device/elementwise/where.cuh"
#include "device/kernels.h"
#include "device/launch_kernel.h"
#include "formulas/evaluate.cuh"

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

// Most arrays reduce to few dimensions; what has more is launched in parts.
constexpr int kFewDims = 8;
constexpr std::int64_t kMostElements = std::int64_t{1} << 31;  // of one strided launch: indices are 32 bits wide

// Elements of a thread of strided_kernel.
template <typename T>
inline constexpr int kTurns = sizeof(T) <= 8 ? 4 : 2;

template <typename T, int inputs>
struct StridedParams {
    void *data[inputs + 1];
    std::int64_t strides[inputs + 1][kFewDims];
    Divider shape[kFewDims];
    std::uint32_t n;
    T values[inputs];
    int ndim;
    Op op;
    ElementType types[inputs + 1];
    bool immediate[inputs + 1];
    bool split;
};

// Places of a thread's elements in an operand.
template <typename T>
struct Places {
    std::int64_t at[kTurns<T>];
};

// `truth`: of a condition, which is converted by its truth in its own type. All loads are under way before the
// first is converted.
template <typename T, typename From, bool truth>
__device__ Elements<T, kTurns<T>> load_each(const void *data, const Places<T> &places) {
    From x[kTurns<T>];
#pragma unroll
    for (int k = 0; k < kTurns<T>; ++k) x[k] = static_cast<const From *>(data)[places.at[k]];
    Elements<T, kTurns<T>> converted;
#pragma unroll
    for (int k = 0; k < kTurns<T>; ++k) {
        if constexpr (truth)
            converted.values[k] = convert<T>(convert<Bool>(x[k]));
        else
            converted.values[k] = convert<T>(x[k]);
    }
    return converted;
}

template <typename T, bool truth>
__device__ __noinline__ Elements<T, kTurns<T>> load_converted(const void *data, ElementType type,
                                                              const Places<T> places) {
    switch (type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    case ElementType::id: return load_each<T, ctype, truth>(data, places);
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
    return {};
}

template <typename T, int inputs, typename P>
__device__ Elements<T, kTurns<T>> load_strided(const P &p, const Places<T> &places, int input) {
    const void *const data = p.data[input + 1];
    const ElementType type = p.types[input + 1];
    if constexpr (inputs == 3) {
        if (p.op == Op::where && input == 0) return load_converted<T, true>(data, type, places);
    }
    if constexpr (inputs == 2 && may_split<Op::less, T>) {
        if (p.split) {
            Elements<T, kTurns<T>> x;
            for (int k = 0; k < kTurns<T>; ++k)
                x.values[k] = load_operand<Op::less, T>(data, type, places.at[k], true, input);
            return x;
        }
    }
    return type == ElementTypeOf<T>::value ? load_each<T, T, false>(data, places)
                                           : load_converted<T, false>(data, type, places);
}

template <typename T, int inputs>
__global__ void __launch_bounds__(kThreads) strided_kernel(const __grid_constant__ StridedParams<T, inputs> p) {
    constexpr int kCount = kTurns<T>;
    const std::uint32_t first = blockIdx.x * kThreads * kCount + threadIdx.x;
    if (first >= p.n) return;
    Places<T> places[inputs + 1] = {};
    std::uint32_t rest[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) rest[k] = min(first + k * kThreads, p.n - 1);
    for (int d = p.ndim - 1; d > 0; --d) {
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            std::uint32_t index;
            rest[k] = p.shape[d].divide(rest[k], &index);
#pragma unroll
            for (int j = 0; j <= inputs; ++j) places[j].at[k] += index * p.strides[j][d];
        }
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k)
#pragma unroll
        for (int j = 0; j <= inputs; ++j) places[j].at[k] += rest[k] * p.strides[j][0];
    Elements<T, kCount> x[inputs];
#pragma unroll
    for (int j = 0; j < inputs; ++j) {
        if (!p.immediate[j + 1]) {
            x[j] = load_strided<T, inputs>(p, places[j + 1], j);
        } else {
#pragma unroll
            for (int k = 0; k < kCount; ++k) x[j].values[k] = p.values[j];
        }
    }
    // One after the other, so that the operation is there once.
#pragma unroll 1
    for (std::uint32_t i = first; i < p.n && i < first + kCount * kThreads; i += kThreads) {
        T element[inputs];
#pragma unroll
        for (int j = 0; j < inputs; ++j) element[j] = x[j].values[0];
        const T result = apply_any<T, inputs>(p.op, element);
        if (p.types[0] == ElementTypeOf<T>::value)
            static_cast<T *>(p.data[0])[places[0].at[0]] = result;
        else
            store_converted<T>(p.data[0], p.types[0], places[0].at[0], result);
#pragma unroll
        for (int k = 1; k < kCount; ++k) {
            places[0].at[k - 1] = places[0].at[k];
#pragma unroll
            for (int j = 0; j < inputs; ++j) x[j].values[k - 1] = x[j].values[k];
        }
    }
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

// The part of a launch from `begin` on along one dimension.
inline ElementwiseLaunch part_of(const ElementwiseLaunch &launch, int dimension, std::int64_t begin,
                                 std::int64_t length) noexcept {
    ElementwiseLaunch part = launch;
    part.shape[dimension] = length;
    part.count = launch.count / launch.shape[dimension] * length;
    for (int j = 0; j < launch.num_operands; ++j)
        if (!launch.immediate[j])
            part.data[j] = static_cast<char *>(part.data[j]) +
                           begin * launch.strides[j][dimension] * size_of(launch.types[j]);
    return part;
}

inline void drop_dimension(ElementwiseLaunch &launch, int dimension) noexcept {
    --launch.ndim;
    for (int d = dimension; d < launch.ndim; ++d) {
        launch.shape[d] = launch.shape[d + 1];
        for (int j = 0; j < launch.num_operands; ++j) launch.strides[j][d] = launch.strides[j][d + 1];
    }
}

using PartLauncher = cudaError_t (*)(const ElementwiseLaunch &, cudaStream_t) noexcept;

// Too many elements: in halves of the longest dimension. Too many dimensions: one by one along the shortest.
inline cudaError_t launch_in_parts(const ElementwiseLaunch &launch, cudaStream_t stream,
                                   PartLauncher launcher) noexcept {
    const bool halves = launch.count >= kMostElements;
    int cut = 0;
    for (int d = 1; d < launch.ndim; ++d)
        if (halves ? launch.shape[d] > launch.shape[cut] : launch.shape[d] < launch.shape[cut]) cut = d;
    const std::int64_t step = halves ? (launch.shape[cut] + 1) / 2 : 1;
    for (std::int64_t begin = 0; begin < launch.shape[cut]; begin += step) {
        ElementwiseLaunch part = part_of(launch, cut, begin, std::min(step, launch.shape[cut] - begin));
        if (!halves) drop_dimension(part, cut);
        const cudaError_t error =
            testing::fails(testing::Fault::part) ? cudaErrorMemoryAllocation : launcher(part, stream);
        // A call that runs out of memory is tried again, which must not repeat parts that may be in place.
        if (error == cudaErrorMemoryAllocation && begin > 0) return cudaErrorLaunchOutOfResources;
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

template <typename T, int inputs>
cudaError_t launch_strided(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    if (launch.count >= kMostElements || launch.ndim > kFewDims)
        return launch_in_parts(launch, stream, launch_elementwise<T>);
    StridedParams<T, inputs> p;
    p.op = launch.op;
    p.n = static_cast<std::uint32_t>(launch.count);
    p.ndim = launch.ndim;
    p.split = launch.split;
    for (int d = 0; d < launch.ndim; ++d) p.shape[d] = Divider::make(static_cast<std::uint32_t>(launch.shape[d]));
    for (int j = 0; j <= inputs; ++j) {
        p.data[j] = launch.data[j];
        p.types[j] = launch.types[j];
        p.immediate[j] = launch.immediate[j];
        std::copy_n(launch.strides[j], launch.ndim, p.strides[j]);
        if (j > 0) p.values[j - 1] = launch.immediate[j] ? value_of<T>(launch, j) : T{};
    }
    const std::int64_t threads = (launch.count + kTurns<T> - 1) / kTurns<T>;
    return launch_kernel<strided_kernel<T, inputs>>(blocks_for(threads), kThreads, stream, p);
}

// Of operands that are not all packed.
template <Group group, typename T>
cudaError_t launch_group(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    cudaError_t error = cudaSuccess;
    if (launch_layout<group, T>(launch, stream, &error)) return error;
    return launch_strided<T, arity(group)>(launch, stream);
}

template <Op op, typename T>
cudaError_t launch_op(const ElementwiseLaunch &launch, cudaStream_t stream) noexcept {
    constexpr ElementType kType = ElementTypeOf<T>::value;
    if constexpr (!computes_in(op, kType)) {
        return cudaErrorInvalidValue;
    } else {
        constexpr Group kGroup = group_of(op, kType);
        if constexpr (op == Op::copy) {
            if (!is_contiguous(launch) && is_packed_conversion<T>(launch))
                return launch_convert<T>(launch, stream);
        }
        // Functions of complex numbers are long, and the kernel of rows calls them, too.
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
                                                                        cudaStream_t) noexcept;
CUKERN_EACH_TYPE(CUKERN_INSTANTIATE)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::cuda
