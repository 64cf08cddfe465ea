// Matrix products on the CPU: our own, of integers and small ones, and those that another library's BLAS computes.
//
// Idea: out is cut into blocks of kRows x kColumns, one a task. For each kDepth of k the block of b is packed,
// and every row of a runs along it: the innermost loop is sum[j] += a * b[j] over packed memory, which
// vectorises. Sums of kDepth terms are joined by kGroup of them before c takes them, so that an error grows with
// kDepth + kGroup + k / (kDepth * kGroup). Limit: the load and store of the sums, two an fma.
#include <algorithm>

#include "formulas/arithmetic.cuh"
#include "host/kernels.h"
#include "host/loops.h"
#include "host/thread_pool.h"

namespace cukern::host {
namespace {

constexpr std::int64_t kRows = 32;
constexpr std::int64_t kColumns = 128;
constexpr std::int64_t kDepth = 64;
constexpr std::int64_t kGroup = 16;

template <typename T>
struct Blocks {
    T a[kDepth];
    T b[kDepth][kColumns];
    T c[kRows][kColumns];
    T group[kRows][kColumns];  // over kGroup times as much of k as
    T sum[kColumns];           // of a row, over kDepth
};

template <typename T>
T fused(T c, T a, T b) noexcept {
    if constexpr (is_complex<T>) {
        const T product = complex_product(a, b);
        return {c.real + product.real, c.imag + product.imag};
    } else {
        using W = wrapping_t<T>;
        return static_cast<T>(static_cast<W>(c) + static_cast<W>(a) * static_cast<W>(b));
    }
}

template <typename T>
void add_row(T *sums, const T *row, std::int64_t n) noexcept {
    for (std::int64_t j = 0; j < n; ++j) {
        if constexpr (is_complex<T>)
            sums[j] = {sums[j].real + row[j].real, sums[j].imag + row[j].imag};
        else
            sums[j] = static_cast<T>(static_cast<wrapping_t<T>>(sums[j]) + static_cast<wrapping_t<T>>(row[j]));
    }
}

template <typename T>
void compute_block(const MatmulLaunch &p, std::int64_t product, std::int64_t row, std::int64_t column,
                   Blocks<T> &s) noexcept {
    const T *a = static_cast<const T *>(p.a) + product * p.batch_a;
    const T *b = static_cast<const T *>(p.b) + product * p.batch_b;
    T *c = static_cast<T *>(p.c) + product * p.batch_c;
    const std::int64_t a_row = p.a_transposed ? 1 : p.lda;
    const std::int64_t a_column = p.a_transposed ? p.lda : 1;
    const std::int64_t b_row = p.b_transposed ? 1 : p.ldb;
    const std::int64_t b_column = p.b_transposed ? p.ldb : 1;
    const std::int64_t rows = std::min(kRows, p.m - row);
    const std::int64_t columns = std::min(kColumns, p.n - column);
    for (std::int64_t i = 0; i < rows; ++i) {
        std::fill_n(s.c[i], columns, T{});
        std::fill_n(s.group[i], columns, T{});
    }
    for (std::int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
        const std::int64_t depth = std::min(kDepth, p.k - k0);
        const bool ends_group = k0 + depth == p.k || (k0 / kDepth + 1) % kGroup == 0;
        for (std::int64_t k = 0; k < depth; ++k)
            for (std::int64_t j = 0; j < columns; ++j) s.b[k][j] = b[(k0 + k) * b_row + (column + j) * b_column];
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t k = 0; k < depth; ++k) s.a[k] = a[(row + i) * a_row + (k0 + k) * a_column];
            std::fill_n(s.sum, columns, T{});
            for (std::int64_t k = 0; k < depth; ++k)
                for (std::int64_t j = 0; j < columns; ++j) s.sum[j] = fused(s.sum[j], s.a[k], s.b[k][j]);
            add_row(s.group[i], s.sum, columns);
            if (!ends_group) continue;
            add_row(s.c[i], s.group[i], columns);
            std::fill_n(s.group[i], columns, T{});
        }
    }
    for (std::int64_t i = 0; i < rows; ++i) std::copy_n(s.c[i], columns, c + (row + i) * p.ldc + column);
}

// How many products of so many multiply-adds are worth a thread.
std::int64_t grain_of(std::int64_t products) noexcept {
    constexpr std::int64_t kWorthAThread = 262144;  // multiply-adds
    return std::max<std::int64_t>(1, kWorthAThread / std::max<std::int64_t>(1, products));
}

template <typename T>
void matmul_as(const MatmulLaunch &p) noexcept {
    const std::int64_t block_rows = (p.m + kRows - 1) / kRows;
    const std::int64_t block_columns = (p.n + kColumns - 1) / kColumns;
    const std::int64_t blocks_each = block_rows * block_columns;
    const std::int64_t grain = grain_of(std::min(p.m, kRows) * std::min(p.n, kColumns) * p.k);
    parallel_for(p.batch * blocks_each, grain, [&](std::int64_t begin, std::int64_t end) {
        Blocks<T> blocks;  // of up to 200 KiB of stack
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t block = i % blocks_each;
            compute_block<T>(p, i / blocks_each, block / block_columns * kRows, block % block_columns * kColumns,
                             blocks);
        }
    });
}

}  // namespace

void run_matmul(const MatmulLaunch &launch) noexcept {
    switch (launch.type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)     \
    case ElementType::id:                                                     \
        if constexpr (has_product(ElementType::id)) matmul_as<ctype>(launch); \
        return;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    }
}

void run_library_matmul(const MatmulLaunch &p) noexcept {
    const HostLoop loop = product_of(p.type);
    if (loop.function == nullptr) return run_matmul(p);
    const std::intptr_t size = size_of(p.type);
    const std::intptr_t strides[] = {size * p.batch_a,
                                     size * p.batch_b,
                                     size * p.batch_c,
                                     size * (p.a_transposed ? 1 : p.lda),
                                     size * (p.a_transposed ? p.lda : 1),
                                     size * (p.b_transposed ? 1 : p.ldb),
                                     size * (p.b_transposed ? p.ldb : 1),
                                     size * p.ldc,
                                     size};
    auto multiply = [&](std::int64_t begin, std::int64_t end) {
        const std::intptr_t counts[] = {end - begin, p.m, p.k, p.n};
        char *data[] = {const_cast<char *>(static_cast<const char *>(p.a)) + begin * strides[0],
                        const_cast<char *>(static_cast<const char *>(p.b)) + begin * strides[1],
                        static_cast<char *>(p.c) + begin * strides[2]};
        loop.function(data, counts, strides, loop.context);
    };
    // Products that are worth threads get those of the library, which would be too many together with ours.
    const std::int64_t grain = grain_of(p.m * p.n * p.k);
    if (grain > 1)
        parallel_for(p.batch, grain, multiply);
    else
        multiply(0, p.batch);
}

}  // namespace cukern::host
