// What a launch takes: an operation's operands reduced to the fewest dimensions, broadcasting resolved.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "cukern/operations.h"
#include "plan/limits.h"

namespace cukern {

constexpr int kMaxOperands = kMaxInputs + 1;

// A kernel's launch, kept to be made again with other addresses that are aligned alike.
struct PreparedKernel {
    static constexpr std::uintptr_t kAlignment = 256;  // no kernel looks at more of an address, or of a difference
    static constexpr std::size_t kMostBytes = 528;
    void *function = nullptr;  // of `context`; null: nothing is kept
    void *context = nullptr;
    unsigned blocks = 0;
    unsigned threads = 0;
    bool follows = false;  // the kernel before it: see device/follow.cuh
    std::size_t bytes = 0;
    // Where the addresses of out and of the inputs are in the parameters, in bytes from their begin.
    std::uint16_t places[kMaxOperands] = {0, 8, 16, 24};
    alignas(16) unsigned char params[kMostBytes];
};

// Operand 0 is `out`, the others are the inputs. Dimensions run from the slowest to the fastest in `out`.
struct ElementwiseLaunch {
    Op op;
    ElementType compute;
    ElementType result;  // of the operation, which `out` may convert
    bool split;          // see may_split in formulas/evaluate.cuh
    int num_operands;
    int ndim;
    std::int64_t count;  // elements of out; 0 launches nothing
    void *data[kMaxOperands];
    ElementType types[kMaxOperands];
    bool immediate[kMaxOperands];    // the operand is the value below, in the type `compute`
    Immediate values[kMaxOperands];  // (in logic a truth)
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxOperands][kMaxDims];  // in elements; out's are never negative
    PreparedKernel *prepared = nullptr;            // if not null: receives the launch, where that is one kernel
};

// Orders dimensions by out's strides, drops those of length 1, merges neighbours, resolves broadcasting and
// converts immediate values to `compute`.
void plan_elementwise(const ElementwiseCall &call, ElementwiseLaunch *launch) noexcept;

// An immediate view's value in another element type.
Immediate value_as(const TensorView &view, ElementType type) noexcept;

// The launch of destination = source, converting between element types.
ElementwiseLaunch plan_copy(const TensorView &source, const TensorView &destination) noexcept;

// Whether there is nothing to do: no elements, or a copy onto itself.
bool does_nothing(const ElementwiseLaunch &launch) noexcept;

// Whether an input is immediate, or one element for all of a launch of one dimension.
bool is_repeated(const ElementwiseLaunch &launch, int operand) noexcept;

// All operands of type `compute` (out of the operation's own result type), packed without gaps or immediate; with
// `may_repeat` also repeated.
bool is_contiguous(const ElementwiseLaunch &launch, bool may_repeat = false) noexcept;

// A reduction into packed memory of the result's type, C order over the kept dimensions. Both lists of dimensions
// run from the slowest to the fastest and are as short as can be; strides are in elements.
struct ReduceLaunch {
    Op op;
    ElementType type;     // of the input
    ElementType compute;  // what it computes in; also the result's type, except for bool and index results
    const void *in;
    void *out;
    std::int64_t kept;     // elements of out
    std::int64_t reduced;  // elements of the input for each of them
    double correction;     // see ReduceCall
    int num_kept;
    int num_reduced;
    std::int64_t kept_shape[kMaxReduceDims];
    std::int64_t kept_strides[kMaxReduceDims];
    std::int64_t reduced_shape[kMaxReduceDims];
    std::int64_t reduced_strides[kMaxReduceDims];
    void *scratch;               // for partial results; null: there is no memory for them
    std::int64_t scratch_bytes;  // what may be used of it
    // Of a piece of each result's elements (see plan/reduce_pieces.h): where its values go instead of to `out`, as
    // one of so many of each result, and the index of its first element. The piece behind the last joins them, the
    // one behind that into the first.
    void *joined = nullptr;
    std::int64_t slots = 0;
    std::int64_t slot = 0;
    std::int64_t first_index = 0;
};

// Running results along lines of `length` elements into memory of type `compute`. Line i begins at the places that
// the kept dimensions give it, in the input and in `out`; they run from the slowest to the fastest of `out`.
struct ScanLaunch {
    Op op;
    ElementType type;     // of the input
    ElementType compute;  // and of out
    const void *in;
    void *out;
    std::int64_t lines;
    std::int64_t length;
    std::int64_t stride;  // in elements
    std::int64_t out_stride;
    int num_kept;
    std::int64_t kept_shape[kMaxReduceDims];
    std::int64_t kept_strides[kMaxReduceDims];
    std::int64_t kept_out_strides[kMaxReduceDims];
    void *scratch;  // for what parts of lines leave for each other
    std::int64_t scratch_bytes;
};

// Whether neighbouring lines lie closer to each other than the elements of one: in `out`, and in the input.
inline bool writes_across(const ScanLaunch &launch) noexcept {
    const int last = launch.num_kept - 1;
    return last >= 0 && std::abs(launch.kept_out_strides[last]) < std::abs(launch.out_stride);
}
inline bool reads_across(const ScanLaunch &launch) noexcept {
    const int last = launch.num_kept - 1;
    return last >= 0 && std::abs(launch.kept_strides[last]) < std::abs(launch.stride);
}

// The types that running results are computed in.
constexpr bool scans_in(ElementType type) {
    return is_floating(type) || kind_of(type) == 'c' || type == ElementType::int64 || type == ElementType::uint64;
}

// out (m, n), row-major with leading dimension ldc >= n, = a (m, k) @ b (k, n). An operand that is not
// transposed is row-major with a leading dimension of at least its row length; a transposed one column-major.
// What a product by cuBLAS ends with, rounded once: c = gelu(alpha * a @ b + beta * c + bias).
struct MatmulEpilogue {
    double alpha = 1;
    double beta = 0;
    const void *c = nullptr;  // null: none; row-major, as the result is, which it may be
    std::int64_t ldc = 0;
    const void *bias = nullptr;  // of each column; null: none
    bool gelu = false;           // in the form with tanh
};

struct MatmulLaunch {
    ElementType type;
    ElementType result;  // that of c: `type`, or float32 for a library's products of 16-bit floats
    bool allows_tf32;
    std::int64_t m, n, k;
    const void *a;
    std::int64_t lda;
    bool a_transposed;
    const void *b;
    std::int64_t ldb;
    bool b_transposed;
    void *c;
    std::int64_t ldc;
    std::int64_t batch;  // products, from each to the next so many elements
    std::int64_t batch_a, batch_b, batch_c;
    void *workspace = nullptr;  // of a product by cuBLAS
    std::size_t workspace_bytes = 0;
    void *scratch = nullptr;                   // of a product by a kernel of our own, which says how much it takes
    bool saves_scratch = false;                // tiles are not shared, which takes longer
    bool c_transposed = false;                 // column-major; only for kernels of our own
    const MatmulEpilogue *epilogue = nullptr;  // only for cuBLAS, and one product
    PreparedKernel *prepared = nullptr;        // as of elementwise launches: out, a, b
};

}  // namespace cukern
