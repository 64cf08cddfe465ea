// Reductions across the packed dimension.
//
// columns_kernel
//   Idea: the kept dimension beside the reduced one is packed. A thread takes a vector of columns (or one column
//   where rows are not aligned to vectors) and every height-th row, eight or sixteen loads in flight, which are
//   joined in pairs, indices one by one; the block's rows of threads join in shared memory. Of a few long rows a
//   thread takes all, of aligned ones by half a vector, so that more blocks are under way. Limited by device
//   memory.
#pragma once

#include "device/reduce/group.cuh"

namespace cukern::cuda {

// Blocks that share the columns, for each of 132 multiprocessors 8: the fastest on an H200.
constexpr std::int64_t kColumnBlocks = 1056;

template <typename T, typename R, typename A>
struct ColumnsParams {
    const T *in;
    std::int64_t outer_stride;  // of the kept dimension outside
    std::int64_t stride;        // of the reduced one
    std::int64_t columns;       // in vectors
    std::int64_t n;
    std::int64_t share;  // of n, that a block takes
    unsigned column_blocks;
    Groups groups;  // the threads of a group are side by side, groups take other rows
    Target<R, A> target;
};

// Joins the loads of a thread down its columns, of row `first` and each `height`-th after it.
template <typename F, int size, int loads, typename V, typename A = typename F::A>
__device__ void join_columns(A (&sums)[size], const V (&v)[loads], std::int64_t first, int height) {
    if constexpr (gives_index<F>) {
#pragma unroll
        for (int j = 0; j < loads; ++j)
#pragma unroll
            for (int e = 0; e < size; ++e)
                sums[e] = F::join_next(sums[e], F::of(v[j].values[e], first + j * height));
    } else {
#pragma unroll
        for (int e = 0; e < size; ++e) {
            A values[loads];
#pragma unroll
            for (int j = 0; j < loads; ++j) values[j] = F::of(v[j].values[e], 0);
            sums[e] = F::join(sums[e], join_pairs<F>(values));
        }
    }
}

template <typename F, typename T, typename R, int size, int loads>
__global__ void __launch_bounds__(kThreads) columns_kernel(const ColumnsParams<T, R, typename F::A> p) {
    using A = typename F::A;
    using V = Elements<T, size>;
    __shared__ alignas(16) unsigned char memory[kThreads * sizeof(A)];
    auto *shared = reinterpret_cast<A *>(memory);
    const unsigned parts = p.target.parts;
    const unsigned block = parts > 1 ? blockIdx.x / parts : blockIdx.x;
    const int part = static_cast<int>(blockIdx.x - block * parts);
    const unsigned outer = block >= p.column_blocks ? block / p.column_blocks : 0;
    const int x = p.groups.lane();
    const int y = p.groups.index();
    const int height = p.groups.count();
    const std::int64_t column = static_cast<std::int64_t>(block - outer * p.column_blocks) * p.groups.size() + x;
    A sums[size];
#pragma unroll
    for (int e = 0; e < size; ++e) sums[e] = F::identity();
    if (column < p.columns) {
        const std::int64_t end = min(p.n, (part + 1) * p.share);
        std::int64_t i = part * p.share + y;
        const T *at = p.in + outer * p.outer_stride + column * size + i * p.stride;
        const std::int64_t step = height * p.stride;
        if constexpr (gives_index<F>) {  // the first row, unless another one compares better than the identity
#pragma unroll
            for (int e = 0; e < size; ++e)
                if (i < end) sums[e].index = static_cast<decltype(sums[e].index)>(i);
        }
        for (; i + (loads - 1) * height < end; i += loads * height) {
            V v[loads];
#pragma unroll
            for (int j = 0; j < loads; ++j) v[j] = *reinterpret_cast<const V *>(at + j * step);
            at += loads * step;
            join_columns<F>(sums, v, i, height);
        }
        for (; i < end; i += height, at += step) {
            const V v[] = {*reinterpret_cast<const V *>(at)};
            join_columns<F>(sums, v, i, height);
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
                for (int j = 1; j < height; ++j) sum = F::join(sum, shared[j * p.groups.size() + x]);
        }
        if (y == 0 && column < p.columns)
            p.target.template store<F>((outer * p.columns + column) * size + e, part, sum);
    }
}

constexpr int kVectorLoads = 8;
// Loads of a thread down a column.
template <int size>
inline constexpr int kColumnLoads = size == 1 ? 16 : kVectorLoads;
// Of a few rows. Indices of floats, which compare for NaNs too, were faster with sixteen.
template <typename F, typename T>
inline constexpr int kShortColumnLoads = gives_index<F> && is_floating(ElementTypeOf<T>::value) ? 16 : 8;
constexpr std::int64_t kFewRows = 32;

template <typename F, typename T, typename R, int size, int loads>
cudaError_t launch_columns(const ReduceLaunch &launch, bool few, cudaStream_t stream) noexcept {
    ColumnsParams<T, R, typename F::A> p;
    const int last = launch.num_kept - 1;
    p.in = static_cast<const T *>(launch.in);
    p.outer_stride = last > 0 ? launch.kept_strides[0] : 0;
    p.stride = launch.reduced_strides[0];
    p.columns = launch.kept_shape[last] / size;
    p.n = launch.reduced;
    // Rows of threads where there are enough rows of elements for each to have some loads in flight.
    const int height_bits = few || p.n < 16 ? 0 : p.n < 32 ? 1 : size * sizeof(T) == 8 ? 3 : 2;
    p.groups.bits = std::min(kThreadBits - height_bits, bits_from(p.columns));
    const std::int64_t width = std::int64_t{1} << p.groups.bits;
    const std::int64_t column_blocks = (p.columns + width - 1) / width;
    p.column_blocks = static_cast<unsigned>(column_blocks);
    const std::int64_t blocks = column_blocks * (last > 0 ? launch.kept_shape[0] : 1);
    const std::int64_t rows = kThreads / width * kVectorLoads;
    p.target = make_target<F, R>(launch, parts_for<typename F::A>(launch, kColumnBlocks, blocks, p.n / rows));
    p.share = (p.n + p.target.parts - 1) / p.target.parts;
    const auto all = static_cast<unsigned>(blocks * p.target.parts);
    columns_kernel<F, T, R, size, loads><<<all, kThreads, 0, stream>>>(p);
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

template <typename F, typename T, typename R>
cudaError_t launch_columns(const ReduceLaunch &launch, cudaStream_t stream) noexcept {
    constexpr int kSize = Vector<T>::kSize;
    constexpr int kHalf = std::max(1, kSize / 2);
    const std::int64_t vectors = launch.kept_shape[launch.num_kept - 1] / kSize;
    const bool few = launch.reduced <= kFewRows && vectors >= kColumnBlocks * kThreads;
    if (!are_vectors<T>(launch)) return launch_columns<F, T, R, 1, kColumnLoads<1>>(launch, few, stream);
    if (!few) return launch_columns<F, T, R, kSize, kColumnLoads<kSize>>(launch, false, stream);
    constexpr int kLoads = kHalf == 1 ? kColumnLoads<1> : kShortColumnLoads<F, T>;
    return launch_columns<F, T, R, kHalf, kLoads>(launch, true, stream);
}

}  // namespace cukern::cuda
