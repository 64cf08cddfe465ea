// What a launch takes: an operation's operands reduced to the fewest dimensions, broadcasting resolved.
#pragma once

#include <cstdint>

#include "cukern/operations.h"

namespace cukern {

constexpr int kMaxOperands = kMaxInputs + 1;

// Operand 0 is `out`, the others are the inputs. Dimensions run from the slowest to the fastest in `out`.
struct ElementwiseLaunch {
    Op op;
    ElementType compute;
    ElementType result;  // of the operation, which `out` may convert
    bool split;          // see may_split in functors.cuh
    int num_operands;
    int ndim;
    std::int64_t count;  // elements of out; 0 launches nothing
    void *data[kMaxOperands];
    ElementType types[kMaxOperands];
    bool immediate[kMaxOperands];  // the operand is the value below, in the type `compute`
    Immediate values[kMaxOperands];
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxOperands][kMaxDims];  // in elements; out's are never negative
};

// Orders dimensions by out's strides, drops those of length 1, merges neighbours, resolves broadcasting and
// converts immediate values to `compute`.
void plan_elementwise(const ElementwiseCall &call, ElementwiseLaunch *launch) noexcept;

// The launch of destination = source, converting between element types.
ElementwiseLaunch plan_copy(const TensorView &source, const TensorView &destination) noexcept;

// All operands of type `compute` (out of the operation's own result type), packed without gaps or immediate.
bool is_contiguous(const ElementwiseLaunch &launch) noexcept;

// out (m, n), row-major with leading dimension ldc >= n, = a (m, k) @ b (k, n). An operand that is not
// transposed is row-major with a leading dimension of at least its row length; a transposed one column-major.
struct MatmulLaunch {
    ElementType type;
    std::int64_t m, n, k;
    const void *a;
    std::int64_t lda;
    bool a_transposed;
    const void *b;
    std::int64_t ldb;
    bool b_transposed;
    void *c;
    std::int64_t ldc;
};

}  // namespace cukern
