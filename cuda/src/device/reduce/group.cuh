// What the kernels of reductions share: groups of threads that take a result together, and where it goes.
//
// combine_kernel
//   Idea: where one result takes more than one block, or is taken in pieces, partial results are left in scratch
//   memory; a warp joins those of one result, or of many partial ones a group of up to 256 threads: loads that
//   follow each other take longer than joining threads.
#pragma once

#include "device/follow.cuh"
#include "device/reduce/plan.h"
#include "device/shuffle.cuh"
#include "device/vector.cuh"
#include "formulas/reducers.cuh"

#ifndef __CUDACC_RTC__
#include <algorithm>

#include "device/kernels.h"
#include "device/launch_kernel.h"
#include "plan/rounding.h"
#endif

namespace cukern::cuda {

template <typename F, typename = void>
inline constexpr bool gives_index = false;
template <typename F>
inline constexpr bool gives_index<F, std::void_t<decltype(F::A::index)>> = true;

template <typename F>
inline constexpr bool is_sum = false;
template <typename T>
inline constexpr bool is_sum<SumOrProduct<T>> = true;
template <typename F>
inline constexpr bool is_variance = false;
template <typename T>
inline constexpr bool is_variance<Reducer<Op::var, T>> = true;
// Of complex numbers, the largest, or its index, and variances of those whose vectors hold one alone.
template <typename F>
inline constexpr bool is_rare = std::is_same_v<F, Reducer<Op::var, Complex128>>;
template <typename T>
inline constexpr bool is_rare<Reducer<Op::max, T>> = is_complex<T>;
template <typename T, bool finds_max, typename I>
inline constexpr bool is_rare<IndexReducer<T, finds_max, I>> = is_complex<T>;
// These have the kernels for single columns alone, which along rows are about as fast: from 0.35 to 1.2 of the
// time (those of complex128 from 0.13 to 1.04).
template <typename F>
inline constexpr bool has_columns_alone =
    std::is_same_v<F, WideMean> || std::is_same_v<F, IntegerVariance> || is_rare<F>;
// Whether it takes signed integers and unsigned ones.
template <typename F, typename = void>
inline constexpr bool is_of_any_sign = false;
template <typename F>
inline constexpr bool is_of_any_sign<F, std::void_t<decltype(F::is_signed)>> = true;
template <typename F>
inline constexpr bool is_heavy = gives_index<F> || is_variance<F>;
// Whether it takes several elements at once.
template <typename F>
inline constexpr bool takes_all = is_sum<F> || is_variance<F>;

// What reduces, as a launch asks for it.
template <typename F>
__device__ F reducer_of(const Finish &finish) {
    F f{};
    if constexpr (is_sum<F>) f.product = finish.product;
    if constexpr (is_of_any_sign<F>) f.is_signed = finish.is_signed;
    return f;
}

// Joins what comes later among a thread's own elements.
template <typename F, typename A = typename F::A>
__device__ A join_later(const F &f, A a, A b) {
    if constexpr (gives_index<F>)
        return f.join_later(a, b);
    else
        return f.join(a, b);
}

// Joins `loads` values in pairs, so that sums stay accurate and all loads come before the first use.
template <typename F, int loads, typename A = typename F::A>
__device__ A join_pairs(const F &f, A (&values)[loads]) {
#pragma unroll
    for (int by = 1; by < loads; by *= 2)
#pragma unroll
        for (int j = 0; j + by < loads; j += 2 * by) values[j] = join_later(f, values[j], values[j + by]);
    return values[0];
}

// Joins the values of each group in its first thread. All threads of the block take part.
template <typename F, typename A = typename F::A>
__device__ A join_group(const F &f, A value, Groups groups) {
    __shared__ __align__(16) unsigned char memory[8 * sizeof(A)];
    auto *shared = reinterpret_cast<A *>(memory);
#pragma unroll 1
    for (int by = min(groups.size(), 32) / 2; by > 0; by /= 2) value = f.join(value, shuffled_down(value, by));
    if (groups.size() <= 32) return value;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    __syncthreads();  // the memory may be in use still
    if (threadIdx.x % 32 == 0) shared[warp] = value;
    __syncthreads();
    if (groups.lane() == 0)
#pragma unroll 1
        for (int i = 1; i < groups.size() / 32; ++i) value = f.join(value, shared[warp + i]);
    return value;
}

template <typename F>
inline constexpr bool is_any = false;
template <typename T>
inline constexpr bool is_any<Reducer<Op::any, T>> = true;

// The smallest element is the largest of those with their bits flipped: the sign of floats, all of integers, which
// reverses their order. So one kernel finds both, and the indices of both; with the sign's bit of integers flipped
// it finds those of unsigned ones too. Whether there are nonzero elements depends on their bits but for the sign
// of floats, so that one kernel serves all types of a size.
template <typename F>
inline constexpr bool flips = gives_index<F>;
template <typename T>
inline constexpr bool flips<Reducer<Op::max, T>> = true;

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
// The bits that count, for 16 bytes.
inline Words counted_bits(ElementType type) noexcept {
    const bool has_sign = is_floating(type) || kind_of(type) == 'c';
    const int part = size_of(type) / (kind_of(type) == 'c' ? 2 : 1);
    unsigned char bytes[16];
    for (int i = 0; i < 16; ++i) bytes[i] = has_sign && i % part == part - 1 ? 0x7F : 0xFF;
    Words words;
    std::memcpy(&words, bytes, sizeof words);
    return words;
}

// The bits to flip, for 16 bytes.
template <typename T>
Words flipped_bits(const ReduceLaunch &launch) noexcept {
    Words words{};
    const bool least = launch.op == Op::min || launch.op == Op::argmin;
    const bool other_sign = kind_of(launch.type) == 'u' && std::is_signed_v<T> && std::is_integral_v<T>;
    if (!least && !other_sign) return words;
    constexpr int kPart = static_cast<int>(sizeof(T)) / (is_complex<T> ? 2 : 1);
    unsigned char bytes[16] = {};
    for (int i = 0; i < 16; ++i) {
        if constexpr (std::is_same_v<T, Bool>)
            bytes[i] = 1;
        else if constexpr (std::is_integral_v<T>)
            bytes[i] =
                static_cast<unsigned char>((least ? 0xFF : 0) ^ (other_sign && i % kPart == kPart - 1 ? 0x80 : 0));
        else
            bytes[i] = i % kPart == kPart - 1 ? 0x80 : 0;
    }
    std::memcpy(&words, bytes, sizeof words);
    return words;
}
#endif

// One word of what was loaded, as it is reduced.
template <typename F>
__device__ std::uint32_t reduced_word(std::uint32_t word, std::uint32_t bits) {
    return is_any<F> ? word & bits : word ^ bits;
}

template <typename F, typename T>
__device__ T flipped(T element, const Words &bits) {
    if constexpr (!flips<F> && !is_any<F>) {
        return element;
    } else if constexpr (std::is_same_v<T, Bool>) {  // any other byte than 0 is true
        return {static_cast<std::uint8_t>((element.byte != 0) ^ (bits.values[0] & 1))};
    } else if constexpr (sizeof(T) < 4) {
        using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t, std::uint16_t>;
        return bit_cast<T>(static_cast<Bits>(reduced_word<F>(bit_cast<Bits>(element), bits.values[0])));
    } else {
        auto words = bit_cast<Elements<std::uint32_t, static_cast<int>(sizeof(T) / 4)>>(element);
#pragma unroll
        for (int i = 0; i < words.kSize; ++i) words.values[i] = reduced_word<F>(words.values[i], bits.values[i]);
        return bit_cast<T>(words);
    }
}

// What a thread loads at once, as words if it is whole ones: elements of less than a word take a register each.
template <typename T, int size>
using Loaded =
    std::conditional_t<size * sizeof(T) % 4 == 0, Elements<std::uint32_t, static_cast<int>(size * sizeof(T) / 4)>,
                       Elements<T, size>>;

// Flips the bits of all that a thread has loaded, behind a branch: ptxas would put what is done for each load
// before the next one.
template <typename F, typename T, typename L, int loads>
__device__ void flip_all(L (&x)[loads], const Words &bits) {
    constexpr bool kIsBool = std::is_same_v<T, Bool>;
    if constexpr (flips<F> || is_any<F>) {
        if (!kIsBool && bits.values[3] == (is_any<F> ? 0xFFFFFFFF : 0)) return;
#pragma unroll
        for (int j = 0; j < loads; ++j) {
#pragma unroll
            for (int i = 0; i < L::kSize; ++i) {
                if constexpr (!std::is_same_v<L, Elements<std::uint32_t, L::kSize>>) {
                    x[j].values[i] = flipped<F>(x[j].values[i], bits);
                } else {
                    std::uint32_t &word = x[j].values[i];
                    if constexpr (kIsBool) word = (((word & 0x7F7F7F7F) + 0x7F7F7F7F) | word) >> 7 & 0x01010101;
                    word = reduced_word<F>(word, bits.values[i]);
                }
            }
        }
    }
}

// Which kinds of elements a vector holds, word by word. Zeros of short elements: where subtracting 1 borrows.
template <typename T>
__device__ std::uint8_t kinds_in(const Vector<T> &vector) {
    constexpr int kPart = static_cast<int>(sizeof(T)) / (is_complex<T> ? 2 : 1);
    constexpr int kWords = sizeof(T) < 4 ? 1 : static_cast<int>(sizeof(T) / 4);  // of an element
    constexpr std::uint32_t kOnes = kPart == 1 ? 0x01010101 : 0x00010001;
    const auto words = bit_cast<Words>(vector);
    std::uint32_t nonzero = 0;
    std::uint32_t zero = 0;
#pragma unroll
    for (int i = 0; i < Words::kSize; i += kWords) {
        std::uint32_t bits = 0;
#pragma unroll
        for (int j = i; j < i + kWords; ++j) bits |= words.values[j];
        nonzero |= bits;
        zero |= kPart >= 4 ? bits == 0 : (bits - kOnes) & ~bits & (kOnes << (8 * kPart - 1));
    }
    using F = Reducer<Op::any, T>;
    return static_cast<std::uint8_t>((nonzero != 0 ? F::kNonzero : 0) | (zero != 0 ? F::kZero : 0));
}

// What an element counts for.
template <typename F, typename T>
__device__ typename F::A value_of(T element, std::int64_t index, const Words &bits) {
    return F::of(flipped<F>(element, bits), index);
}

// Where a result goes: the results themselves, or partial ones; and what is done with elements before and with the
// value of all of them.
template <typename R, typename A>
struct Target {
    R *out;
    A *partial;  // null: to out
    int parts;
    Finish finish;
    Words bits;  // that are flipped in elements, or those that count

    template <typename F>
    __device__ void store(std::int64_t result, int part, A value) const {
        if (partial != nullptr)
            partial[result * parts + part] = value;
        else
            store_final<F>(result, value);
    }
    template <typename F>
    __device__ void store_final(std::int64_t result, A value) const {
        if constexpr (sizeof(R) == 2 && std::is_same_v<A, float>) {
            if (finish.wide) {
                reinterpret_cast<float *>(out)[result] = F::template result<float>(value, finish);
                return;
            }
        }
        out[result] = final_of<F>(value);
    }
    // Neighbouring results at whole vectors.
    template <typename F, int size>
    __device__ void store_vector(std::int64_t result, const A (&values)[size]) const {
        Elements<R, size> vector;
#pragma unroll
        for (int e = 0; e < size; ++e) vector.values[e] = final_of<F>(values[e]);
        *reinterpret_cast<Elements<R, size> *>(out + result) = vector;
    }
    bool stores_vectors(int size) const noexcept {
        return partial == nullptr && !finish.wide &&
               reinterpret_cast<std::uintptr_t>(out) % (size * sizeof(R)) == 0;
    }

private:
    template <typename F>
    __device__ R final_of(A value) const {
        const R found = F::template result<R>(value, finish);
        if constexpr (!flips<F> || gives_index<F>)
            return found;
        else
            return flipped<F>(found, bits);
    }
};

// The partial result of a piece, whose index counts from the first piece on.
template <typename F>
struct OfPieces {
    using A = typename F::A;
    __device__ static A of(const A &value, std::int64_t) { return value; }
};
template <typename T, bool finds_max>
struct OfPieces<IndexReducer<T, finds_max, std::int32_t>> {
    using A = typename IndexReducer<T, finds_max, std::int64_t>::A;
    __device__ static A of(const typename IndexReducer<T, finds_max, std::int32_t>::A &value, std::int64_t first) {
        return {value.value, first + value.index};
    }
};

template <typename R, typename F>
struct CombineParams {
    Target<R, typename F::A> target;
    Groups groups;  // one a result
    std::int64_t results;
    typename OfPieces<F>::A *joined;  // null: results are finished
    std::int64_t slots;
    std::int64_t slot;
    std::int64_t first_index;
};

template <typename F, typename R>
__global__ void __launch_bounds__(kThreads) combine_kernel(const CombineParams<R, F> p) {
    const std::int64_t result = static_cast<std::int64_t>(blockIdx.x) * p.groups.count() + p.groups.index();
    const F f = reducer_of<F>(p.target.finish);
    typename F::A value = f.identity();
    follow_kernel_before();
    if (result < p.results)
#pragma unroll 1
        for (int part = p.groups.lane(); part < p.target.parts; part += p.groups.size())
            value = f.join(value, p.target.partial[result * p.target.parts + part]);
    value = join_group(f, value, p.groups);
    if (p.groups.lane() != 0 || result >= p.results) return;
    if (p.joined != nullptr)
        p.joined[result * p.slots + p.slot] = OfPieces<F>::of(value, p.first_index);
    else
        p.target.template store_final<F>(result, value);
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
template <typename F, typename T>
constexpr ReduceTraits traits_of() {
    return {sizeof(T), has_columns_alone<F> ? 1 : Vector<T>::kSize, sizeof(typename F::A), gives_index<F>,
            is_variance<F>};
}

// `T`: of the elements.
template <typename F, typename T, typename R>
Target<R, typename F::A> make_target(const ReduceLaunch &launch, int parts) noexcept {
    const bool partial = parts > 1 || launch.slots > 0;
    Finish finish = finish_of(launch.op, launch.reduced, launch.correction, returns_wide(launch));
    finish.is_signed = kind_of(launch.type) == 'i';
    return {static_cast<R *>(launch.out), partial ? static_cast<typename F::A *>(launch.scratch) : nullptr, parts,
            finish, is_any<F> ? counted_bits(launch.type) : flipped_bits<T>(launch)};
}

// Threads that join so many partial results. One each, where there are threads enough: with four each, one result
// of 5*10^5 to 4*10^6 elements took 1.05 to 1.2 times as long, since a thread's loads wait for each other.
inline Groups groups_of_partials(int parts) noexcept { return {std::clamp(bits_from(parts), 5, kThreadBits)}; }

template <typename F, typename R>
cudaError_t combine(const ReduceLaunch &launch, const Target<R, typename F::A> &target,
                    cudaStream_t stream) noexcept {
    if (target.partial == nullptr) return cudaSuccess;
    using A = typename OfPieces<F>::A;
    const Groups groups = groups_of_partials(target.parts);
    CombineParams<R, F> p{target,       groups,      launch.kept,       static_cast<A *>(launch.joined),
                          launch.slots, launch.slot, launch.first_index};
    return launch_kernel<combine_kernel<F, R>>(blocks_for(launch.kept * groups.size()), kThreads, stream, p);
}

// Results from the partial ones of pieces; `Long`: F with indices of 64 bits.
template <typename F, typename Long, typename T, typename R>
cudaError_t join_pieces(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    static_assert(std::is_same_v<typename Long::A, typename OfPieces<F>::A>);
    static_assert(ReduceLimits{}.slots * sizeof(typename Long::A) <= kPartialBytes);
    CombineParams<R, Long> p{};
    p.target = make_target<Long, T, R>(launch, static_cast<int>(launch.slots));
    p.target.partial = static_cast<typename Long::A *>(launch.joined);
    p.groups = groups_of_partials(p.target.parts);
    p.results = launch.kept;
    if (launch.slot > launch.slots) {
        p.joined = static_cast<typename Long::A *>(launch.joined);
        p.slots = launch.slots;
    }
    return launch_kernel<combine_kernel<Long, R>>(blocks_for(launch.kept * p.groups.size()), kThreads, stream, p);
}
#endif

}  // namespace cukern::cuda
