// Reductions on the CPU.
//
// Idea: elements are gathered in blocks of kBlock, reduced by eight running results, and the blocks are joined in
// pairs as a binary counter carries: sums are then as accurate as NumPy's pairwise ones, whatever the strides.
// Results are shared out among the threads; of few long ones, pieces of a fixed length, so that the number of
// threads changes nothing.
#include <algorithm>
#include <memory>
#include <new>

#include "formulas/reducers.cuh"
#include "host/kernels.h"
#include "host/thread_pool.h"

namespace cukern::host {
namespace {

constexpr int kBlock = 128;
constexpr int kLevels = 64;
constexpr std::int64_t kPiece = 1 << 16;
constexpr std::int64_t kGrain = 16384;  // elements below which a second thread costs more than it saves

// Where element `at` of the dimensions lies, and the step to the next along the fastest.
struct Walk {
    Walk(const std::int64_t *shape, const std::int64_t *strides, int ndim, std::int64_t at) noexcept
        : shape_(shape), strides_(strides), ndim_(ndim) {
        for (int d = ndim - 1; d >= 0; --d) {
            index_[d] = at % shape[d];
            at /= shape[d];
            offset += index_[d] * strides[d];
        }
    }
    std::int64_t run() const noexcept { return ndim_ == 0 ? 1 : shape_[ndim_ - 1] - index_[ndim_ - 1]; }
    std::int64_t stride() const noexcept { return ndim_ == 0 ? 0 : strides_[ndim_ - 1]; }
    void advance(std::int64_t n) noexcept {
        for (int d = ndim_ - 1; d >= 0; --d) {
            index_[d] += n;
            offset += n * strides_[d];
            if (index_[d] < shape_[d] || d == 0) return;
            offset -= index_[d] * strides_[d];
            index_[d] = 0;
            n = 1;
        }
    }

    std::int64_t offset = 0;

private:
    const std::int64_t *shape_;
    const std::int64_t *strides_;
    const int ndim_;
    std::int64_t index_[kMaxDims];
};

// In two passes over the block, each in eight running results.
template <typename F, typename T>
typename F::A variance_of(const T *elements, std::int64_t n) noexcept {
    using P = typename F::P;
    typename F::A all{};
    all.count = static_cast<P>(n);
    for (int k = 0; k < F::kParts; ++k) {
        P distances[kBlock];
        P sums[8] = {};
        P squares[8] = {};
        all.pivot[k] = F::part(elements[0], k);
        for (std::int64_t i = 0; i < n; ++i) distances[i] = F::part(elements[i], k) - all.pivot[k];
        for (std::int64_t i = n; i < kBlock; ++i) distances[i] = 0;
        for (int i = 0; i < kBlock; i += 8)
            for (int j = 0; j < 8; ++j) sums[j] += distances[i + j];
        const auto total = [](const P(&of)[8]) {
            return ((of[0] + of[1]) + (of[2] + of[3])) + ((of[4] + of[5]) + (of[6] + of[7]));
        };
        const P mean = total(sums) / all.count;
        for (std::int64_t i = 0; i < n; ++i) distances[i] -= mean;
        for (int i = 0; i < kBlock; i += 8)
            for (int j = 0; j < 8; ++j) squares[j] += distances[i + j] * distances[i + j];
        all.mean[k] = mean;
        all.squares += total(squares);
    }
    return all;
}

template <Op op, typename T>
typename Reducer<op, T>::A reduce_block(const T *elements, std::int64_t n, std::int64_t first) noexcept {
    using F = Reducer<op, T>;
    using A = typename F::A;
    if constexpr (op == Op::var || op == Op::std) return variance_of<F>(elements, n);
    // Apart from the sums: GCC 12 at -O3 loses some of what a loop both widens from 8 bits and adds.
    A values[kBlock];
    for (std::int64_t i = 0; i < n; ++i) values[i] = F::of(elements[i], first + i);
    for (std::int64_t i = n; i < kBlock; ++i) values[i] = F::identity();
    A running[8];
    for (int j = 0; j < 8; ++j) running[j] = values[j];
    for (int i = 8; i < kBlock; i += 8)
        for (int j = 0; j < 8; ++j) running[j] = F::join(running[j], values[i + j]);
    return F::join(F::join(F::join(running[0], running[1]), F::join(running[2], running[3])),
                   F::join(F::join(running[4], running[5]), F::join(running[6], running[7])));
}

template <typename T>
void load(const ReduceLaunch &launch, std::int64_t offset, std::int64_t stride, std::int64_t n, T *out) noexcept {
    if (launch.type == ElementTypeOf<T>::value) {
        const T *data = static_cast<const T *>(launch.in) + offset;
        for (std::int64_t i = 0; i < n; ++i) out[i] = data[i * stride];
    } else {
        for (std::int64_t i = 0; i < n; ++i) out[i] = load_as<T>(launch.in, launch.type, offset + i * stride);
    }
}

// Reduces elements [begin, end) of one result.
template <Op op, typename T>
typename Reducer<op, T>::A reduce_range(const ReduceLaunch &launch, std::int64_t base, std::int64_t begin,
                                        std::int64_t end) noexcept {
    using F = Reducer<op, T>;
    using A = typename F::A;
    Walk walk(launch.reduced_shape, launch.reduced_strides, launch.num_reduced, begin);
    T elements[kBlock];
    A waiting[kLevels];  // of 1, 2, 4, ... blocks, where `blocks` has a bit
    std::uint64_t blocks = 0;
    for (std::int64_t at = begin; at < end;) {
        const std::int64_t first = at;
        std::int64_t n = 0;
        while (n < kBlock && at < end) {
            const std::int64_t part = std::min({walk.run(), kBlock - n, end - at});
            load(launch, base + walk.offset, walk.stride(), part, elements + n);
            walk.advance(part);
            n += part;
            at += part;
        }
        A sum = reduce_block<op>(elements, n, first);
        int level = 0;
        for (; (blocks >> level & 1U) != 0; ++level) sum = F::join(waiting[level], sum);
        waiting[level] = sum;
        ++blocks;
    }
    A sum = F::identity();
    for (int level = 0; level < kLevels; ++level)
        if ((blocks >> level & 1U) != 0) sum = F::join(waiting[level], sum);
    return sum;
}

template <Op op, typename T>
void reduce_as(const ReduceLaunch &launch) noexcept {
    using F = Reducer<op, T>;
    using A = typename F::A;
    using R = reduced_t<op, T>;
    auto *out = static_cast<R *>(launch.out);
    const Finish finish = finish_of(op, launch.reduced, launch.correction);
    const std::int64_t pieces = (launch.reduced + kPiece - 1) / kPiece;
    const std::unique_ptr<A[]> parts(pieces > 1 && launch.kept < 64 ? new (std::nothrow) A[pieces] : nullptr);
    if (parts == nullptr) {
        const std::int64_t grain = std::max<std::int64_t>(1, kGrain / launch.reduced);
        parallel_for(launch.kept, grain, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const Walk walk(launch.kept_shape, launch.kept_strides, launch.num_kept, i);
                const A all = reduce_range<op, T>(launch, walk.offset, 0, launch.reduced);
                out[i] = F::template result<R>(all, finish);
            }
        });
        return;
    }
    for (std::int64_t i = 0; i < launch.kept; ++i) {
        const Walk walk(launch.kept_shape, launch.kept_strides, launch.num_kept, i);
        parallel_for(pieces, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t piece = begin; piece < end; ++piece)
                parts[piece] = reduce_range<op, T>(launch, walk.offset, piece * kPiece,
                                                   std::min(launch.reduced, (piece + 1) * kPiece));
        });
        for (std::int64_t step = 1; step < pieces; step *= 2)  // in pairs
            for (std::int64_t j = 0; j + step < pieces; j += 2 * step)
                parts[j] = F::join(parts[j], parts[j + step]);
        out[i] = F::template result<R>(parts[0], finish);
    }
}

template <Op op>
void reduce_op(const ReduceLaunch &launch) noexcept {
    constexpr auto kExists = [](ElementType type) { return reduces_in(op, type); };
    switch (launch.compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)                     \
    case ElementType::id:                                                                     \
        if constexpr (is_made(ElementType::id, kExists)) return reduce_as<op, ctype>(launch); \
        break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
}

}  // namespace

void run_reduction(const ReduceLaunch &launch) noexcept {
    switch (launch.op) {
#define CUKERN_OP(id, kind, types, rule, doc)                                 \
    case Op::id:                                                              \
        if constexpr (is_reduction(Op::id)) return reduce_op<Op::id>(launch); \
        break;
#include "cukern/ops.def"
#undef CUKERN_OP
        case Op::copy:
        case Op::clip: break;
    }
}

}  // namespace cukern::host
