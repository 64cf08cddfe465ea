// Loops of our own formulas, in the form of NumPy's: for what NumPy has no loop, or means something else.
//
// Idea: a loop computes a run of elements along one dimension, in one type, from operands with any steps. It
// vectorises where they are packed, but for functions, which the compiler does not vectorise.
//
// The build compiles this file for groups of element types, each with those that CUKERN_EACH_TYPE names.

#include <cmath>
#include <type_traits>

#include "formulas/evaluate.cuh"
#include "host/complex_products.h"
#include "host/kernels.h"
#include "host/versions.h"

namespace cukern::host {

// What a loop is given, as NumPy gives it: data and strides in bytes, of out last.
template <Op op, typename T>
struct Run {
    using R = result_t<op, T>;
    char *const *data;
    const std::intptr_t *strides;

    const T *in(int i) const noexcept { return reinterpret_cast<const T *>(data[i]); }
    R *out() const noexcept { return reinterpret_cast<R *>(data[arity(op)]); }
    std::int64_t in_stride(int i) const noexcept { return strides[i] / static_cast<std::intptr_t>(sizeof(T)); }
    std::int64_t out_stride() const noexcept { return strides[arity(op)] / static_cast<std::intptr_t>(sizeof(R)); }
};

// The parts of packed complex numbers follow each other.
template <typename R>
void round_parts(const R *from, R *to, std::int64_t n) noexcept {
    run_by_vectors<256>([from, to, n] {
        for (std::int64_t i = 0; i < n; ++i) to[i] = std::rint(from[i]);
    });
}

// Strides of 1 and 0 are spelled out, so that the compiler makes a vector loop of each.
template <Op op, typename T>
void compute_run(const Run<op, T> &r, std::int64_t n) noexcept {
    const T *a = r.in(0);
    result_t<op, T> *out = r.out();
    const std::int64_t sa = r.in_stride(0);
    const std::int64_t so = r.out_stride();
    if constexpr (arity(op) == 1) {
        if constexpr (is_complex<T> && op == Op::square) {
            if (so == 1 && sa == 1) return square_complex(a, out, n);
        }
        if constexpr (is_complex<T> && op == Op::round) {
            if (so == 1 && sa == 1) return round_parts(&a->real, &out->real, 2 * n);
        }
        if (vectorises(op, ElementTypeOf<T>::value) && so == 1 && sa == 1)
            for (std::int64_t i = 0; i < n; ++i) out[i] = evaluate<op>(a[i]);
        else
            for (std::int64_t i = 0; i < n; ++i) out[i * so] = evaluate<op>(a[i * sa]);
    } else if constexpr (arity(op) == 3) {
        const T *b = r.in(1);
        const T *c = r.in(2);
        const std::int64_t sb = r.in_stride(1);
        const std::int64_t sc = r.in_stride(2);
        for (std::int64_t i = 0; i < n; ++i) out[i * so] = evaluate<op>(a[i * sa], b[i * sb], c[i * sc]);
    } else {
        const T *b = r.in(1);
        const std::int64_t sb = r.in_stride(1);
        if constexpr (is_complex<T> && op == Op::multiply) {
            if (so == 1 && sa == 1 && sb == 1) return multiply_complex(a, b, out, n);
            if (so == 1 && sa == 1 && sb == 0) return scale_complex(a, *b, out, n);
            if (so == 1 && sa == 0 && sb == 1) return scale_complex(b, *a, out, n);
        }
        if constexpr (!vectorises(op, ElementTypeOf<T>::value)) {
            for (std::int64_t i = 0; i < n; ++i) out[i * so] = evaluate<op>(a[i * sa], b[i * sb]);
        } else if (so == 1 && sa == 1 && sb == 1) {
            for (std::int64_t i = 0; i < n; ++i) out[i] = evaluate<op>(a[i], b[i]);
        } else if (so == 1 && sa == 1 && sb == 0) {
            const T value = *b;
            for (std::int64_t i = 0; i < n; ++i) out[i] = evaluate<op>(a[i], value);
        } else if (so == 1 && sa == 0 && sb == 1) {
            const T value = *a;
            for (std::int64_t i = 0; i < n; ++i) out[i] = evaluate<op>(value, b[i]);
        } else {
            for (std::int64_t i = 0; i < n; ++i) out[i * so] = evaluate<op>(a[i * sa], b[i * sb]);
        }
    }
}

// a where a byte is set, else b: by masks, which vectorise, where elements are of a word's size.
template <typename T>
T chosen(unsigned char byte, const T &a, const T &b) noexcept {
    if constexpr (sizeof(T) <= 8) {
        using Bits = std::conditional_t<
            sizeof(T) == 8, std::uint64_t,
            std::conditional_t<sizeof(T) == 4, std::uint32_t,
                               std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
        const auto mask = static_cast<Bits>(Bits{0} - static_cast<Bits>(byte != 0));
        return bit_cast<T>(static_cast<Bits>((bit_cast<Bits>(a) & mask) | (bit_cast<Bits>(b) & ~mask)));
    } else {
        return byte != 0 ? a : b;
    }
}

// The condition is of bytes.
template <typename T>
void choose(const Run<Op::where, T> &r, std::int64_t n) noexcept {
    const auto *bytes = reinterpret_cast<const unsigned char *>(r.data[0]);
    T *out = r.out();
    const T *a = r.in(1);
    const T *b = r.in(2);
    const std::int64_t sc = r.strides[0];
    const std::int64_t sa = r.in_stride(1);
    const std::int64_t sb = r.in_stride(2);
    const std::int64_t so = r.out_stride();
    if (so == 1 && sc == 1 && sa == 1 && sb == 1)
        for (std::int64_t i = 0; i < n; ++i) out[i] = chosen(bytes[i], a[i], b[i]);
    else if (so == 1 && sc == 1 && sa == 1 && sb == 0)
        for (std::int64_t i = 0; i < n; ++i) out[i] = chosen(bytes[i], a[i], *b);
    else
        for (std::int64_t i = 0; i < n; ++i) out[i * so] = chosen(bytes[i * sc], a[i * sa], b[i * sb]);
}

template <Op op, typename T>
void run_formula(char **data, const std::intptr_t *count, const std::intptr_t *strides, void *) {
    const Run<op, T> run{data, strides};
    if constexpr (op == Op::where)
        choose<T>(run, *count);
    else
        compute_run<op, T>(run, *count);
}

// Null where there is none.
template <Op op, typename T>
LoopFunction formula_of() noexcept {
    constexpr auto kExists = [](ElementType type) { return computes_in(op, type); };
    if constexpr (is_made(ElementTypeOf<T>::value, kExists))
        return run_formula<op, T>;
    else
        return nullptr;
}

template <typename T>
LoopFunction formula_loop(Op op) noexcept {
    switch (op) {
#define CUKERN_OP(id, kind, types, rule, doc) \
    case Op::id: return formula_of<Op::id, T>();
#include "cukern/ops.def"
#undef CUKERN_OP
        case Op::copy: return nullptr;  // see run_copy, and casts
        case Op::clip: return formula_of<Op::clip, T>();
    }
    return nullptr;
}

#define CUKERN_INSTANTIATE(type) template LoopFunction formula_loop<CTypeOf<ElementType::type>>(Op) noexcept;
CUKERN_EACH_TYPE(CUKERN_INSTANTIATE)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::host
