// Reductions across the dimension of the least steps, or along it where it is not packed, or its rows are short.
//
// columns_kernel
//   Idea: a column is what goes into a result; columns lie beside each other along the kept dimension of the least
//   steps, and go on with the next place in the other kept ones. A thread takes a vector of columns where they are
//   packed and aligned to vectors, and enough for all multiprocessors, else one, and of the reduced dimension that
//   it goes down every height-th row, with several loads in flight, which are joined in pairs, indices one by one;
//   it does so in each segment, a place in the other reduced dimensions. A block is a row of tiles, each of so
//   many columns, rows and segments. The threads of a tile that have the same columns join in shared memory, in
//   pairs, and the results are stored in the order of the columns. Blocks share the rows or the segments of few
//   results. Limited by device memory.
// short_columns_kernel
//   Idea: of columns of few elements, which no vectors serve, a thread takes one: what columns_kernel does to
//   share them out takes longer than they do. Limited by instructions.
#pragma once

#include "device/follow.cuh"
#include "device/reduce/group.cuh"

namespace cukern::cuda {

template <int value>
using Int = std::integral_constant<int, value>;

template <typename T, typename R, typename A>
struct ColumnsParams : ColumnsPlan {
    const T *in;
    Target<R, A> target;
    bool stores_vectors;  // threads that have their columns alone
};

// Joins the loads of a thread down its columns, whose indices are `first` and each `step`-th after it; `is_there`:
// which. Only those of a single column may have lower indices than what was joined before.
template <typename F, typename T, int size, int loads, typename There, typename A = typename F::A>
__device__ void join_columns(const F &f, A (&sums)[size], Loaded<T, size> (&x)[loads], unsigned first,
                             unsigned step, const Words &bits, const There &is_there) {
    flip_all<F, T>(x, bits);
    Elements<T, size> v[loads];
#pragma unroll
    for (int j = 0; j < loads; ++j) v[j] = bit_cast<Elements<T, size>>(x[j]);
    if constexpr (gives_index<F> && size == 1) {
        A best = f.of(v[0].values[0], static_cast<int>(first));
#pragma unroll
        for (int j = 1; j < loads; ++j)
            if (is_there(j)) best = f.join_next(best, f.of(v[j].values[0], static_cast<int>(first + j * step)));
        sums[0] = f.join(sums[0], best);
    } else if constexpr (gives_index<F>) {
#pragma unroll
        for (int j = 0; j < loads; ++j)
#pragma unroll
            for (int e = 0; e < size; ++e)
                if (is_there(j))
                    sums[e] = f.join_next(sums[e], f.of(v[j].values[e], static_cast<int>(first + j * step)));
    } else {
#pragma unroll
        for (int e = 0; e < size; ++e) {
            if constexpr (takes_all<F>) {
                T elements[loads];
#pragma unroll
                for (int j = 0; j < loads; ++j) elements[j] = v[j].values[e];
                sums[e] = f.join(sums[e], f.template of_all<1>(elements, is_there));
            } else {
                A values[loads];
#pragma unroll
                for (int j = 0; j < loads; ++j) values[j] = is_there(j) ? f.of(v[j].values[e], 0) : f.identity();
                sums[e] = f.join(sums[e], join_pairs(f, values));
            }
        }
    }
}

// What the rows of threads of a tile have of their columns, one each, for the threads of the first row; in pairs.
template <typename F, typename A = typename F::A>
__device__ A join_rows(const F &f, A sum, Groups tile, int width_bits) {
    __shared__ __align__(16) unsigned char memory[kThreads * sizeof(A)];
    auto *const shared = reinterpret_cast<A *>(memory);
#pragma unroll 1
    for (int half = tile.size() / 2; half >> width_bits > 0; half /= 2) {
        A other;
        if (half < 32) {
            other = shuffled_down(sum, half);
        } else {
            __syncthreads();
            shared[threadIdx.x] = sum;
            __syncthreads();
            other = shared[(threadIdx.x + half) % kThreads];
        }
        sum = f.join(sum, other);
    }
    return sum;
}

// The same of several columns each. `store` is called for each result, which follow each other.
template <typename F, int size, typename Store, typename A = typename F::A>
__device__ void join_tile(const F &f, const A (&sums)[size], Groups tile, int width_bits, const Store &store) {
    constexpr int kPitch = size > 1 ? size + 1 : 1;  // so that neighbours lie in different banks
    __shared__ __align__(16) unsigned char memory[kThreads * kPitch * sizeof(A)];
    auto *const shared = reinterpret_cast<A *>(memory) + static_cast<int>(threadIdx.x - tile.lane()) * kPitch;
    const int results = size << width_bits;
#pragma unroll
    for (int e = 0; e < size; ++e) shared[tile.lane() * kPitch + e] = sums[e];
    const auto place = [=](int result, int y) {
        return ((y << width_bits) + result / size) * kPitch + result % size;
    };
#pragma unroll 1
    for (int half = tile.size() >> width_bits >> 1; half > 0; half /= 2) {
        __syncthreads();
#pragma unroll 1
        for (int i = tile.lane(); i < results * half; i += tile.size()) {
            const int y = i / results;
            A &upper = shared[place(i - y * results, y)];
            upper = f.join(upper, shared[place(i - y * results, y + half)]);
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = tile.lane(); i < results; i += tile.size()) store(i, shared[place(i, 0)]);
}

// Whether the results of a thread's columns can be a vector, and their code is short.
template <typename F, typename R, int size>
inline constexpr bool kStoresVectors = size > 4 && size * sizeof(R) <= 16 && !is_heavy<F>;

template <typename F, typename T, int size>
inline constexpr int kColumnBlocksAtOnce = column_blocks_at_once(sizeof(T), size, is_variance<F>);

template <typename F, typename T, typename R, int size, int loads>
__global__ void __launch_bounds__(kThreads, kColumnBlocksAtOnce<F, T, size>)
    columns_kernel(const __grid_constant__ ColumnsParams<T, R, typename F::A> p) {
    using A = typename F::A;
    using V = Loaded<T, size>;
    const F f = reducer_of<F>(p.target.finish);
    const int parts = p.target.parts;
    const unsigned block = parts > 1 ? blockIdx.x / parts : blockIdx.x;
    const int part = static_cast<int>(blockIdx.x - block * parts);
    const unsigned tile = block * p.tile.count() + p.tile.index();
    const unsigned first_column = tile << p.width_bits;
    const unsigned column = first_column + (p.tile.lane() & ((1 << p.width_bits) - 1));
    const int height = 1 << p.height_bits;
    A sums[size];
#pragma unroll
    for (int e = 0; e < size; ++e) sums[e] = f.identity();
    std::int64_t place = 0;
    follow_kernel_before();
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
        const T *row = p.in + p.kept.offset_at(column, &place) + start * p.stride;
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
                join_columns<F, T, size>(f, sums, x, segment * p.segment_weight + i * p.row_weight,
                                         height * p.row_weight, p.target.bits, is_there);
            }
            i += count.value * height;
            row += count.value * p.step;
        };
        const auto all = [](int) { return true; };
        using Most = Int<loads>;
        using Few = Int<kInFlight>;
        if constexpr (loads > kInFlight)
            if (p.deep)
                while (i + (loads - 1) * height < end) take(Most{}, all);
        if constexpr (size == 1 && sizeof(T) < 8 && !is_heavy<F>)  // elsewhere comparing takes little time
            while (i + (kInFlight - 1) * height < end) take(Few{}, all);
        const auto rest = [&](int j) { return i + j * height < end; };
        while (i < end) take(Few{}, rest);
    }
    if constexpr (kStoresVectors<F, R, size>) {
        if (p.stores_vectors) {
            if (column < p.columns) p.target.template store_vector<F>(place, sums);
            return;
        }
    }
    if (size <= 2 && (size == 1 || p.is_alone())) {
        if constexpr (size == 1) sums[0] = join_rows(f, sums[0], p.tile, p.width_bits);
        if (p.tile.lane() >> p.width_bits > 0 || column >= p.columns) return;
#pragma unroll
        for (int e = 0; e < size; ++e) p.target.template store<F>(place + e * p.out_stride, part, sums[e]);
        return;
    }
    if constexpr (size > 1)
        join_tile(f, sums, p.tile, p.width_bits, [&](int i, const A &sum) {
            const unsigned found = first_column + i / size;
            if (found < p.columns)
                p.target.template store<F>(p.kept.place_at(found) + i % size * p.out_stride, part, sum);
        });
}

template <typename T, typename R, typename A>
struct ShortColumnsParams : ShortColumnsPlan {
    const T *in;
    Target<R, A> target;
};

template <typename F, typename T, typename R>
__global__ void __launch_bounds__(kThreads)
    short_columns_kernel(const __grid_constant__ ShortColumnsParams<T, R, typename F::A> p) {
    const F f = reducer_of<F>(p.target.finish);
    const unsigned column = blockIdx.x * kThreads + threadIdx.x;
    follow_kernel_before();
    if (column >= p.columns) return;
    std::int64_t place = 0;
    const T *const elements = p.in + p.kept.offset_at(column, &place);
    typename F::A sums[1] = {f.identity()};
    if constexpr (gives_index<F>) sums[0].index = 0;  // unless another element compares better than the identity
#pragma unroll 1
    for (int i = 0; i < p.n; i += kInFlight) {
        const auto is_there = [&](int j) { return i + j < p.n; };
        Loaded<T, 1> x[kInFlight];
#pragma unroll
        for (int j = 0; j < kInFlight; ++j)
            if (is_there(j)) x[j] = *reinterpret_cast<const Loaded<T, 1> *>(elements + p.places[i + j]);
        join_columns<F, T, 1>(f, sums, x, i, 1, p.target.bits, is_there);
    }
    p.target.template store<F>(place, 0, sums[0]);
}

template <typename F, typename T, int size>
inline constexpr int kColumnLoads = column_loads(sizeof(T), size, is_heavy<F>);

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
template <typename F, typename T, typename R>
cudaError_t launch_columns(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    constexpr int kSize = Vector<T>::kSize;
    ColumnsParams<T, R, typename F::A> p;
    const ReduceGrid grid = plan_columns(launch, traits_of<F, T>(), &p);
    p.in = static_cast<const T *>(launch.in);
    if (grid.is_short) {
        ShortColumnsParams<T, R, typename F::A> short_columns;
        const unsigned blocks = plan_short_columns(launch, &short_columns);
        short_columns.in = static_cast<const T *>(launch.in);
        short_columns.target = make_target<F, T, R>(launch, 1);
        const cudaError_t error =
            launch_kernel<short_columns_kernel<F, T, R>>(blocks, kThreads, stream, short_columns);
        return error != cudaSuccess ? error : combine<F, R>(launch, short_columns.target, stream);
    }
    p.target = make_target<F, T, R>(launch, grid.parts);
    cudaError_t error = cudaErrorInvalidValue;
    const auto with = [&](auto size, auto loads) {
        constexpr bool kStores = kStoresVectors<F, R, size.value>;
        p.stores_vectors = kStores && p.is_alone() && p.out_stride == 1 && p.target.stores_vectors(size.value);
        error = launch_kernel<columns_kernel<F, T, R, size.value, loads.value>>(grid.blocks, kThreads, stream, p);
    };
    if (grid.size == 1) with(Int<1>{}, Int<kColumnLoads<F, T, 1>>{});
    if constexpr (kSize > 1 && !has_columns_alone<F>) {
        if (grid.size == kSize) with(Int<kSize>{}, Int<kColumnLoads<F, T, kSize>>{});
    }
    return error != cudaSuccess ? error : combine<F, R>(launch, p.target, stream);
}
#endif

}  // namespace cukern::cuda
