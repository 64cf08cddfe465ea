// The part of cuBLAS's C ABI that is used, from its documentation (cuBLAS 12 and 13).
#pragma once

#include "cukern/element_type.h"

namespace cukern::cuda {

using CublasHandle = void *;
using CublasStatus = int;
constexpr CublasStatus kCublasSuccess = 0;
constexpr CublasStatus kCublasAllocationFailed = 3;
constexpr CublasStatus kCublasNotSupported = 15;
constexpr int kNoTranspose = 0;
constexpr int kTranspose = 1;

constexpr int kCompute32 = 68;
constexpr int kCompute64 = 70;
constexpr int kComputeTf32 = 77;

// How cuBLAS calls an element type, and what it computes in then.
struct GemmType {
    int data;
    int compute;
};
inline GemmType gemm_type(ElementType type) noexcept {
    switch (type) {
        case ElementType::float16: return {2, kCompute32};
        case ElementType::bfloat16: return {14, kCompute32};
        case ElementType::complex64: return {4, kCompute32};
        case ElementType::complex128: return {5, kCompute64};
        case ElementType::float64: return {1, kCompute64};
        default: return {0, kCompute32};
    }
}

}  // namespace cukern::cuda
