// Matrix products on the CPU: our own, of integers and small ones, and those that another library's BLAS computes.
//
// Idea: out is cut into blocks of kRows x kColumns, one a task. For each kDepth of k the block of b is packed,
// and every row of a runs along it: the innermost loop is c[j] += a * b[j] over packed memory, which
// vectorises. Limit: the load and store of c, two an fma.
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

template <typename T>
struct Blocks {
    T a[kDepth];
    T b[kDepth][kColumns];
    T c[kRows][kColumns];
};

template <typename T>
T fused(T c, T a, T b) noexcept {
    using W = wrapping_t<T>;
    return static_cast<T>(static_cast<W>(c) + static_cast<W>(a) * static_cast<W>(b));
}

template <typename T>
void compute_block(const MatmulLaunch &p, std::int64_t row, std::int64_t column, Blocks<T> &s) noexcept {
    const T *a = static_cast<const T *>(p.a);
    const T *b = static_cast<const T *>(p.b);
    const std::int64_t a_row = p.a_transposed ? 1 : p.lda;
    const std::int64_t a_column = p.a_transposed ? p.lda : 1;
    const std::int64_t b_row = p.b_transposed ? 1 : p.ldb;
    const std::int64_t b_column = p.b_transposed ? p.ldb : 1;
    const std::int64_t rows = std::min(kRows, p.m - row);
    const std::int64_t columns = std::min(kColumns, p.n - column);
    for (std::int64_t i = 0; i < rows; ++i) std::fill_n(s.c[i], columns, T{});
    for (std::int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
        const std::int64_t depth = std::min(kDepth, p.k - k0);
        for (std::int64_t k = 0; k < depth; ++k)
            for (std::int64_t j = 0; j < columns; ++j) s.b[k][j] = b[(k0 + k) * b_row + (column + j) * b_column];
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t k = 0; k < depth; ++k) s.a[k] = a[(row + i) * a_row + (k0 + k) * a_column];
            for (std::int64_t k = 0; k < depth; ++k)
                for (std::int64_t j = 0; j < columns; ++j) s.c[i][j] = fused(s.c[i][j], s.a[k], s.b[k][j]);
        }
    }
    for (std::int64_t i = 0; i < rows; ++i)
        std::copy_n(s.c[i], columns, static_cast<T *>(p.c) + (row + i) * p.ldc + column);
}

template <typename T>
void matmul_as(const MatmulLaunch &p) noexcept {
    const std::int64_t block_rows = (p.m + kRows - 1) / kRows;
    const std::int64_t block_columns = (p.n + kColumns - 1) / kColumns;
    parallel_for(block_rows * block_columns, 1, [&](std::int64_t begin, std::int64_t end) {
        Blocks<T> blocks;  // under 100 KiB of stack
        for (std::int64_t i = begin; i < end; ++i)
            compute_block<T>(p, i / block_columns * kRows, i % block_columns * kColumns, blocks);
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
    const std::intptr_t counts[] = {1, p.m, p.k, p.n};
    const std::intptr_t size = size_of(p.type);
    const std::intptr_t strides[] = {0,
                                     0,
                                     0,
                                     size * (p.a_transposed ? 1 : p.lda),
                                     size * (p.a_transposed ? p.lda : 1),
                                     size * (p.b_transposed ? 1 : p.ldb),
                                     size * (p.b_transposed ? p.ldb : 1),
                                     size * p.ldc,
                                     size};
    char *data[] = {const_cast<char *>(static_cast<const char *>(p.a)),
                    const_cast<char *>(static_cast<const char *>(p.b)), static_cast<char *>(p.c)};
    loop.function(data, counts, strides, loop.context);
}

}  // namespace cukern::host
