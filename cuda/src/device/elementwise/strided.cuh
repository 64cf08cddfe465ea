// Operands of any strides and element types.
//
// strided_kernel
//   Idea: a thread takes a few elements of out that lie apart along one dimension, which is cut into as many
//   parts. The place of the first in each operand is a sum over the dimensions, of the thread's index divided by
//   the number of elements in all faster ones: no division waits for another one, as for remainders. The others
//   follow by adding. Where an operand is transposed, threads take tiles. All loads of an operand are under way
//   before the first is used. Operands of another type are converted on load and store; the type is uniform over
//   the launch. All operations of as many operands share a kernel; results are of the type that is computed in,
//   also truths, until they are stored. What an integer or a float of less than 32 bits computes is the same
//   computed in 32 bits and narrowed (but for the last bit of functions), so that types of 8 and 16 bits have no
//   kernels of their own. Limited by memory while neighbouring threads touch neighbouring elements, else by the
//   number of sectors.
#pragma once

#include "device/elementwise/groups.cuh"
#include "device/elementwise/strided_elements.cuh"
#include "device/elementwise/tiles.cuh"
#include "device/follow.cuh"

namespace cukern::cuda {

// A dimension of the columns. A column's index in dimension d is q[d] - length[d] * q[d + 1], where q[d] is the
// column divided by the number of columns in all faster dimensions, and d counts from the fastest one. So its
// place, the sum of index[d] * stride[d], is the sum of q[d] * (stride[d] - length[d - 1] * stride[d - 1]).
template <int inputs>
struct alignas(16) ColumnDimension {
    Divider elements;                   // columns in all faster dimensions
    std::uint32_t strides[inputs + 1];  // the factors of q in the places
    std::uint32_t row_stride;           // and in the index along the dimension that is cut
};

// What every launch reads comes first, close together: a multiprocessor fetches parameters by lines.
template <typename T, int inputs>
struct StridedParams {
    void *data[inputs + 1];
    std::int32_t steps[inputs + 1];        // from an element of a thread to the next
    std::int32_t row_strides[inputs + 1];  // in tiles
    std::uint32_t rows;                    // length of the dimension along which a thread's elements lie
    std::uint32_t apart;                   // their distance along it
    std::uint32_t columns;  // in tiles: elements of one row; else all elements that are the first of a thread
    std::int32_t each;      // elements of a thread
    int dims;               // of the columns
    Op op;
    ElementType compute;  // T, or a type that T serves
    bool in_tiles;
    bool are_own;  // of 8 bytes or more: all inputs are whole T, as most often; nothing more is asked about each
    ElementType types[inputs + 1];
    Loading loadings[inputs];
    std::int8_t sizes[inputs];       // of the elements that are loaded as bits; 0: they are not
    std::int8_t spare_bits[inputs];  // above those of signed integers that are loaded as bits; 0: unsigned
    bool narrows[inputs + 1];        // of `compute`, which T is not: values that it may not hold
    T values[inputs];
    LowBits<T> masks[inputs];  // of the bits of truths, those of which one is set where they are true
    ShortInteger short_integers[inputs];
    ColumnDimension<inputs> columns_by[kStridedDims];  // from the fastest, which divides by 1, to the slowest
    Tiles tiles;
};

template <typename T, int inputs>
inline constexpr bool may_load_truths = inputs == 3 || std::is_same_v<T, std::int32_t>;

// An operand's elements as T; `bits` where they are loaded as such.
template <typename T, int inputs>
__device__ Some<T> as_computed(const StridedParams<T, inputs> &p, int input, const SomeBits<T> &bits,
                               const Places<T> &places, int count) {
    const Loading loading = p.loadings[input];
    const ElementType type = p.types[input + 1];
    const void *const data = p.data[input + 1];
    Some<T> x;
    if (loading == Loading::value) {
#pragma unroll
        for (T &element : x.values) element = p.values[input];
        return x;
    }
    if (loading == Loading::bits_of_t) return bit_cast<Some<T>>(bits);
    if constexpr (std::is_same_v<T, float>) {
        if (loading == Loading::bits_of_bfloat16) {
#pragma unroll
            for (int k = 0; k < kStridedElements<T>; ++k) x.values[k] = bit_cast<float>(bits.values[k] << 16);
            return x;
        }
        if (loading == Loading::bits_of_float16) {
#pragma unroll
            for (int k = 0; k < kStridedElements<T>; ++k)
                x.values[k] = to_float(Float16{static_cast<std::uint16_t>(bits.values[k])});
            return x;
        }
    }
    if constexpr (is_wide<T>) {
        if (loading == Loading::bits_of_short_integer)
            return from_short_integers<T>(p.short_integers[input], bits);
    }
    if constexpr (loads_integers<T>) {
        if (loading == Loading::bits_of_integer) return from_integers<T>(p.spare_bits[input], bits);
    }
    if (loading == Loading::bits_of_other) return converted_bits<T, inputs>(type, bits);
    if constexpr (may_load_truths<T, inputs>) {
        if (loading == Loading::bits_of_truth) {
#pragma unroll
            for (int k = 0; k < kStridedElements<T>; ++k) {
                const bool is_true = (low_bits<LowBits<T>>(bits.values[k]) & p.masks[input]) != 0;
                x.values[k] = convert<T>(static_cast<std::uint8_t>(is_true));
            }
            return x;
        }
        if (loading == Loading::truth) return load_converted<T, true, inputs>(data, type, places, count);
    }
    if constexpr (inputs == 2 && may_split<Op::less, T>) {
        if (loading == Loading::split) {
            for (int k = 0; k < kStridedElements<T>; ++k)
                x.values[k] = load_operand<Op::less, T>(data, type, is_loaded_at<T>(k, count) ? places.at[k] : 0,
                                                        true, input);
            return x;
        }
    }
    return load_converted<T, false, inputs>(data, type, places, count);
}

// The operands of a thread's elements, all of them under way before the first is used.
template <typename T, int inputs>
__device__ void load_operands(const StridedParams<T, inputs> &p, const Places<T> (&places)[inputs + 1], int count,
                              Some<T> (&x)[inputs]) {
    if (sizeof(T) >= 8 && p.are_own) {
#pragma unroll
        for (int j = 0; j < inputs; ++j)
            x[j] = bit_cast<Some<T>>(load_bits_as<T, Bits<T>>(p.data[j + 1], places[j + 1], count));
        return;
    }
    SomeBits<T> bits[inputs];
#pragma unroll
    for (int j = 0; j < inputs; ++j)
        if (p.sizes[j] != 0) bits[j] = load_bits<T>(p.data[j + 1], p.sizes[j], places[j + 1], count);
#pragma unroll
    for (int j = 0; j < inputs; ++j) {
        x[j] = as_computed<T, inputs>(p, j, bits[j], places[j + 1], count);
        if constexpr (std::is_same_v<T, float>) {  // integers, beside floats of 16 bits
            if (p.narrows[j + 1]) x[j] = narrowed_to<T>(p.compute, x[j]);
        }
    }
}

constexpr bool computes_wide(Op op, ElementType wide) {
    for (int type = 0; type < kNumElementTypes; ++type)
        if (wide_type(static_cast<ElementType>(type)) == wide && has_kernel(op, static_cast<ElementType>(type)))
            return true;
    return false;
}
// Whether T's kernels of so many operands serve an operation.
template <Op op, int inputs, typename T>
inline constexpr bool serves = arity(op) == inputs && computes_wide(op, ElementTypeOf<T>::value);

template <Op op, typename T>
inline constexpr bool is_called = has_functions<group_of(op, ElementTypeOf<T>::value)>;

// How many elements are computed side by side: the more, the longer is the code.
template <Op op, typename T>
inline constexpr int kSideBySide = is_called<op, T> ? (is_complex<T> ? 1 : 2)
                                   : is_complex<T>  ? 1
                                                    : kStridedElements<T>;

template <Op op, typename T, int inputs>
__device__ T strided_result(ElementType compute, const T (&x)[inputs]) {
    if constexpr (op == Op::nextafter && std::is_same_v<T, float>) {
        if (compute == ElementType::float16)
            return to_float(stored_neighbour(stored_as<Float16>(x[0]), stored_as<Float16>(x[1])));
        if (compute == ElementType::bfloat16)
            return to_float(stored_neighbour(stored_as<BFloat16>(x[0]), stored_as<BFloat16>(x[1])));
    }
    if constexpr ((op == Op::floor_divide || op == Op::remainder) && std::is_same_v<T, std::int32_t>) {
        if (is_short_integer(compute))
            return op == Op::remainder ? short_floor_remainder(x[0], x[1]) : short_floor_quotient(x[0], x[1]);
    }
    if constexpr (has_coarse<Formula<op>> && std::is_same_v<T, float>) {
        if (compute != ElementTypeOf<T>::value) {
            if constexpr (inputs == 1)
                return Formula<op>::apply_coarse(x[0]);
            else
                return Formula<op>::apply_coarse(x[0], x[1]);
        }
    }
    return convert<T>(apply<op, T, inputs>(x));
}

// All at once, or in two rounds of a loop, of which the second is left out where the first does all.
template <Op op, typename T, int inputs>
__device__ Some<T> strided_results(ElementType compute, Some<T> (&x)[inputs], int count) {
    constexpr int kCount = kStridedElements<T>;
    constexpr int kBeside = kSideBySide<op, T>;
    static_assert(kCount == kBeside || kCount == 2 * kBeside);
    Some<T> results;
    T beside[kBeside];
    bool is_last = count <= kBeside;
#pragma unroll 1
    while (true) {
#pragma unroll
        for (int e = 0; e < kBeside; ++e) {
            T element[inputs];
#pragma unroll
            for (int j = 0; j < inputs; ++j) element[j] = x[j].values[e];
            beside[e] = strided_result<op, T, inputs>(compute, element);
        }
        if (kBeside == kCount || is_last) break;
        is_last = true;
#pragma unroll
        for (int e = 0; e < kBeside; ++e) {
            results.values[e] = beside[e];
#pragma unroll
            for (int j = 0; j < inputs; ++j) x[j].values[e] = x[j].values[e + kCount - kBeside];
        }
    }
#pragma unroll
    for (int e = 0; e < kBeside; ++e) {
        if (count <= kBeside) results.values[e] = beside[e];
        if (kBeside < kCount) results.values[e + kCount - kBeside] = beside[e];
    }
    return results;
}

template <Op op, typename T>
__device__ __noinline__ Some<T> called_results(ElementType compute, Some<T> a, int count) {
    Some<T> x[] = {a};
    return strided_results<op, T, 1>(compute, x, count);
}
template <Op op, typename T>
__device__ __noinline__ Some<T> called_results(ElementType compute, Some<T> a, Some<T> b, int count) {
    Some<T> x[] = {a, b};
    return strided_results<op, T, 2>(compute, x, count);
}

// The results of any operation of so many operands, as T, which holds truths and parts too.
template <typename T, int inputs>
__device__ Some<T> apply_any(Op op, ElementType compute, Some<T> (&x)[inputs], int count) {
    switch (op) {
#define CUKERN_CASE(id)                                                   \
    case Op::id:                                                          \
        if constexpr (!serves<Op::id, inputs, T>)                         \
            break;                                                        \
        else if constexpr (!is_called<Op::id, T>)                         \
            return strided_results<Op::id, T, inputs>(compute, x, count); \
        else if constexpr (inputs == 1)                                   \
            return called_results<Op::id, T>(compute, x[0], count);       \
        else                                                              \
            return called_results<Op::id, T>(compute, x[0], x[1], count);
#define CUKERN_OP(id, kind, types, rule, doc) CUKERN_CASE(id)
#include "cukern/ops.def"
#undef CUKERN_OP
        CUKERN_CASE(copy)
        CUKERN_CASE(clip)
#undef CUKERN_CASE
    }
    return {};
}

// Quarters of the threads that a multiprocessor holds: all, though a few values then wait in memory, but for
// kernels that need more registers.
template <typename T, int inputs>
inline constexpr int kStridedQuarters = sizeof(T) > 8 ? 2
                                        : inputs == 3 ? 3
                                                      : 4;
template <typename T, int inputs>
inline constexpr int kStridedBlocks = kMultiprocessorThreads / kThreads * kStridedQuarters<T, inputs> / 4;

template <typename T, int inputs>
__global__ void __launch_bounds__(kThreads, kStridedBlocks<T, inputs>)
    strided_kernel(const __grid_constant__ StridedParams<T, inputs> p) {
    constexpr int kCount = kStridedElements<T>;
    std::uint32_t row = 0;
    std::uint32_t column = blockIdx.x * kThreads + threadIdx.x;
    if (p.in_tiles) p.tiles.find(column, p.each, &row, &column);
    if (row >= p.rows || column >= p.columns) return;
    std::uint32_t first[inputs + 1];
#pragma unroll
    for (int j = 0; j <= inputs; ++j)
        first[j] = row * static_cast<std::uint32_t>(p.row_strides[j]) + column * p.columns_by[0].strides[j];
    row += column * p.columns_by[0].row_stride;
#pragma unroll 1
    for (int d = 1; d < p.dims; ++d) {
        const std::uint32_t quotient = p.columns_by[d].elements.divide(column);
        row += quotient * p.columns_by[d].row_stride;
#pragma unroll
        for (int j = 0; j <= inputs; ++j) first[j] += quotient * p.columns_by[d].strides[j];
    }
    int count = 1;
#pragma unroll
    for (int k = 1; k < kCount; ++k) count += k < p.each && row + k * p.apart < p.rows ? 1 : 0;
    std::uint32_t loaded[kCount] = {};  // which of the thread's elements
#pragma unroll
    for (int k = 1; k < kCount; ++k) loaded[k] = kLoadsAll<T> ? min(k, count - 1) : k;
    Places<T> places[inputs + 1];
#pragma unroll
    for (int j = 0; j <= inputs; ++j)
#pragma unroll
        for (int k = 0; k < kCount; ++k)
            places[j].at[k] = static_cast<std::int32_t>(first[j] + (j == 0 ? k : loaded[k]) *
                                                                       static_cast<std::uint32_t>(p.steps[j]));
    follow_kernel_before();
    Some<T> x[inputs];
    load_operands<T, inputs>(p, places, count, x);
    Some<T> results = apply_any<T, inputs>(p.op, p.compute, x, count);
    if constexpr (is_wide<T>) {
        if (p.narrows[0]) results = narrowed_to<T>(p.compute, results);
    }
    store_some<T, inputs>(p.data[0], p.types[0], places[0], results, count);
}

}  // namespace cukern::cuda
