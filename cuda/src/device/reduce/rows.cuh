// Reductions along the packed dimension.
//
// rows_kernel
//   Idea: a group of 8 to 256 threads takes a row by 16-byte vectors, four loads in flight a thread; then shuffles
//   and shared memory. Groups are as narrow as leaves each thread up to 16 vectors of a row, 32 where it looks for
//   indices: joining threads takes longer than going on. Of few long rows, blocks take turns along each, or
//   along each segment, with two to sixteen loads in flight. What of a row lies before the first whole vector
//   and after the last is taken by elements, which are asked for before all else, but for rows that blocks share,
//   and used last. Limited by device memory.
// short_rows_kernel
//   Idea: a row is at most 32 vectors, one for each of a group of threads, which takes four rows at once so that
//   enough loads are in flight; of rows too few for that rows_kernel takes them. Rows begin and end anywhere: what
//   of a row's first and last vector belongs to it is taken by elements, each such edge by another thread of the
//   group. Then pairs of threads share the rows out, until each has one: four rows take as many shuffles as one
//   and two more. Limited by device memory.
#pragma once

#include "device/follow.cuh"
#include "device/reduce/group.cuh"

namespace cukern::cuda {

template <typename F, typename T, bool split>
inline constexpr int kRowLoads = row_loads(sizeof(T), gives_index<F>, is_variance<F>, split);

template <typename T, typename R, typename A>
struct RowsParams : RowsPlan {
    const T *in;
    Target<R, A> target;
};

// A row's vectors: the first starts at or before the row, at an aligned address.
template <typename T>
struct Row {
    const Words *base;
    int shift;    // elements of the first vector before the row
    int vectors;  // that the row touches

    __device__ Row(const T *row, int n) {
        shift = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % sizeof(Words) / sizeof(T));
        base = vector_around(row);
        vectors = static_cast<int>((static_cast<unsigned>(n) + shift + Vector<T>::kSize - 1) / Vector<T>::kSize);
    }
    __device__ bool is_whole(int vector, int n) const {
        constexpr int kSize = Vector<T>::kSize;
        return vector * kSize >= shift && (vector + 1) * kSize <= n + shift;
    }
};

template <typename F, typename T, int size>
__device__ typename F::A reduce_vector(const F &f, const Elements<T, size> &vector, int first) {
    if constexpr (is_any<F>) return kinds_in(vector);
    const T(&values)[size] = vector.values;
    if constexpr (takes_all<F>) return f.template of_all<size>(values, [](int) { return true; });
    typename F::A result = F::of(values[0], 0);
#pragma unroll
    for (int i = 1; i < size; ++i) result = join_later(f, result, F::of(values[i], i));
    if constexpr (gives_index<F>) result.index += static_cast<decltype(result.index)>(first);
    return result;
}

// Joins what a thread has loaded in pairs; indices, which are larger, one by one. What was not there is the
// identity, beyond which everything is.
template <typename F, int loads, typename A = typename F::A>
__device__ void join_loads(const F &f, A (&sums)[kRowSums], A (&values)[loads]) {
    if constexpr (gives_index<F>) {
#pragma unroll
        for (int j = 0; j < loads; ++j) sums[j % kRowSums] = f.join_later(sums[j % kRowSums], values[j]);
    } else {
        sums[0] = f.join(sums[0], join_pairs(f, values));
    }
}

// `split`: blocks share rows, or each segment of a row, and take turns along it.
template <typename F, typename T, typename R, bool split>
__global__ void __launch_bounds__(kThreads, split ? 2 : 0)
    rows_kernel(const __grid_constant__ RowsParams<T, R, typename F::A> p) {
    using A = typename F::A;
    constexpr int kSize = Vector<T>::kSize;
    constexpr int kLoads = kRowLoads<F, T, split>;
    const Words &bits = p.target.bits;
    const F f = reducer_of<F>(p.target.finish);
    std::uint32_t piece;
    const unsigned block = p.pieces.divide(blockIdx.x, &piece);
    const int parts = split ? p.share : 1;  // of each segment
    std::uint32_t of_segment = 0;
    const auto piece_segment = static_cast<int>(split ? p.parts.divide(piece, &of_segment) : 0);
    const auto part = static_cast<int>(of_segment);
    const int group = p.groups.size();
    const int lane = p.groups.lane();
    const unsigned row = block * p.groups.count() + p.groups.index();
    A sums[kRowSums];
#pragma unroll
    for (int j = 0; j < kRowSums; ++j) sums[j] = f.identity();
    const int segments_begin = split ? piece_segment : static_cast<int>(piece) * p.share;
    const int segments_end = split ? segments_begin + 1 : min(p.num_segments, segments_begin + p.share);
    follow_kernel_before();
    for (int segment = segments_begin; row < p.rows && segment < segments_end; ++segment) {
        const T *const elements = p.in + p.kept.offset_at(row) + p.segments.offset_at(segment);
        const int begin = segment * p.n;  // the index of the first of them
        const Row<T> r(elements, p.n);
        const int whole_begin = r.shift > 0 ? 1 : 0;
        const int whole_end = static_cast<int>((static_cast<unsigned>(p.n) + r.shift) / kSize);
        // Before the first whole vector, and after the last.
        constexpr int kEdge = (kSize + (1 << kLeastRowBits) - 1) >> kLeastRowBits;  // elements of a thread
        const int head_end = part == 0 ? min(whole_begin * kSize - r.shift, p.n) : 0;
        const int tail = max(whole_end, whole_begin) * kSize - r.shift + lane;
        const int tail_end = part == parts - 1 ? p.n : 0;
        T head_elements[kEdge];
        T tail_elements[kEdge];
        if constexpr (split) {  // so many vectors leave no registers to keep them in
            for (int k = lane; k < head_end; k += group)
                sums[0] = join_later(f, sums[0], value_of<F>(elements[k], begin + k, bits));
        } else {
#pragma unroll
            for (int j = 0; j < kEdge; ++j) {
                if (lane + j * group < head_end) head_elements[j] = elements[lane + j * group];
                if (tail + j * group < tail_end) tail_elements[j] = elements[tail + j * group];
            }
        }
        const int unit = (split ? p.loads : kLoads) * group;  // that the block takes at a time
        const int step = unit * parts;
        int v = whole_begin + part * unit + lane;
        const auto take = [&](auto is_there) {
            Words x[kLoads];
#pragma unroll
            for (int j = 0; j < kLoads; ++j)
                if (is_there(v + j * group)) x[j] = r.base[v + j * group];
            flip_all<F, T>(x, bits);
            if constexpr (takes_all<F>) {
                T values[kLoads * kSize];
#pragma unroll
                for (int i = 0; i < kLoads * kSize; ++i)
                    values[i] = bit_cast<Vector<T>>(x[i / kSize]).values[i % kSize];
                const auto is_value = [&](int i) { return is_there(v + i / kSize * group); };
                sums[0] = f.join(sums[0], f.template of_all<kSize>(values, is_value));
            } else {
                A values[kLoads];
#pragma unroll
                for (int j = 0; j < kLoads; ++j) {
                    const int at = v + j * group;
                    values[j] = is_there(at)
                                    ? reduce_vector(f, bit_cast<Vector<T>>(x[j]), begin + at * kSize - r.shift)
                                    : f.identity();
                }
                join_loads(f, sums, values);
            }
        };
        // Of rows that blocks share long elements are as fast without this loop, but for variances.
        if constexpr (!split || sizeof(T) < 4 || is_variance<F>)
            if (unit == kLoads * group)
                for (; v + (kLoads - 1) * group < whole_end; v += step) take([](int) { return true; });
        // What is left, at once too; of short rows it is a good part of the work.
        if constexpr (split) {
            for (; v < whole_end; v += step) {
                const int end = min(whole_end, v - lane + unit);
                take([=](int at) { return at < end; });
            }
        } else if constexpr (!gives_index<F>) {
            if (v < whole_end) take([=](int at) { return at < whole_end; });
        } else {
            Words x[kLoads];
#pragma unroll
            for (int j = 0; j < kLoads; ++j)
                if (v + j * group < whole_end) x[j] = r.base[v + j * group];
            flip_all<F, T>(x, bits);
#pragma unroll
            for (int j = 0; j < kLoads; ++j)
                if (v + j * group < whole_end)
                    sums[j % kRowSums] = join_later(
                        f, sums[j % kRowSums],
                        reduce_vector(f, bit_cast<Vector<T>>(x[j]), begin + (v + j * group) * kSize - r.shift));
        }
        if constexpr (split) {
            for (int k = tail; k < tail_end; k += group)
                sums[1] = f.join(sums[1], value_of<F>(elements[k], begin + k, bits));
        } else {
#pragma unroll
            for (int j = 0; j < kEdge; ++j) {
                if (lane + j * group < head_end)
                    sums[0] = f.join(sums[0], value_of<F>(head_elements[j], begin + lane + j * group, bits));
                if (tail + j * group < tail_end)
                    sums[1] = f.join(sums[1], value_of<F>(tail_elements[j], begin + tail + j * group, bits));
            }
        }
    }
    A sum = f.join(sums[0], sums[1]);
    sum = join_group(f, sum, p.groups);
    if (lane == 0 && row < p.rows) p.target.template store<F>(row, static_cast<int>(piece), sum);
}

// The elements of one vector that belong to a row of n, which starts `shift` elements after the vector at `base`.
// A function, so that what it takes leaves registers for vectors.
template <typename F, typename T>
__device__ __noinline__ typename F::A reduce_edge(const F f, const Words *base, int vector, int shift, int n,
                                                  const Words bits) {
    constexpr int kSize = Vector<T>::kSize;
    typename F::A result = f.identity();
    const T *elements = reinterpret_cast<const T *>(base + vector);
    for (int i = 0; i < kSize; ++i) {
        const int at = vector * kSize + i - shift;
        if (at >= 0 && at < n) result = join_later(f, result, value_of<F>(elements[i], at, bits));
    }
    return result;
}

// Joins the values that the threads of a group of up to 32 have of kInFlight rows: in pairs of threads that share
// the rows out, until each has one. Returns the first row of which the thread then has the result, the next ones
// follow in `values`.
template <typename F, typename A = typename F::A>
__device__ int join_rows(const F &f, A (&values)[kInFlight], Groups groups) {
    int by = groups.size() / 2;
    int first = 0;
#pragma unroll
    for (int half = kInFlight / 2; half > 0; half /= 2) {
        if (by == 0) break;
        const bool upper = (groups.lane() & by) != 0;
#pragma unroll
        for (int j = 0; j < half; ++j) {
            const A given = upper ? values[j] : values[j + half];
            const A kept = upper ? values[j + half] : values[j];
            values[j] = f.join(kept, shuffled_across(given, by));
        }
        if (upper) first += half;
        by /= 2;
    }
#pragma unroll 1
    for (; by > 0; by /= 2) values[0] = f.join(values[0], shuffled_across(values[0], by));
    return first;
}

template <typename F, typename T, typename R>
__global__ void __launch_bounds__(kThreads)
    short_rows_kernel(const __grid_constant__ RowsParams<T, R, typename F::A> p) {
    using A = typename F::A;
    constexpr int kSize = Vector<T>::kSize;
    const F f = reducer_of<F>(p.target.finish);
    const int lane = p.groups.lane();
    const int rows = p.groups.count();
    const unsigned first = blockIdx.x * rows * kInFlight + p.groups.index();
    follow_kernel_before();
    Words x[kInFlight];
    bool whole[kInFlight];
    int place[kInFlight];  // of the vector's first element in the row
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
        const unsigned row = first + j * rows;
        whole[j] = false;
        place[j] = 0;
        if (row >= p.rows) continue;
        const Row<T> r(p.in + p.kept.offset_at(row), p.n);
        place[j] = lane * kSize - r.shift;
        whole[j] = r.is_whole(lane, p.n);
        if (whole[j]) x[j] = r.base[lane];
    }
    flip_all<F, T>(x, p.target.bits);
    A sums[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j)
        sums[j] = whole[j] ? reduce_vector(f, bit_cast<Vector<T>>(x[j]), place[j]) : f.identity();

        // The elements of the first and the last vector that belong to a row.
#pragma unroll 1
    for (int edge = lane; edge < 2 * kInFlight; edge += p.groups.size()) {
        const int in_flight = edge / 2;
        const unsigned row = first + in_flight * rows;
        if (row >= p.rows) break;
        const Row<T> r(p.in + p.kept.offset_at(row), p.n);
        const int vector = edge % 2 * (r.vectors - 1);
        if (r.is_whole(vector, p.n) || (edge % 2 > 0 && vector == 0)) continue;
        const A value = reduce_edge<F, T>(f, r.base, vector, r.shift, p.n, p.target.bits);
        A sum = sums[0];  // one join, whose code may be long
#pragma unroll
        for (int j = 1; j < kInFlight; ++j)
            if (j == in_flight) sum = sums[j];
        sum = f.join(sum, value);
#pragma unroll
        for (int j = 0; j < kInFlight; ++j)
            if (j == in_flight) sums[j] = sum;
    }
    const int held = join_rows(f, sums, p.groups);
    // Threads whose numbers differ in the other bits hold the same.
    if ((lane & (max(p.groups.size() / kInFlight, 1) - 1)) != 0) return;
    const int count = kInFlight / min(p.groups.size(), kInFlight);
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
        const unsigned row = first + (held + j) * rows;
        if (j < count && row < p.rows) p.target.template store<F>(row, 0, sums[j]);
    }
}

#ifndef __CUDACC_RTC__  // which compiles the kernels alone
template <typename F, typename T, typename R>
cudaError_t launch_rows(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    RowsParams<T, R, typename F::A> p;
    const ReduceGrid grid = plan_rows(launch, traits_of<F, T>(), &p);
    p.in = static_cast<const T *>(launch.in);
    p.target = make_target<F, T, R>(launch, grid.parts);
    const cudaError_t error =
        grid.is_short ? launch_kernel<short_rows_kernel<F, T, R>>(grid.blocks, kThreads, stream, p)
        : grid.split  ? launch_kernel<rows_kernel<F, T, R, true>>(grid.blocks, kThreads, stream, p)
                      : launch_kernel<rows_kernel<F, T, R, false>>(grid.blocks, kThreads, stream, p);
    return error != cudaSuccess ? error : combine<F, R>(launch, p.target, stream);
}
#endif

}  // namespace cukern::cuda
