// Groups of operations that share a kernel for each element type, in which the operation is a switch at run time.
//
// Idea: all threads of a launch take the same branch, which costs next to nothing beside the memory that is moved,
// and one kernel serves many operations in every layout. What is in a group has as many operands, a result of the
// same type, and about the same need of registers. Functions are long: packed each has a kernel of its own (of
// complex numbers OperationsOf says which), else strided_kernel calls them.
#pragma once

#include <cstdint>

#include "device/elementwise/apply.cuh"
#include "device/kernel_types.h"
#include "formulas/in_place.cuh"

namespace cukern::cuda {

enum class Group : std::int8_t {
    arithmetic,
    unary,
    copies,
    comparisons,
    tests,
    parts,
    functions,
    binary_functions,
    choices
};

constexpr Group group_of(Op op, ElementType type) {
    const int inputs = arity(op);
    if (op == Op::copy) return Group::copies;
    if (inputs == 3) return Group::choices;
    if (returns_bool(info(op).rule)) return inputs == 2 ? Group::comparisons : Group::tests;
    if (info(op).rule == ResultRule::component && kind_of(type) == 'c') return Group::parts;
    if (is_function(op, type)) return inputs == 2 ? Group::binary_functions : Group::functions;
    return inputs == 2 ? Group::arithmetic : Group::unary;
}

constexpr int arity(Group group) {
    switch (group) {
        case Group::choices: return 3;
        case Group::arithmetic:
        case Group::comparisons:
        case Group::binary_functions: return 2;
        default: return 1;
    }
}

template <Group group>
inline constexpr bool has_functions = group == Group::functions || group == Group::binary_functions;

template <Op op, Group group, typename T>
inline constexpr bool is_in =
    has_kernel(op, ElementTypeOf<T>::value) && group_of(op, ElementTypeOf<T>::value) == group;

// What the kernel of packed operands is made for: functions, which it has in place, and what small arrays meet
// most, have one of their own. Of complex numbers, whose functions are long, quotients and those have that are
// short for most numbers.
template <Op op>
constexpr bool is_alone(ElementType type) {
    const bool is_short =
        type == ElementType::complex64 ? InPlace<op, Complex64>::kExists : InPlace<op, Complex128>::kExists;
    if (is_function(op, type)) return kind_of(type) != 'c' || op == Op::divide || is_short;
    return op == Op::add || op == Op::subtract || op == Op::multiply || op == Op::copy;
}
// What a kernel that a group shares has: `packed`, where functions that have a kernel of their own don't take it.
template <Op op, Group group, typename T, bool packed>
inline constexpr bool is_shared =
    is_in<op, group, T> && !(packed && has_functions<group> && is_alone<op>(ElementTypeOf<T>::value));

// What a group's operations return, as it is stored.
template <Group group, typename T>
using group_result_t =
    std::conditional_t<group == Group::comparisons || group == Group::tests, Bool,
                       std::conditional_t<group == Group::parts, typename RealPart<T>::type, T>>;

// The result of one of a group's operations.
template <Group group, typename T, int inputs, bool packed = false>
__device__ group_result_t<group, T> apply_in(Op op, const T (&x)[inputs]) {
    switch (op) {
#define CUKERN_CASE(id)                                                                        \
    case Op::id:                                                                               \
        if constexpr (is_shared<Op::id, group, T, packed>) return apply<Op::id, T, inputs>(x); \
        break;
#define CUKERN_OP(id, kind, types, rule, doc) CUKERN_CASE(id)
#include "cukern/ops.def"
#undef CUKERN_OP
        CUKERN_CASE(copy)
        CUKERN_CASE(clip)
#undef CUKERN_CASE
    }
    return {};
}

template <Group group, typename T>
using GroupVector = Elements<group_result_t<group, T>, Vector<T>::kSize>;

// A function of elements that are not ordinary, or lie beside vectors, by a call, as functions of complex numbers
// are: for a second copy in place the compiler kept constants in registers, which left room for fewer threads.
template <Op op, typename... Ts>
__device__ __noinline__ auto evaluate_by_call(Ts... x) {
    return evaluate<op>(x...);
}
// What a function of one or two elements gives of these.
template <typename F, typename T, int inputs>
__device__ auto of_elements(F function, const T (&x)[inputs]) {
    static_assert(inputs <= 2);
    if constexpr (inputs == 1)
        return function(x[0]);
    else
        return function(x[0], x[1]);
}
template <Op op, typename T, int inputs>
__device__ result_t<op, T> apply_by_call(const T (&x)[inputs]) {
    if constexpr (is_complex<T>)
        return apply<op, T, inputs>(x);
    else
        return of_elements([](auto... elements) { return evaluate_by_call<op>(elements...); }, x);
}

// Whether a kernel of one operation computes most elements in place, without a branch.
template <Op op, typename T>
inline constexpr bool has_in_place =
    InPlace<op, arithmetic_t<T>>::kExists && !(is_storage_float<T> && has_coarse<Formula<op>>);

template <Op op, typename T, int inputs>
__device__ bool is_served(const T (&x)[inputs]) {
    using Function = InPlace<op, arithmetic_t<T>>;
    return of_elements([](auto... elements) { return Function::serves(operand_of<op>(elements)...); }, x);
}
template <Op op, typename T, int inputs>
__device__ T apply_in_place(const T (&x)[inputs]) {
    using Function = InPlace<op, arithmetic_t<T>>;
    return of_elements(
        [](auto... elements) { return from_arithmetic<T>(Function::apply(operand_of<op>(elements)...)); }, x);
}

// The results of some elements of each operand. `alone`: of a kernel that has this operation only.
template <Op op, Group group, typename T, bool alone, int inputs, typename E>
__device__ auto apply_together(const E (&x)[inputs]) {
    Elements<group_result_t<group, T>, E::kSize> result;
    T elements[E::kSize][inputs];
#pragma unroll
    for (int e = 0; e < E::kSize; ++e)
#pragma unroll
        for (int j = 0; j < inputs; ++j) elements[e][j] = x[j].values[e];
    if constexpr (alone && has_in_place<op, T>) {
        bool are_served = true;
#pragma unroll
        for (int e = 0; e < E::kSize; ++e) are_served = is_served<op, T, inputs>(elements[e]) && are_served;
        if (are_served) {
#pragma unroll
            for (int e = 0; e < E::kSize; ++e) result.values[e] = apply_in_place<op, T, inputs>(elements[e]);
        } else {
#pragma unroll
            for (int e = 0; e < E::kSize; ++e) result.values[e] = apply_by_call<op, T, inputs>(elements[e]);
        }
    } else {
#pragma unroll
        for (int e = 0; e < E::kSize; ++e) result.values[e] = apply<op, T, inputs>(elements[e]);
    }
    return result;
}

// How many elements of a vector are computed at once: the more, the longer is the code, and the more registers it
// takes. Light operations take `most` or all; functions all, or four where elements are bytes, or have 16 bits and
// the function is long. What goes by words takes all.
template <Op op, Group group, typename T>
CUKERN_HD constexpr int elements_at_once(int most) {
    // Of both elements at once the compiler keeps the constants in registers, which leaves room for fewer threads:
    // atan took 82 us instead of 72.
    if (std::is_same_v<T, double> && op == Op::atan) return 1;
    if (has_pairs<op, T> || sizeof(T) >= 8) return Vector<T>::kSize;
    constexpr bool kIsLong = has_coarse<Formula<op>> || (group == Group::binary_functions && op != Op::divide);
    if (has_functions<group>) return kIsLong || sizeof(T) == 1 ? 4 : Vector<T>::kSize;
    return most < Vector<T>::kSize ? most : Vector<T>::kSize;
}

// `most` in a kernel of one operation, in one of a group, and in the kernels that transpose, which are long
// already.
constexpr int kAtOnceAlone = 16;
template <Group group>
inline constexpr int kAtOnce = arity(group) == 1   ? 16
                               : arity(group) == 2 ? 8
                                                   : 4;
template <typename T>
inline constexpr int kAtOnceTransposed = sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : Vector<T>::kSize;

// Those of a vector of each, part by part.
template <Op op, Group group, typename T, int most, bool alone, int inputs>
__device__ GroupVector<group, T> apply_in_parts(Words (&x)[inputs]) {
    constexpr int kSize = Vector<T>::kSize;
    constexpr int kMost = elements_at_once<op, group, T>(most);
    if constexpr (op == Op::copy) {
        return bit_cast<GroupVector<group, T>>(x[0]);
    } else if constexpr (has_pairs<op, T> || has_words<op, T>) {
        Words result;
#pragma unroll
        for (int i = 0; i < Words::kSize; ++i) {
            if constexpr (has_pairs<op, T>)
                result.values[i] = apply_pair<op, T>(x[0].values[i], x[1].values[i]);
            else
                result.values[i] = apply_word<op, T>(x[0].values[i], x[inputs - 1].values[i]);
        }
        return bit_cast<GroupVector<group, T>>(result);
    } else if constexpr (kSize <= kMost) {
        Vector<T> own[inputs];
        memcpy(own, x, sizeof own);
        return apply_together<op, group, T, alone, inputs>(own);
    } else {
        using Part = Elements<T, kMost>;
        using Result = Elements<std::uint32_t, static_cast<int>(sizeof(GroupVector<group, T>) / 4)>;
        Result result{};
#pragma unroll 1
        for (int i = 0; i < kSize; i += kMost) {
            Part part[inputs];
#pragma unroll
            for (int j = 0; j < inputs; ++j) part[j] = take_front<Part>(x[j]);
            put_back(result, apply_together<op, group, T, alone, inputs>(part));
        }
        return bit_cast<GroupVector<group, T>>(result);
    }
}

// Those of a vector of operands.
template <Group group, typename T, int inputs, int most = kAtOnce<group>, bool packed = false>
__device__ GroupVector<group, T> apply_vector_in(Op op, Words (&x)[inputs]) {
    switch (op) {
#define CUKERN_CASE(id)                                              \
    case Op::id:                                                     \
        if constexpr (is_shared<Op::id, group, T, packed>)           \
            return apply_in_parts<Op::id, group, T, most, false>(x); \
        break;
#define CUKERN_OP(id, kind, types, rule, doc) CUKERN_CASE(id)
#include "cukern/ops.def"
#undef CUKERN_OP
        CUKERN_CASE(copy)
        CUKERN_CASE(clip)
#undef CUKERN_CASE
    }
    return {};
}

// One operation, and any of a group, for kernels that serve both.
template <Op op, typename T>
struct One {
    static constexpr Group kGroup = group_of(op, ElementTypeOf<T>::value);
    static constexpr bool kAligned = kGroup == Group::arithmetic;  // serves operands aligned alike alone
    using Result = result_t<op, T>;
    template <int inputs>
    __device__ static Elements<Result, Vector<T>::kSize> of_vector(Op, Words (&x)[inputs]) {
        return apply_in_parts<op, kGroup, T, kAtOnceAlone, true>(x);
    }
    template <int inputs>
    __device__ static Result of_element(Op, const T (&x)[inputs]) {
        if constexpr (has_functions<kGroup>)
            return apply_by_call<op, T, inputs>(x);
        else
            return apply<op, T, inputs>(x);
    }
};

template <Group group, typename T>
struct AnyOf {
    static constexpr Group kGroup = group;
    static constexpr bool kAligned = false;
    using Result = group_result_t<group, T>;
    template <int inputs>
    __device__ static GroupVector<group, T> of_vector(Op op, Words (&x)[inputs]) {
        return apply_vector_in<group, T, inputs, kAtOnce<group>, true>(op, x);
    }
    template <int inputs>
    __device__ static Result of_element(Op op, const T (&x)[inputs]) {
        return apply_in<group, T, inputs, true>(op, x);
    }
};

// Whether there is such a kernel. Else strided_kernel serves packed operands, too: functions of complex128 took up
// to 1.06 of the time in one that they share, those of complex64 0.86 to 0.98.
template <Op op>
constexpr bool has_packed_kernel(ElementType type) {
    if (kernel_type(op, type) != type) return false;
    const Group group = group_of(op, type);
    if (group == Group::functions && type == ElementType::complex64) return true;
    return (group != Group::functions && group != Group::binary_functions) || is_alone<op>(type);
}
template <Op op, typename T>
using OperationsOf = std::conditional_t<is_alone<op>(ElementTypeOf<T>::value), One<op, T>,
                                        AnyOf<group_of(op, ElementTypeOf<T>::value), T>>;

// The same of one operand, and of two, of which x is the one at place `first`.
template <Group group, typename T>
__device__ GroupVector<group, T> apply_transposed(Op op, const Words &x) {
    Words own[] = {x};
    return apply_vector_in<group, T, 1, kAtOnceTransposed<T>>(op, own);
}
template <Group group, typename T>
__device__ GroupVector<group, T> apply_transposed(Op op, const Words &x, const Words &y, int first) {
    Words own[] = {first == 0 ? x : y, first == 0 ? y : x};
    return apply_vector_in<group, T, 2, kAtOnceTransposed<T>>(op, own);
}

}  // namespace cukern::cuda
