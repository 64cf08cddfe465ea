// Reductions on the GPU. Results depend on the shape and the alignment alone: no atomics, a fixed order of
// joining.
//
// Each kernel writes results, or partial results into scratch memory where one result takes more than one block;
// combine_kernel joins these.
//
// rows_kernel
//   Idea: the reduced dimension is packed. A group of 1 to 256 threads takes a row by 16-byte vectors, four
//   loads in flight a thread; then shuffles and shared memory. Of few long rows, blocks take turns along
//   each, with sixteen loads in flight. What of a row lies before the first whole vector and after the last is
//   taken by elements. Limited by device memory.
// short_rows_kernel
//   Idea: a row is at most 32 vectors, one for each of a group of threads, which takes four rows at once so that
//   enough loads are in flight.
// columns_kernel
//   Idea: the kept dimension beside the reduced one is packed. A thread takes a vector of columns (or one column
//   where rows are not aligned to vectors) and every ty-th row, eight or sixteen loads in flight, which are joined
//   in pairs; the block's rows of threads join in shared memory. Limited by device memory.
// strided_reduce_kernel
//   Idea: any strides, any element type, converted on load: a group of threads takes a result, each element's
//   place is found by dividing its index through the shape.
#pragma once

#include <algorithm>

#include "cuda/elementwise.cuh"
#include "reducers.cuh"

namespace cukern::cuda {

// Blocks that share the results, for each of 132 multiprocessors: 4, 8 and 16 were the fastest on an H200.
constexpr std::int64_t kRowBlocks = 528;
constexpr std::int64_t kColumnBlocks = 1056;
constexpr std::int64_t kStridedBlocks = 2112;
constexpr int kInFlight = 4;  // loads of a thread before the first is used
constexpr int kRowSums = 2;   // running results of a thread along a row

// Loads of a thread along a row. Of rows that blocks share a thread has many more to do.
template <bool split>
inline constexpr int kRowLoads = split ? 16 : kInFlight;

template <typename A>
__device__ A shuffled_down(A value, int by) {
    constexpr int kWords = (sizeof(A) + 3) / 4;
    std::uint32_t words[kWords] = {};
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = __shfl_down_sync(0xFFFFFFFFU, words[i], by);
    memcpy(&value, words, sizeof value);
    return value;
}

// Joins the values of groups of threads that follow each other, of a power of two of up to 256, in each group's
// first. All threads of the block take part.
template <typename F, typename A = typename F::A>
__device__ A join_group(A value, int group) {
    __shared__ alignas(16) unsigned char memory[8 * sizeof(A)];
    auto *shared = reinterpret_cast<A *>(memory);
    for (int by = min(group, 32) / 2; by > 0; by /= 2) value = F::join(value, shuffled_down(value, by));
    if (group <= 32) return value;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    __syncthreads();  // the memory may be in use still
    if (threadIdx.x % 32 == 0) shared[warp] = value;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) % group == 0)
        for (int i = 1; i < group / 32; ++i) value = F::join(value, shared[warp + i]);
    return value;
}

// Where a result goes: the results themselves, or partial ones.
template <typename R, typename A>
struct Target {
    R *out;
    A *partial;  // null: to out
    int parts;
    std::int64_t count;  // of the elements of a result

    template <typename F>
    __device__ void store(std::int64_t result, int part, A value) const {
        if (partial != nullptr)
            partial[result * parts + part] = value;
        else
            out[result] = F::template result<R>(value, count);
    }
};

template <typename F, typename R>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const Target<R, typename F::A> target, std::int64_t results) {
    const std::int64_t result = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    typename F::A value = F::identity();
    if (result < results)
        for (int part = lane; part < target.parts; part += 32)
            value = F::join(value, target.partial[result * target.parts + part]);
    value = join_group<F>(value, 32);
    if (lane == 0 && result < results) target.out[result] = F::template result<R>(value, target.count);
}

template <typename F, typename = void>
inline constexpr bool gives_index = false;
template <typename F>
inline constexpr bool gives_index<F, std::void_t<decltype(F::A::index)>> = true;

// Joins what comes later among a thread's own elements.
template <typename F, typename A = typename F::A>
__device__ A join_later(A a, A b) {
    if constexpr (gives_index<F>)
        return F::join_later(a, b);
    else
        return F::join(a, b);
}

template <typename F, typename T, int size>
__device__ typename F::A reduce_vector(const T (&values)[size], std::int64_t first) {
    typename F::A result = F::of(values[0], 0);
#pragma unroll
    for (int i = 1; i < size; ++i) result = join_later<F>(result, F::of(values[i], i));
    if constexpr (gives_index<F>) result.index += static_cast<decltype(result.index)>(first);
    return result;
}

template <typename T, typename R, typename A>
struct RowsParams {
    const T *in;
    std::int64_t stride;  // of rows
    std::int64_t rows;
    std::int64_t n;
    int group;  // threads a row
    Target<R, A> target;
};

// A row's vectors: the first starts at or before the row, at an aligned address.
template <typename T>
struct Row {
    const Vector<T> *base;
    int shift;             // elements of the first vector before the row
    std::int64_t vectors;  // that the row touches

    __device__ Row(const T *row, std::int64_t n) {
        const auto address = reinterpret_cast<std::uintptr_t>(row);
        shift = static_cast<int>(address % 16 / sizeof(T));
        base = reinterpret_cast<const Vector<T> *>(address - address % 16);
        vectors = (n + shift + Vector<T>::kSize - 1) / Vector<T>::kSize;
    }
    __device__ bool is_whole(std::int64_t vector, std::int64_t n) const {
        constexpr int kSize = Vector<T>::kSize;
        return vector * kSize >= shift && (vector + 1) * kSize <= n + shift;
    }
};

// Joins what a thread has loaded in pairs, so that sums stay accurate; indices, which are larger, one by one.
template <typename F, int loads, typename A = typename F::A>
__device__ void join_loads(A (&sums)[kRowSums], A (&values)[loads]) {
    if constexpr (gives_index<F>) {
#pragma unroll
        for (int j = 0; j < loads; ++j) sums[j % kRowSums] = F::join_later(sums[j % kRowSums], values[j]);
    } else {
#pragma unroll
        for (int by = 1; by < loads; by *= 2)
#pragma unroll
            for (int j = 0; j + by < loads; j += 2 * by) values[j] = F::join(values[j], values[j + by]);
        sums[0] = F::join(sums[0], values[0]);
    }
}

// `split`: blocks share rows, and take turns along them.
template <typename F, typename T, typename R, bool split>
__global__ void __launch_bounds__(kThreads) rows_kernel(const RowsParams<T, R, typename F::A> p) {
    using A = typename F::A;
    constexpr int kSize = Vector<T>::kSize;
    const int parts = split ? p.target.parts : 1;
    const int lane = static_cast<int>(threadIdx.x) % p.group;
    const int part = static_cast<int>(blockIdx.x % parts);
    const std::int64_t row = blockIdx.x / parts * (kThreads / p.group) + threadIdx.x / p.group;
    constexpr int kLoads = kRowLoads<split>;
    A sums[kRowSums];
#pragma unroll
    for (int j = 0; j < kRowSums; ++j) sums[j] = F::identity();
    if (row < p.rows) {
        const Row<T> r(p.in + row * p.stride, p.n);
        const std::int64_t whole_begin = r.shift > 0 ? 1 : 0;
        const std::int64_t whole_end = (p.n + r.shift) / kSize;
        const T *elements = reinterpret_cast<const T *>(r.base);
        if (part == 0 && r.shift > 0)
            for (int k = r.shift + lane; k < kSize && k < r.shift + p.n; k += p.group)
                sums[0] = join_later<F>(sums[0], F::of(elements[k], k - r.shift));
        const std::int64_t step = static_cast<std::int64_t>(kLoads) * p.group * parts;
        std::int64_t v = whole_begin + part * kLoads * p.group + lane;
        const auto take = [&](auto is_there) {
            Vector<T> x[kLoads];
#pragma unroll
            for (int j = 0; j < kLoads; ++j)
                if (is_there(v + j * p.group)) x[j] = r.base[v + j * p.group];
            A values[kLoads];
#pragma unroll
            for (int j = 0; j < kLoads; ++j) {
                const std::int64_t at = v + j * p.group;
                values[j] =
                    is_there(at) ? reduce_vector<F, T, kSize>(x[j].values, at * kSize - r.shift) : F::identity();
            }
            join_loads<F>(sums, values);
        };
        for (; v + (kLoads - 1) * p.group < whole_end; v += step) take([](std::int64_t) { return true; });
        // What is left, at once too; of short rows it is a good part of the work.
        if constexpr (split) {
            if (v < whole_end) take([=](std::int64_t at) { return at < whole_end; });
        } else {
            Vector<T> x[kLoads];
#pragma unroll
            for (int j = 0; j < kLoads; ++j)
                if (v + j * p.group < whole_end) x[j] = r.base[v + j * p.group];
#pragma unroll
            for (int j = 0; j < kLoads; ++j)
                if (v + j * p.group < whole_end)
                    sums[j % kRowSums] = join_later<F>(
                        sums[j % kRowSums],
                        reduce_vector<F, T, kSize>(x[j].values, (v + j * p.group) * kSize - r.shift));
        }
        if (part == parts - 1)
            for (std::int64_t k = max(whole_end, whole_begin) * kSize + lane; k < p.n + r.shift; k += p.group)
                sums[1] = F::join(sums[1], F::of(elements[k], k - r.shift));
    }
    A sum = F::join(sums[0], sums[1]);
    sum = join_group<F>(sum, p.group);
    if (lane == 0 && row < p.rows) p.target.template store<F>(row, part, sum);
}

// The elements of one vector that belong to a row of n, which starts `shift` elements after the vector at `base`.
template <typename F, typename T>
__device__ typename F::A reduce_edge(const Vector<T> *base, std::int64_t vector, int shift, std::int64_t n) {
    constexpr int kSize = Vector<T>::kSize;
    typename F::A result = F::identity();
    const T *elements = reinterpret_cast<const T *>(base + vector);
    for (int i = 0; i < kSize; ++i) {
        const std::int64_t at = vector * kSize + i - shift;
        if (at >= 0 && at < n) result = join_later<F>(result, F::of(elements[i], at));
    }
    return result;
}

template <typename F, typename T, typename R>
__global__ void __launch_bounds__(kThreads) short_rows_kernel(const RowsParams<T, R, typename F::A> p) {
    using A = typename F::A;
    constexpr int kSize = Vector<T>::kSize;
    const int lane = static_cast<int>(threadIdx.x) % p.group;
    const int rows = kThreads / p.group;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows * kInFlight + threadIdx.x / p.group;
    Vector<T> x[kInFlight];
    bool whole[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
        const std::int64_t row = first + j * rows;
        whole[j] = false;
        if (row >= p.rows) continue;
        const Row<T> r(p.in + row * p.stride, p.n);
        whole[j] = r.is_whole(lane, p.n);
        if (whole[j]) x[j] = r.base[lane];
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
        const std::int64_t row = first + j * rows;
        A sum = F::identity();
        if (row < p.rows) {
            const Row<T> r(p.in + row * p.stride, p.n);
            if (whole[j])
                sum = reduce_vector<F, T, kSize>(x[j].values, static_cast<std::int64_t>(lane) * kSize - r.shift);
            else if (lane < r.vectors)
                sum = reduce_edge<F>(r.base, lane, r.shift, p.n);
        }
        sum = join_group<F>(sum, p.group);
        if (lane == 0 && row < p.rows) p.target.template store<F>(row, 0, sum);
    }
}

template <typename T, typename R, typename A>
struct ColumnsParams {
    const T *in;
    std::int64_t outer_stride;  // of the kept dimension outside
    std::int64_t stride;        // of the reduced one
    std::int64_t columns;       // in vectors
    std::int64_t n;
    std::int64_t column_blocks;
    int width;  // threads of a block side by side, the others take other rows
    Target<R, A> target;
};

template <typename F, typename T, typename R, int size, int kLoads>
__global__ void __launch_bounds__(kThreads) columns_kernel(const ColumnsParams<T, R, typename F::A> p) {
    using A = typename F::A;
    struct alignas(size * sizeof(T)) V {
        T values[size];
    };
    __shared__ alignas(16) unsigned char memory[kThreads * sizeof(A)];
    auto *shared = reinterpret_cast<A *>(memory);
    const int parts = p.target.parts;
    const int part = static_cast<int>(blockIdx.x % parts);
    const std::int64_t block = blockIdx.x / parts;
    const std::int64_t outer = block / p.column_blocks;
    const int x = static_cast<int>(threadIdx.x) % p.width;
    const int y = static_cast<int>(threadIdx.x) / p.width;
    const int height = kThreads / p.width;
    const std::int64_t column = (block - outer * p.column_blocks) * p.width + x;
    A sums[size];
#pragma unroll
    for (int e = 0; e < size; ++e) sums[e] = F::identity();
    if (column < p.columns) {
        const std::int64_t share = (p.n + parts - 1) / parts;
        const std::int64_t end = min(p.n, (part + 1) * share);
        std::int64_t i = part * share + y;
        const T *at = p.in + outer * p.outer_stride + column * size + i * p.stride;
        const std::int64_t step = height * p.stride;
        for (; i + (kLoads - 1) * height < end; i += kLoads * height) {
            V v[kLoads];
#pragma unroll
            for (int j = 0; j < kLoads; ++j) v[j] = *reinterpret_cast<const V *>(at + j * step);
            at += kLoads * step;
#pragma unroll
            for (int e = 0; e < size; ++e) {
                A joined[kLoads];  // in pairs: all loads are there before the first is used
#pragma unroll
                for (int j = 0; j < kLoads; ++j) joined[j] = F::of(v[j].values[e], i + j * height);
#pragma unroll
                for (int by = 1; by < kLoads; by *= 2)
#pragma unroll
                    for (int j = 0; j + by < kLoads; j += 2 * by)
                        joined[j] = join_later<F>(joined[j], joined[j + by]);
                sums[e] = join_later<F>(sums[e], joined[0]);
            }
        }
        for (; i < end; i += height, at += step) {
            const V v = *reinterpret_cast<const V *>(at);
#pragma unroll
            for (int e = 0; e < size; ++e) sums[e] = join_later<F>(sums[e], F::of(v.values[e], i));
        }
    }
#pragma unroll
    for (int e = 0; e < size; ++e) {
        A sum = sums[e];
        if (height > 1) {
            __syncthreads();
            shared[threadIdx.x] = sum;
            __syncthreads();
            if (y == 0)
                for (int j = 1; j < height; ++j) sum = F::join(sum, shared[j * p.width + x]);
        }
        if (y == 0 && column < p.columns)
            p.target.template store<F>((outer * p.columns + column) * size + e, part, sum);
    }
}

template <typename R, typename A>
struct StridedReduceParams {
    const void *in;
    ElementType type;
    int num_kept;
    int num_reduced;
    int group;
    std::int64_t results;
    std::int64_t kept_shape[kMaxReduceDims];
    std::int64_t kept_strides[kMaxReduceDims];
    std::int64_t reduced_shape[kMaxReduceDims];
    std::int64_t reduced_strides[kMaxReduceDims];
    Target<R, A> target;
};

CUKERN_HD std::int64_t place_of(std::int64_t index, const std::int64_t *shape, const std::int64_t *strides,
                                int ndim) {
    std::int64_t offset = 0;
    for (int d = ndim - 1; d > 0; --d) {
        const std::int64_t next = index / shape[d];
        offset += (index - next * shape[d]) * strides[d];
        index = next;
    }
    return ndim > 0 ? offset + index * strides[0] : offset;
}

template <typename F, typename C, typename R>
__global__ void __launch_bounds__(kThreads)
    strided_reduce_kernel(const __grid_constant__ StridedReduceParams<R, typename F::A> p) {
    using A = typename F::A;
    const int parts = p.target.parts;
    const int part = static_cast<int>(blockIdx.x % parts);
    const int lane = static_cast<int>(threadIdx.x) % p.group;
    const std::int64_t result = blockIdx.x / parts * (kThreads / p.group) + threadIdx.x / p.group;
    A sums[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) sums[j] = F::identity();
    if (result < p.results) {
        const std::int64_t base = place_of(result, p.kept_shape, p.kept_strides, p.num_kept);
        const std::int64_t share = (p.target.count + parts - 1) / parts;
        const std::int64_t end = min(p.target.count, (part + 1) * share);
        for (std::int64_t i = part * share + lane; i < end; i += kInFlight * p.group) {
#pragma unroll
            for (int j = 0; j < kInFlight; ++j) {
                const std::int64_t at = i + j * p.group;
                if (at >= end) continue;
                const std::int64_t offset = base + place_of(at, p.reduced_shape, p.reduced_strides, p.num_reduced);
                const C element = p.type == ElementTypeOf<C>::value ? static_cast<const C *>(p.in)[offset]
                                                                    : load_converted<C>(p.in, p.type, offset);
                sums[j] = F::join(sums[j], F::of(element, at));
            }
        }
    }
    A sum = F::join(F::join(sums[0], sums[1]), F::join(sums[2], sums[3]));
    sum = join_group<F>(sum, p.group);
    if (lane == 0 && result < p.results) p.target.template store<F>(result, part, sum);
}

// --- launchers ---

inline std::int64_t power_of_two_from(std::int64_t n) noexcept {
    std::int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

// How many blocks share a result, so that there are enough of them and each has work; as much as scratch memory
// holds.
template <typename A>
int parts_for(const ReduceLaunch &launch, std::int64_t wanted, std::int64_t blocks, std::int64_t most) noexcept {
    if (launch.scratch == nullptr) return 1;
    const auto fit = launch.scratch_bytes / static_cast<std::int64_t>(sizeof(A)) / launch.kept;
    return static_cast<int>(std::max<std::int64_t>(1, std::min({wanted / blocks, most, fit})));
}

template <typename F, typename R>
Target<R, typename F::A> make_target(const ReduceLaunch &launch, int parts) noexcept {
    return {static_cast<R *>(launch.out), parts > 1 ? static_cast<typename F::A *>(launch.scratch) : nullptr,
            parts, launch.reduced};
}

template <typename F, typename R>
cudaError_t combine(const ReduceLaunch &launch, const Target<R, typename F::A> &target,
                    cudaStream_t stream) noexcept {
    if (target.parts == 1) return cudaSuccess;
    combine_kernel<F, R><<<blocks_for(launch.kept * 32), kThreads, 0, stream>>>(target, launch.kept);
    return cudaPeekAtLastError();
}

template <typename F, typename T, typename R>
cudaError_t launch_rows(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    RowsParams<T, R, typename F::A> p;
    p.in = static_cast<const T *>(launch.in);
    p.stride = launch.num_kept == 0 ? 0 : launch.kept_strides[0];
    p.rows = launch.kept;
    p.n = launch.reduced;
    // A row that is not aligned touches one vector more.
    const bool aligned = reinterpret_cast<std::uintptr_t>(p.in) % 16 == 0 &&
                         (p.rows == 1 || p.stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0);
    const std::int64_t vectors = (p.n + Vector<T>::kSize - 1) / Vector<T>::kSize + (aligned ? 0 : 1);
    if (vectors <= 32 && p.rows > 1) {
        p.group = static_cast<int>(power_of_two_from(vectors));
        p.target = make_target<F, R>(launch, 1);
        const std::int64_t rows = kThreads / p.group * kInFlight;
        short_rows_kernel<F, T, R><<<static_cast<unsigned>((p.rows + rows - 1) / rows), kThreads, 0, stream>>>(p);
        return cudaPeekAtLastError();
    }
    p.group = static_cast<int>(std::min<std::int64_t>(kThreads, power_of_two_from((vectors + 7) / 8)));
    const std::int64_t rows = kThreads / p.group;
    const std::int64_t blocks = (p.rows + rows - 1) / rows;
    const std::int64_t most = vectors / (kThreads * kRowLoads<true>);
    p.target = make_target<F, R>(launch, parts_for<typename F::A>(launch, kRowBlocks, blocks, most));
    const auto all = static_cast<unsigned>(blocks * p.target.parts);
    if (p.target.parts > 1)
        rows_kernel<F, T, R, true><<<all, kThreads, 0, stream>>>(p);
    else
        rows_kernel<F, T, R, false><<<all, kThreads, 0, stream>>>(p);
    if (const cudaError_t error = cudaPeekAtLastError(); error != cudaSuccess) return error;
    return combine<F, R>(launch, p.target, stream);
}

// Loads of a thread down a column.
constexpr int kColumnLoads = 8;
// Of a few rows, which one thread takes at once: as many as registers hold. A maximum of floats looks for NaNs
// too.
template <typename F, typename T>
inline constexpr bool adds =
    std::is_base_of_v<SumReducer<T, false>, F> || std::is_base_of_v<SumReducer<T, true>, F>;
template <typename F, typename T>
inline constexpr int kShortColumnLoads =
    size_of(ElementTypeOf<T>::value) == 4 && (!is_floating(ElementTypeOf<T>::value) || adds<F, T>) ? 16 : 8;
constexpr std::int64_t kFewRows = 32;

template <typename F, typename T, typename R, int size>
cudaError_t launch_columns(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    ColumnsParams<T, R, typename F::A> p;
    const int last = launch.num_kept - 1;
    p.in = static_cast<const T *>(launch.in);
    p.outer_stride = last > 0 ? launch.kept_strides[0] : 0;
    p.stride = launch.reduced_strides[0];
    p.columns = launch.kept_shape[last] / size;
    p.n = launch.reduced;
    // Rows of threads where there are enough rows of elements for each to have some loads in flight.
    const std::int64_t most = std::max<std::int64_t>(32, power_of_two_from(p.columns));
    const bool few = p.n <= kFewRows && p.columns >= kColumnBlocks * kThreads;
    const std::int64_t height = few || p.n < 16 ? 1 : p.n < 32 ? 2 : 4;
    p.width = static_cast<int>(std::min<std::int64_t>(kThreads / height, most));
    if (p.columns < 32) p.width = static_cast<int>(std::min<std::int64_t>(p.width, power_of_two_from(p.columns)));
    p.column_blocks = (p.columns + p.width - 1) / p.width;
    const std::int64_t blocks = p.column_blocks * (last > 0 ? launch.kept_shape[0] : 1);
    const std::int64_t rows = kThreads / p.width * kColumnLoads;
    p.target = make_target<F, R>(launch, parts_for<typename F::A>(launch, kColumnBlocks, blocks, p.n / rows));
    const auto all = static_cast<unsigned>(blocks * p.target.parts);
    constexpr int kLoads = size == 1 ? 16 : kColumnLoads;
    constexpr int kFew = size == 1 ? kLoads : kShortColumnLoads<F, T>;
    if (few)
        columns_kernel<F, T, R, size, kFew><<<all, kThreads, 0, stream>>>(p);
    else
        columns_kernel<F, T, R, size, kLoads><<<all, kThreads, 0, stream>>>(p);
    if (const cudaError_t error = cudaPeekAtLastError(); error != cudaSuccess) return error;
    return combine<F, R>(launch, p.target, stream);
}

template <typename F, typename C, typename R>
cudaError_t launch_strided_reduction(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    StridedReduceParams<R, typename F::A> p;
    p.in = launch.in;
    p.type = launch.type;
    p.num_kept = launch.num_kept;
    p.num_reduced = launch.num_reduced;
    p.results = launch.kept;
    std::copy_n(launch.kept_shape, launch.num_kept, p.kept_shape);
    std::copy_n(launch.kept_strides, launch.num_kept, p.kept_strides);
    std::copy_n(launch.reduced_shape, launch.num_reduced, p.reduced_shape);
    std::copy_n(launch.reduced_strides, launch.num_reduced, p.reduced_strides);
    p.group = static_cast<int>(std::min<std::int64_t>(kThreads, power_of_two_from((launch.reduced + 3) / 4)));
    const std::int64_t rows = kThreads / p.group;
    const std::int64_t blocks = (launch.kept + rows - 1) / rows;
    p.target = make_target<F, R>(
        launch, parts_for<typename F::A>(launch, kStridedBlocks, blocks, launch.reduced / (kThreads * kInFlight)));
    strided_reduce_kernel<F, C, R><<<static_cast<unsigned>(blocks * p.target.parts), kThreads, 0, stream>>>(p);
    if (const cudaError_t error = cudaPeekAtLastError(); error != cudaSuccess) return error;
    return combine<F, R>(launch, p.target, stream);
}

template <typename T>
bool are_vectors(const ReduceLaunch &launch) noexcept {
    const auto whole = [](std::int64_t elements) {
        return elements * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
    };
    return reinterpret_cast<std::uintptr_t>(launch.in) % 16 == 0 && whole(launch.reduced_strides[0]) &&
           whole(launch.kept_shape[launch.num_kept - 1]) &&
           (launch.num_kept == 1 || whole(launch.kept_strides[0]));
}

// Of elements as they are stored: results are of the type that they have unless another is asked for.
template <Op op, typename T>
cudaError_t launch_stored(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    if constexpr (!reduces_stored(op, ElementTypeOf<T>::value)) {
        return cudaErrorInvalidValue;
    } else {
        using F = ShortReducer<op, T>;
        using S = std::conditional_t<op == Op::sum && (std::is_integral_v<T> || std::is_same_v<T, Bool>),
                                     accumulator_t<T>, T>;
        using R = reduced_t<op, S>;
        if (are_rows(launch)) return launch_rows<F, T, R>(launch, stream);
        if (are_vectors<T>(launch)) return launch_columns<F, T, R, Vector<T>::kSize>(launch, stream);
        return launch_columns<F, T, R, 1>(launch, stream);
    }
}

template <Op op, typename C>
cudaError_t launch_converted(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    if constexpr (!reduces_in(op, ElementTypeOf<C>::value))
        return cudaErrorInvalidValue;
    else
        return launch_strided_reduction<Reducer<op, C>, C, reduced_t<op, C>>(launch, stream);
}

template <Op op, typename T>
cudaError_t launch_reduction_op(const ReduceLaunch &launch, bool stored, cudaStream_t stream) noexcept {
    if constexpr (is_reduction(op))
        return stored ? launch_stored<op, T>(launch, stream) : launch_converted<op, T>(launch, stream);
    else
        return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t launch_reduction(const ReduceLaunch &launch, bool stored, cudaStream_t stream) noexcept {
    switch (launch.op) {
#define CUKERN_OP(id, kind, types, rule, doc) \
    case Op::id: return launch_reduction_op<Op::id, T>(launch, stored, stream);
#include "cukern/ops.def"
#undef CUKERN_OP
        case Op::copy: break;
    }
    return cudaErrorInvalidValue;
}

}  // namespace cukern::cuda
