// The matrices of a launch as kernels of products take them.
#pragma once

#include <cstdint>

#ifndef __CUDACC_RTC__
#include "plan/launch.h"
#endif

namespace cukern::cuda {

// Rows of a, or columns of b, by k; steps in elements. One of row and depth is 1.
template <typename T>
struct Operand {
    const T *data;
    std::int64_t row, depth, batch;
    std::int64_t rows;
};

// One of row and column is 1.
template <typename T>
struct Result {
    T *data;
    std::int64_t row, column, batch;
};

#ifndef __CUDACC_RTC__  // which compiles the kernels alone

template <typename T>
Operand<T> operand_a(const MatmulLaunch &launch) noexcept {
    return {static_cast<const T *>(launch.a), launch.a_transposed ? 1 : launch.lda,
            launch.a_transposed ? launch.lda : 1, launch.batch_a, launch.m};
}

template <typename T>
Operand<T> operand_b(const MatmulLaunch &launch) noexcept {
    return {static_cast<const T *>(launch.b), launch.b_transposed ? launch.ldb : 1,
            launch.b_transposed ? 1 : launch.ldb, launch.batch_b, launch.n};
}

template <typename T>
Result<T> result_of(const MatmulLaunch &launch) noexcept {
    return {static_cast<T *>(launch.c), launch.c_transposed ? 1 : launch.ldc, launch.c_transposed ? launch.ldc : 1,
            launch.batch_c};
}

// Whether rows of whole vectors follow each other, and all matrices begin at one.
template <typename T>
bool has_vectors(const void *data, std::int64_t step_along, std::int64_t step_across,
                 std::int64_t batch) noexcept {
    constexpr std::int64_t kVector = 16 / static_cast<std::int64_t>(sizeof(T));
    return step_along == 1 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && step_across % kVector == 0 &&
           batch % kVector == 0;
}

#endif

}  // namespace cukern::cuda
