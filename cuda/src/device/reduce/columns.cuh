// Reductions across the dimension of the least steps, or along it where it is not packed.
//
// columns_kernel
//   Idea: a column is what goes into a result; columns lie beside each other along the kept dimension of the least
//   steps, and go on with the next place in the other kept ones. A thread takes a vector of columns where they are
//   packed and aligned to vectors, else one, and of the reduced dimension that it goes down every height-th row,
//   with several loads in flight, which are joined in pairs, indices one by one; it does so in each segment, a
//   place in the other reduced dimensions. A block is a row of tiles, each of so many columns, rows and segments.
//   The threads of a tile that have the same columns join in shared memory, in pairs, and the results are stored
//   side by side. Blocks share the rows or the segments of few results. Of a few long rows a thread takes all, of
//   aligned long elements by half a vector, so that more blocks are under way. Limited by device memory.
#pragma once

#include "device/reduce/group.cuh"

namespace cukern::cuda {

// Blocks that share the columns, for each of 132 multiprocessors 8: the fastest on an H200.
constexpr std::int64_t kColumnBlocks = 1056;

template <typename T, typename R, typename A>
struct ColumnsParams {
    const T *in;
    unsigned columns;  // in vectors
    Dimensions kept;   // of these, the one that columns lie along last; and in `out`
    Dimensions places;
    std::int64_t out_stride;  // of the columns of a vector
    // Of a block's threads, each of several tiles has some: side by side, in rows, and in other segments.
    Groups tile;
    int width_bits;
    int height_bits;
    // The reduced dimension that threads go down, of n elements; and the other ones, in which are segments.
    int n;
    std::int64_t stride;
    std::int64_t step;  // from one row of a thread to its next one
    Dimensions segments;
    int num_segments;
    int segment_step;
    unsigned row_weight;  // in the index of an element
    unsigned segment_weight;
    int share;  // of n, that a tile takes, and of the segments; of one of them all
    int segment_share;
    Target<R, A> target;
};

// Joins the loads of a thread down its columns, whose indices are `first` and each `step`-th after it; `is_there`:
// which. Only those of a single column may have lower indices than what was joined before.
template <typename F, typename T, int size, int loads, typename There, typename A = typename F::A>
__device__ void join_columns(A (&sums)[size], Loaded<T, size> (&x)[loads], unsigned first, unsigned step,
                             const Words &bits, const There &is_there) {
    flip_all<F, T>(x, bits);
    Elements<T, size> v[loads];
#pragma unroll
    for (int j = 0; j < loads; ++j) v[j] = bit_cast<Elements<T, size>>(x[j]);
    if constexpr (gives_index<F> && size == 1) {
        A best = F::of(v[0].values[0], static_cast<int>(first));
#pragma unroll
        for (int j = 1; j < loads; ++j)
            if (is_there(j)) best = F::join_next(best, F::of(v[j].values[0], static_cast<int>(first + j * step)));
        sums[0] = F::join(sums[0], best);
    } else if constexpr (gives_index<F>) {
#pragma unroll
        for (int j = 0; j < loads; ++j)
#pragma unroll
            for (int e = 0; e < size; ++e)
                if (is_there(j))
                    sums[e] = F::join_next(sums[e], F::of(v[j].values[e], static_cast<int>(first + j * step)));
    } else {
#pragma unroll
        for (int e = 0; e < size; ++e) {
            A values[loads];
#pragma unroll
            for (int j = 0; j < loads; ++j) values[j] = is_there(j) ? F::of(v[j].values[e], 0) : F::identity();
            sums[e] = F::join(sums[e], join_pairs<F>(values));
        }
    }
}

// What the rows of threads of a tile have of its columns joined, in pairs of rows. `store` is called for each
// result, which follow each other.
template <typename F, int size, typename Store, typename A = typename F::A>
__device__ void join_tile(const A (&sums)[size], Groups tile, int width_bits, const Store &store) {
    constexpr int kPitch = size > 1 ? size + 1 : 1;  // so that neighbours lie in different banks
    __shared__ __align__(16) unsigned char memory[kThreads * kPitch * sizeof(A)];
    auto *const shared = reinterpret_cast<A *>(memory) + static_cast<int>(threadIdx.x - tile.lane()) * kPitch;
    const int results = size << width_bits;
#pragma unroll
    for (int e = 0; e < size; ++e) shared[tile.lane() * kPitch + e] = sums[e];
    const auto place = [=](int result, int y) {
        return ((y << width_bits) + result / size) * kPitch + result % size;
    };
    for (int half = tile.size() >> width_bits >> 1; half > 0; half /= 2) {
        __syncthreads();
        for (int i = tile.lane(); i < results * half; i += tile.size()) {
            const int y = i / results;
            A &upper = shared[place(i - y * results, y)];
            upper = F::join(upper, shared[place(i - y * results, y + half)]);
        }
    }
    __syncthreads();
    for (int i = tile.lane(); i < results; i += tile.size()) store(i, shared[place(i, 0)]);
}

// Blocks at once on a multiprocessor, for which registers are left (0: any): for short elements, where it was
// faster by up to 7 %; others need the registers.
template <typename T, int size>
inline constexpr int kColumnBlocksAtOnce = sizeof(T) < 4 && size > 1 ? 4 : 0;

template <typename F, typename T, typename R, int size, int loads>
__global__ void __launch_bounds__(kThreads, kColumnBlocksAtOnce<T, size>)
    columns_kernel(const __grid_constant__ ColumnsParams<T, R, typename F::A> p) {
    using A = typename F::A;
    using V = Loaded<T, size>;
    const int parts = p.target.parts;
    const unsigned block = parts > 1 ? blockIdx.x / parts : blockIdx.x;
    const int part = static_cast<int>(blockIdx.x - block * parts);
    const unsigned tile = block * p.tile.count() + p.tile.index();
    const unsigned first_column = tile << p.width_bits;
    const unsigned column = first_column + (p.tile.lane() & ((1 << p.width_bits) - 1));
    const int height = 1 << p.height_bits;
    A sums[size];
#pragma unroll
    for (int e = 0; e < size; ++e) sums[e] = F::identity();
    if (column < p.columns) {
        const bool shares_rows = p.share < p.n;
        const int y = p.tile.lane() >> p.width_bits;
        const int start = (shares_rows ? part * p.share : 0) + (y & (height - 1));
        const int end = min(p.n, start - (y & (height - 1)) + p.share);
        const int first_segment = shares_rows ? 0 : part * p.segment_share;
        const int end_segment = min(p.num_segments, first_segment + p.segment_share);
        const int begin_segment = first_segment + (y >> p.height_bits);
        if constexpr (gives_index<F>) {  // the first element, unless another one compares better than the identity
#pragma unroll
            for (int e = 0; e < size; ++e)
                if (start < end && begin_segment < end_segment)
                    sums[e].index = static_cast<decltype(sums[e].index)>(begin_segment * p.segment_weight +
                                                                         start * p.row_weight);
        }
        const T *row = p.in + p.kept.offset_at(column) + start * p.stride;
        int i = start;
        // Takes so many rows, in each segment, so that short segments that lie side by side are read together.
        const auto take = [&](auto count, auto is_there) {
#pragma unroll 1
            for (int segment = begin_segment; segment < end_segment; segment += p.segment_step) {
                const T *const at = row + p.segments.offset_at(segment);
                V x[count.value];
#pragma unroll
                for (int j = 0; j < count.value; ++j)
                    if (is_there(j)) x[j] = *reinterpret_cast<const V *>(at + j * p.step);
                join_columns<F, T, size>(sums, x, segment * p.segment_weight + i * p.row_weight,
                                         height * p.row_weight, p.target.bits, is_there);
            }
            i += count.value * height;
            row += count.value * p.step;
        };
        const auto all = [](int) { return true; };
        using Most = std::integral_constant<int, loads>;
        using Few = std::integral_constant<int, kInFlight>;
        while (i + (loads - 1) * height < end) take(Most{}, all);
        if constexpr (loads > kInFlight)
            while (i + (kInFlight - 1) * height < end) take(Few{}, all);
        if (i < end) take(Few{}, [&](int j) { return i + j * height < end; });
    }
    if (size <= 2 && p.tile.bits == p.width_bits) {  // a thread has its columns alone
        if (column >= p.columns) return;
        const std::int64_t place = p.places.offset_at(column);
#pragma unroll
        for (int e = 0; e < size; ++e) p.target.template store<F>(place + e * p.out_stride, part, sums[e]);
        return;
    }
    join_tile<F>(sums, p.tile, p.width_bits, [&](int i, const A &sum) {
        const unsigned found = first_column + i / size;
        if (found < p.columns)
            p.target.template store<F>(p.places.offset_at(found) + i % size * p.out_stride, part, sum);
    });
}

constexpr int kVectorLoads = 8;
// Loads of a thread down a column.
template <typename T, int size>
inline constexpr int kColumnLoads = size > 1        ? loads_of<T>(kVectorLoads)
                                    : sizeof(T) < 8 ? 16
                                                    : 8;
// Of a few rows. Indices of floats, which compare for NaNs too, were faster with sixteen.
template <typename F, typename T>
inline constexpr int kShortColumnLoads = gives_index<F> && is_floating(ElementTypeOf<T>::value) ? 16 : 8;
constexpr std::int64_t kFewRows = 32;

// The dimension of the least steps, of those longer than 1; -1: none.
inline int fastest_of(const std::int64_t *shape, const std::int64_t *strides, int ndim) noexcept {
    int found = -1;
    for (int d = ndim - 1; d >= 0; --d)
        if (shape[d] > 1 && strides[d] != 0 && (found < 0 || std::abs(strides[d]) < std::abs(strides[found])))
            found = d;
    return found;
}

inline int longest_of(const std::int64_t *shape, int ndim) noexcept {
    return static_cast<int>(std::max_element(shape, shape + ndim) - shape);
}

// How threads lie over the dimensions.
struct ColumnsLayout {
    int across;       // the kept dimension that columns lie along; -1: there is one column
    int down;         // the reduced one that a thread goes down
    bool along_down;  // whether neighbouring threads lie along `down`, which has the least steps of all
};

constexpr std::int64_t kLeastRows = 32;  // that are worth to lie along

template <typename F>
ColumnsLayout lay_columns(const ReduceLaunch &launch) noexcept {
    ColumnsLayout layout;
    const int last = launch.num_reduced - 1;
    layout.across = fastest_of(launch.kept_shape, launch.kept_strides, launch.num_kept);
    const int fastest = std::max(0, fastest_of(launch.reduced_shape, launch.reduced_strides, launch.num_reduced));
    layout.along_down = layout.across < 0 ||
                        std::abs(launch.reduced_strides[fastest]) < std::abs(launch.kept_strides[layout.across]);
    layout.down = longest_of(launch.reduced_shape, launch.num_reduced);
    if (layout.along_down && launch.reduced_shape[fastest] >= kLeastRows) layout.down = fastest;
    // Of indices the first or the last one, to which the others' index is added.
    if (gives_index<F> && layout.down > 0) layout.down = last;
    layout.along_down = layout.along_down && layout.down == fastest;
    return layout;
}

template <typename F, typename T, typename R, int size, int loads>
cudaError_t launch_columns(const ReduceLaunch &launch, bool few, cudaStream_t stream) noexcept {
    ColumnsParams<T, R, typename F::A> p;
    const ColumnsLayout layout = lay_columns<F>(launch);
    p.in = static_cast<const T *>(launch.in);
    const std::int64_t columns = layout.across < 0 ? 1 : launch.kept_shape[layout.across] / size;  // side by side
    p.columns = static_cast<unsigned>(launch.kept / size);
    std::int64_t place = 1;  // in `out`, of the dimensions from the fastest on
    std::int64_t places[kMaxReduceDims];
    for (int d = launch.num_kept - 1; d >= 0; --d) {
        places[d] = place;
        place *= launch.kept_shape[d];
    }
    for (int d = 0; d < launch.num_kept; ++d) {
        if (d == layout.across) continue;
        p.kept.add(launch.kept_shape[d], launch.kept_strides[d]);
        p.places.add(launch.kept_shape[d], places[d]);
    }
    p.out_stride = layout.across < 0 ? 1 : places[layout.across];
    if (layout.across >= 0) {
        p.kept.add(columns, launch.kept_strides[layout.across] * size);
        p.places.add(columns, p.out_stride * size);
    }
    p.n = static_cast<int>(launch.reduced_shape[layout.down]);
    p.stride = launch.reduced_strides[layout.down];
    p.num_segments = static_cast<int>(launch.reduced / p.n);
    for (int d = 0; d < launch.num_reduced; ++d)
        if (d != layout.down) p.segments.add(launch.reduced_shape[d], launch.reduced_strides[d]);
    const bool down_is_last = layout.down == launch.num_reduced - 1;
    p.row_weight = down_is_last ? 1 : static_cast<unsigned>(p.num_segments);
    p.segment_weight = down_is_last ? static_cast<unsigned>(p.n) : 1;
    if (layout.along_down) {
        p.width_bits = 0;
        p.height_bits = std::min(kThreadBits, bits_from((p.n + kInFlight - 1) / kInFlight));
    } else {
        // Rows of threads where there are enough rows of elements for each to have some loads in flight.
        p.height_bits = few || p.n < 16 ? 0 : p.n < 32 ? 1 : size * sizeof(T) == 8 ? 3 : 2;
        p.width_bits = std::min(kThreadBits - p.height_bits, bits_from(columns));
        while (p.width_bits + p.height_bits < kThreadBits && p.n >> p.height_bits >= kVectorLoads) ++p.height_bits;
    }
    p.tile.bits = p.width_bits + p.height_bits;
    // Few results: threads share their segments, too.
    for (int bits = 0; p.tile.bits < kThreadBits && launch.kept << p.tile.bits < kColumnBlocks * kThreads &&
                       p.num_segments >> bits >= kInFlight;
         ++bits)
        ++p.tile.bits;
    p.segment_step = 1 << (p.tile.bits - p.width_bits - p.height_bits);
    p.step = p.stride * (1 << p.height_bits);
    const std::int64_t tiles = (std::int64_t{p.columns} + (1 << p.width_bits) - 1) >> p.width_bits;
    const std::int64_t blocks = (tiles + p.tile.count() - 1) / p.tile.count();
    // Blocks that share results take other rows, or where there are few of them, other segments.
    const std::int64_t row_parts = p.n / (std::int64_t{kVectorLoads} << p.height_bits);
    const std::int64_t segment_parts = p.num_segments / (std::int64_t{kInFlight} * p.segment_step);
    const int parts = parts_for<typename F::A>(launch, kColumnBlocks, blocks, std::max(row_parts, segment_parts));
    const bool shares_rows = row_parts >= segment_parts;
    p.target = make_target<F, T, R>(launch, parts);
    p.share = shares_rows ? p.n / parts + (p.n % parts != 0 ? 1 : 0) : p.n;
    p.segment_share = shares_rows ? p.num_segments : (p.num_segments + parts - 1) / parts;
    const auto all = static_cast<unsigned>(blocks * p.target.parts);
    const cudaError_t error = launch_kernel<columns_kernel<F, T, R, size, loads>>(all, kThreads, stream, p);
    if (error != cudaSuccess) return error;
    return combine<F, R>(launch, p.target, stream);
}

// Whether columns are packed, and all rows begin at a vector and end with one.
template <typename T>
bool are_vectors(const ReduceLaunch &launch, int across) noexcept {
    const auto whole = [](std::int64_t elements) {
        return elements * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
    };
    if (across < 0 || launch.kept_strides[across] != 1) return false;
    if (reinterpret_cast<std::uintptr_t>(launch.in) % 16 != 0 || !whole(launch.kept_shape[across])) return false;
    for (int d = 0; d < launch.num_kept; ++d)
        if (d != across && !whole(launch.kept_strides[d])) return false;
    for (int d = 0; d < launch.num_reduced; ++d)
        if (!whole(launch.reduced_strides[d])) return false;
    return true;
}

template <typename F, typename T, typename R>
cudaError_t launch_columns(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    constexpr int kSize = Vector<T>::kSize;
    constexpr int kHalf = std::max(1, kSize / 2);
    const int across = lay_columns<F>(launch).across;
    const bool few =
        launch.reduced <= kFewRows && across >= 0 && launch.kept_shape[across] / kSize >= kColumnBlocks * kThreads;
    // Of single columns alone may loads come in another order than their indices, as those of several segments do.
    const bool in_order = !gives_index<F> || launch.num_reduced == 1;
    if (!in_order || !are_vectors<T>(launch, across))
        return launch_columns<F, T, R, 1, kColumnLoads<T, 1>>(launch, few, stream);
    if constexpr (sizeof(T) >= 4) {
        constexpr int kLoads = kHalf == 1 ? kColumnLoads<T, 1> : kShortColumnLoads<F, T>;
        if (few) return launch_columns<F, T, R, kHalf, kLoads>(launch, true, stream);
    }
    return launch_columns<F, T, R, kSize, kColumnLoads<T, kSize>>(launch, few, stream);
}

}  // namespace cukern::cuda
