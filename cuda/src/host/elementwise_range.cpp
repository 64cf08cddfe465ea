// Elementwise operations on the CPU: what a thread computes.
//
// Idea: every thread takes a range of out's elements and walks it in runs along the fastest dimension. A run
// is computed by one loop over packed or strided operands of the computing type; operands of another type go
// through a buffer of kBlock elements, converted on the way in and out. The loops vectorise where packed, but for
// functions, which the compiler does not vectorise. Where another library has a loop, that one computes runs whose
// results are packed.
//
// The build compiles this file for groups of element types, each with those that CUKERN_EACH_TYPE names.

#include <algorithm>
#include <cstring>

#include "formulas/evaluate.cuh"
#include "host/casts.h"
#include "host/kernels.h"
#include "host/loops.h"
#include "host/versions.h"

namespace cukern::host {

// Whether loops over packed operands are worth being made: not of what the C library computes one by one, nor
// where the extension hands over NumPy's loops, which a program in C does without.
template <typename T>
constexpr bool vectorises(Op op) noexcept {
    const OpInfo &row = info(op);
    const bool is_function = row.rule == ResultRule::sized && op != Op::sqrt && op != Op::copysign;
    const bool is_numpys = !std::is_same_v<T, BFloat16> && !is_complex<T> && op < Op::copy;
    return !is_numpys && !is_function && op != Op::pow && op != Op::floor_divide && op != Op::remainder;
}

// Runs a loop in the version that pays.
template <Op op, typename T, typename Loop>
void run_version(const Loop &loop) noexcept {
    if constexpr (is_complex<T> && (op == Op::multiply || op == Op::square))
        run_by_vectors(loop);
    else
        loop();
}

constexpr std::int64_t kBlock = 512;

template <typename T, typename R>
struct Run {
    R *out;
    std::int64_t out_stride;
    const T *in[kMaxInputs];
    std::int64_t in_strides[kMaxInputs];
};

// Strides of 1 and 0 are spelled out, so that the compiler makes a vector loop of each.
template <Op op, typename T>
void compute_run(const Run<T, result_t<op, T>> &r, std::int64_t n) noexcept {
    const T *a = r.in[0];
    result_t<op, T> *out = r.out;
    const std::int64_t sa = r.in_strides[0];
    const std::int64_t so = r.out_stride;
    if constexpr (arity(op) == 1) {
        const auto run_packed = [a, out, n] {
            for (std::int64_t i = 0; i < n; ++i) out[i] = evaluate<op>(a[i]);
        };
        if (vectorises<T>(op) && so == 1 && sa == 1)
            run_version<op, T>(run_packed);
        else if (op == Op::copy && so == 1 && sa == 0)
            std::fill_n(out, n, evaluate<op>(*a));
        else
            for (std::int64_t i = 0; i < n; ++i) out[i * so] = evaluate<op>(a[i * sa]);
    } else if constexpr (arity(op) == 3) {
        const T *b = r.in[1];
        const T *c = r.in[2];
        const std::int64_t sb = r.in_strides[1];
        const std::int64_t sc = r.in_strides[2];
        for (std::int64_t i = 0; i < n; ++i) out[i * so] = evaluate<op>(a[i * sa], b[i * sb], c[i * sc]);
    } else {
        const T *b = r.in[1];
        const std::int64_t sb = r.in_strides[1];
        if constexpr (!vectorises<T>(op)) {
            for (std::int64_t i = 0; i < n; ++i) out[i * so] = evaluate<op>(a[i * sa], b[i * sb]);
        } else if (so == 1 && sa == 1 && sb == 1) {
            run_version<op, T>([a, b, out, n] {
                for (std::int64_t i = 0; i < n; ++i) out[i] = evaluate<op>(a[i], b[i]);
            });
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

template <typename T>
void choose(const unsigned char *bytes, const Run<T, T> &r, std::int64_t n) noexcept {
    const T *a = r.in[1];
    const T *b = r.in[2];
    const std::int64_t sa = r.in_strides[1];
    const std::int64_t sb = r.in_strides[2];
    const std::int64_t so = r.out_stride;
    if (so == 1 && sa == 1 && sb == 1)
        for (std::int64_t i = 0; i < n; ++i) r.out[i] = chosen(bytes[i], a[i], b[i]);
    else if (so == 1 && sa == 1 && sb == 0)
        for (std::int64_t i = 0; i < n; ++i) r.out[i] = chosen(bytes[i], a[i], *b);
    else
        for (std::int64_t i = 0; i < n; ++i) r.out[i * so] = chosen(bytes[i], a[i * sa], b[i * sb]);
}

template <Op op, typename T>
void compute_range(const ElementwiseLaunch &launch, std::int64_t begin, std::int64_t end) noexcept {
    const int last = launch.ndim - 1;
    constexpr int kOperands = 1 + arity(op);
    constexpr ElementType kOwn = ElementTypeOf<T>::value;
    std::int64_t index[kMaxDims];
    std::int64_t offset[kMaxOperands] = {};
    std::int64_t rest = begin;
    for (int d = last; d >= 0; --d) {
        index[d] = rest % launch.shape[d];
        rest /= launch.shape[d];
        for (int i = 0; i < kOperands; ++i) offset[i] += index[d] * launch.strides[i][d];
    }
    T buffer[kMaxInputs][kBlock];
    result_t<op, T> results[kBlock];
    const HostLoop loop = op == Op::copy ? HostLoop{} : loop_of(op, kOwn);
    const bool packs = loop.function != nullptr && bits_depend_on_strides(op, kOwn);
    // Loops give packed results.
    const bool converts =
        launch.types[0] != launch.result || (loop.function != nullptr && launch.strides[0][last] != 1);
    bool blocked = converts;
    bool is_direct[kMaxInputs];
    for (int i = 0; i < kOperands - 1; ++i) {
        const bool is_own = launch.immediate[i + 1] || launch.types[i + 1] == kOwn || (op == Op::where && i == 0);
        const std::int64_t stride = launch.immediate[i + 1] ? 0 : launch.strides[i + 1][last];
        is_direct[i] = is_own && (!packs || stride == 1);
        blocked = blocked || !is_direct[i];
    }
    unsigned char flags[op == Op::where ? kBlock : 1];
    blocked = blocked || op == Op::where;
    for (std::int64_t at = begin; at < end;) {
        std::int64_t n = std::min(launch.shape[last] - index[last], end - at);
        if (blocked) n = std::min(n, kBlock);
        Run<T, result_t<op, T>> run{};
        run.out = converts ? results : static_cast<result_t<op, T> *>(launch.data[0]) + offset[0];
        run.out_stride = converts ? 1 : launch.strides[0][last];
        for (int i = 1; i < kOperands; ++i) {
            const std::int64_t stride = launch.immediate[i] ? 0 : launch.strides[i][last];
            const ElementType type = launch.immediate[i] ? kOwn : launch.types[i];
            const void *data = launch.values[i].bytes;
            if (!launch.immediate[i]) data = static_cast<char *>(launch.data[i]) + offset[i] * size_of(type);
            run.in[i - 1] = is_direct[i - 1] ? static_cast<const T *>(data) : buffer[i - 1];
            run.in_strides[i - 1] = is_direct[i - 1] ? stride : 1;
            if (op == Op::where && i == 1) {  // of any type: its truth
                cast_of(type, ElementType::bool_)(data, stride, flags, 1, n);
                continue;
            }
            if (is_direct[i - 1]) continue;
            if (launch.split)
                for (std::int64_t j = 0; j < n; ++j)
                    buffer[i - 1][j] =
                        load_operand<op, T>(launch.data[i], type, offset[i] + j * stride, launch.split, i - 1);
            else
                cast_of(type, kOwn)(data, stride, buffer[i - 1], 1, n);
        }
        if (loop.function != nullptr) {
            LoopRun packed{{}, run.in_strides, kOperands - 1, sizeof(T), run.out, sizeof(result_t<op, T>)};
            for (int i = 0; i < kOperands - 1; ++i) packed.inputs[i] = reinterpret_cast<const char *>(run.in[i]);
            call_loop(loop, packed, n);
        } else if constexpr (op == Op::where) {
            choose<T>(flags, run, n);
        } else {
            compute_run<op, T>(run, n);
        }
        if (converts)
            cast_of(launch.result, launch.types[0])(
                results, 1, static_cast<char *>(launch.data[0]) + offset[0] * size_of(launch.types[0]),
                launch.strides[0][last], n);
        at += n;
        if (at == end) break;
        index[last] += n;
        for (int i = 0; i < kOperands; ++i) offset[i] += n * launch.strides[i][last];
        for (int d = last; d > 0 && index[d] == launch.shape[d]; --d) {
            for (int i = 0; i < kOperands; ++i)
                offset[i] += launch.strides[i][d - 1] - launch.shape[d] * launch.strides[i][d];
            index[d] = 0;
            ++index[d - 1];
        }
    }
}

// The function that computes a range of an operation in T; null where there is none.
template <Op op, typename T>
RangeFunction range_of() noexcept {
    constexpr auto kExists = [](ElementType type) { return computes_in(op, type); };
    if constexpr (is_made(ElementTypeOf<T>::value, kExists))
        return compute_range<op, T>;
    else
        return nullptr;
}

template <typename T>
RangeFunction range_function(Op op) noexcept {
    switch (op) {
#define CUKERN_OP(id, kind, types, rule, doc) \
    case Op::id: return range_of<Op::id, T>();
#include "cukern/ops.def"
#undef CUKERN_OP
        case Op::copy: return nullptr;  // see run_copy, and casts
        case Op::clip: return range_of<Op::clip, T>();
    }
    return nullptr;
}

#define CUKERN_INSTANTIATE(type) template RangeFunction range_function<CTypeOf<ElementType::type>>(Op) noexcept;
CUKERN_EACH_TYPE(CUKERN_INSTANTIATE)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::host
