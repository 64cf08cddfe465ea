// The product of a matrix and a vector.
//
// Idea: an element of the matrix is used once, so it goes from memory to a register, by as many loads at once as
// hide the time that they take. The threads of a block lie along rows of the matrix and along k, first along that
// of the two which is packed; those of a row add up what they have in shared memory. Few rows get all of a block
// each, many rows few threads.
//
// k * rows multiplications, of as many elements: limited by memory, and where these are few by its latency.

#include <algorithm>
#include <cstdint>

#include "device/follow.cuh"
#include "device/grid.cuh"
#include "device/launch_kernel.h"
#include "device/matmul/multiply_add.cuh"
#include "device/matmul/operands.cuh"
#include "device/matmul/own_product.h"
#include "plan/rounding.h"

namespace cukern::cuda {
namespace {

constexpr int kMostThreads = 1024;

// Of an operand at once, by a thread.
template <typename T>
constexpr int kLoads = sizeof(T) == 16 ? 4 : 8;

template <typename T>
struct VectorParams {
    Operand<T> matrix;
    const T *x;
    std::int64_t x_step, x_batch;
    T *c;
    std::int64_t c_step, c_batch;
    std::int64_t k;
    Divider of_product;  // by the blocks that a product has
    int log_rows;        // of the threads of a block that lie along rows, to base 2
    int log_parts;       // of those that share a row
    bool along_k_first;
};

template <typename T>
__global__ void __launch_bounds__(kMostThreads) matmul_vector_kernel(const __grid_constant__ VectorParams<T> p) {
    __shared__ T sums[kMostThreads];
    const auto thread = static_cast<int>(threadIdx.x);
    const int rows = 1 << p.log_rows;
    const int parts = 1 << p.log_parts;
    const int part = p.along_k_first ? thread & (parts - 1) : thread >> p.log_rows;
    const int own_row = p.along_k_first ? thread >> p.log_parts : thread & (rows - 1);
    std::uint32_t block;
    const std::uint32_t product = p.of_product.divide(blockIdx.x, &block);
    const std::int64_t row = static_cast<std::int64_t>(block) * rows + own_row;
    follow_kernel_before();
    T sum{};
    if (row < p.matrix.rows) {
        const T *a = p.matrix.data + product * p.matrix.batch + row * p.matrix.row + part * p.matrix.depth;
        const T *x = p.x + product * p.x_batch + part * p.x_step;
#pragma unroll 1
        for (std::int64_t left = p.k - part; left > 0; left -= kLoads<T> * parts) {
            T u[kLoads<T>];
            T v[kLoads<T>];
#pragma unroll
            for (int i = 0; i < kLoads<T>; ++i) {
                u[i] = i * parts < left ? *a : T{};
                v[i] = i * parts < left ? *x : T{};
                a += parts * p.matrix.depth;
                x += parts * p.x_step;
            }
#pragma unroll
            for (int i = 0; i < kLoads<T>; ++i) sum = multiply_add(u[i], v[i], sum);
        }
    }
    T *const own = sums + part * rows + own_row;
#pragma unroll 1
    for (int half = parts / 2; half > 0; half /= 2) {
        if (part >= half && part < 2 * half) *own = sum;
        __syncthreads();
        if (part < half) sum = add(sum, own[half * rows]);
    }
    if (part == 0 && row < p.matrix.rows) p.c[product * p.c_batch + row * p.c_step] = sum;
}

// To base 2, rounded down; of 0 as of 1.
int log_to(std::int64_t n) noexcept {
    int log = 0;
    while (n > 1) {
        n /= 2;
        ++log;
    }
    return log;
}

// How the threads of a block lie.
struct Threads {
    int log_rows, log_parts;
    bool along_k_first;
    std::int64_t blocks;  // of a product
};

// As measured on an H100 over 126 products of float32, of each by all ways: within 4 % of the best in the mean.
Threads threads_for(std::int64_t rows, std::int64_t k, std::int64_t batch, bool along_k_first,
                    std::int64_t loads) noexcept {
    constexpr int kLogLeast = 7;
    Threads threads{0, 0, along_k_first, 0};
    if (along_k_first) {
        // As long as others keep the device busy, a row's threads have more to do.
        constexpr int kLogMost = 8;
        constexpr int kLogFew = 4;
        constexpr std::int64_t kMany = std::int64_t{1} << 16;
        threads.log_parts = std::min(log_to(k / loads), kLogMost);
        while (threads.log_parts > kLogFew && rows * batch << threads.log_parts > kMany &&
               k >> threads.log_parts < 8 * loads)
            --threads.log_parts;
        threads.log_rows = std::max(0, kLogLeast - threads.log_parts);
    } else {
        // A warp's loads are 128 bytes where there are rows for many blocks of that.
        constexpr std::int64_t kLong = 2048;
        const int log_most = k > kLong ? 10 : 9;
        constexpr int kLogFew = 2;
        constexpr std::int64_t kManyBlocks = 66;
        threads.log_rows = 5;
        while (threads.log_rows > kLogFew && (divided_up(rows, 1 << threads.log_rows) * batch) < kManyBlocks)
            --threads.log_rows;
        threads.log_parts = std::min(log_to(k / (2 * loads)), log_most - threads.log_rows);
        threads.log_rows = std::max(threads.log_rows, kLogLeast - threads.log_parts);
    }
    threads.blocks = divided_up(rows, std::int64_t{1} << threads.log_rows);
    return threads;
}

bool is_of_row(const MatmulLaunch &launch) noexcept { return launch.m == 1; }

template <typename T>
Operand<T> matrix_of(const MatmulLaunch &launch) noexcept {
    return is_of_row(launch) ? operand_b<T>(launch) : operand_a<T>(launch);
}

template <typename T>
Threads threads_for(const MatmulLaunch &launch) noexcept {
    const Operand<T> matrix = matrix_of<T>(launch);
    const bool along_k_first = matrix.depth == 1 && (matrix.row != 1 || launch.k >= matrix.rows);
    return threads_for(matrix.rows, launch.k, launch.batch, along_k_first, kLoads<T>);
}

}  // namespace

template <typename T>
double time_of_vector(const MatmulLaunch &launch) noexcept {
    if (launch.m != 1 && launch.n != 1) return kNever;
    const Threads threads = threads_for<T>(launch);
    constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;
    if (threads.blocks > kMostBlocks / launch.batch) return kNever;
    constexpr double kResident = 132 * 2048;  // threads of an H100
    const auto all = static_cast<double>(threads.blocks * launch.batch) *
                     static_cast<double>(1 << (threads.log_rows + threads.log_parts));
    const auto rounds = static_cast<double>(divided_up(launch.k, std::int64_t{kLoads<T>} << threads.log_parts));
    const double bytes = static_cast<double>(sizeof(T)) * static_cast<double>(launch.k) *
                         static_cast<double>(launch.m * launch.n * launch.batch);
    // As those of own_product.cu, but by 126 products of float32.
    return 1.3 + 0.4 * rounds * std::max(1.0, all / kResident) + bytes / 4e6;
}

template <typename T>
cudaError_t launch_matmul_vector(const MatmulLaunch &launch, cudaStream_t stream) noexcept {
    const Threads threads = threads_for<T>(launch);
    const Operand<T> x = is_of_row(launch) ? operand_a<T>(launch) : operand_b<T>(launch);
    const Result<T> c = result_of<T>(launch);
    VectorParams<T> p;
    p.matrix = matrix_of<T>(launch);
    p.x = x.data;
    p.x_step = x.depth;
    p.x_batch = x.batch;
    p.c = c.data;
    p.c_step = is_of_row(launch) ? c.column : c.row;
    p.c_batch = c.batch;
    p.k = launch.k;
    p.of_product = Divider::make(static_cast<std::uint32_t>(threads.blocks));
    p.log_rows = threads.log_rows;
    p.log_parts = threads.log_parts;
    p.along_k_first = threads.along_k_first;
    const auto blocks = static_cast<unsigned>(threads.blocks * launch.batch);
    return launch_kernel<matmul_vector_kernel<T>>(blocks, 1U << (threads.log_rows + threads.log_parts), stream, p);
}

#define CUKERN_INSTANTIATE(T)                                         \
    template double time_of_vector<T>(const MatmulLaunch &) noexcept; \
    template cudaError_t launch_matmul_vector<T>(const MatmulLaunch &, cudaStream_t) noexcept;
CUKERN_INSTANTIATE(float)
CUKERN_INSTANTIATE(double)
CUKERN_INSTANTIATE(std::int32_t)
CUKERN_INSTANTIATE(std::int64_t)
CUKERN_INSTANTIATE(Complex64)
CUKERN_INSTANTIATE(Complex128)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::cuda
