// The operations themselves: what the extension and the C ABI call.
//
// `*_on_host` take views of host memory, bring them to the back-end, wait, and leave the result in `out`;
// call them without the GIL. The others take memory that the device can reach and only enqueue.
// Arguments are checked by the caller: shapes broadcast, types fit, `out` does not overlap wrongly.
#pragma once

#include "cukern/ops.h"
#include "cukern/status.h"
#include "cukern/stream.h"
#include "cukern/tensor_view.h"

namespace cukern {

// out = op(inputs...), computed in `compute`; inputs broadcast to out's shape. A copy converts from any element
// type to any, and finds out itself what to compute in.
struct ElementwiseCall {
    Op op = Op::copy;
    ElementType compute = ElementType::float32;
    const TensorView *inputs[kMaxInputs] = {};
    const TensorView *out = nullptr;
};

Status elementwise(const ElementwiseCall &call, const StreamRef &stream) noexcept;
Status elementwise_on_host(const ElementwiseCall &call) noexcept;

// out = op of input over the dimensions marked in `reduced`, computed in `compute`. `out` has the others, in
// order.
struct ReduceCall {
    Op op = Op::sum;
    ElementType compute = ElementType::float32;
    const TensorView *input = nullptr;
    bool reduced[kMaxDims] = {};
    const TensorView *out = nullptr;
};

Status reduce(const ReduceCall &call, const StreamRef &stream) noexcept;
Status reduce_on_host(const ReduceCall &call) noexcept;

// out = the results of a reduction (sum or prod) of the elements up to each along one dimension, computed in
// `compute`, of the input's shape.
struct ScanCall {
    Op op = Op::sum;
    ElementType compute = ElementType::float32;
    const TensorView *input = nullptr;
    int axis = 0;
    const TensorView *out = nullptr;
};

Status scan(const ScanCall &call, const StreamRef &stream) noexcept;
Status scan_on_host(const ScanCall &call) noexcept;

enum class MatmulAlgorithm : std::int8_t { automatic, tiled, cublas };

// out = a @ b, all two-dimensional, computed in `compute`.
struct MatmulCall {
    MatmulAlgorithm algorithm = MatmulAlgorithm::automatic;
    ElementType compute = ElementType::float32;
    const TensorView *a = nullptr;
    const TensorView *b = nullptr;
    const TensorView *out = nullptr;
};

Status matmul(const MatmulCall &call, const StreamRef &stream) noexcept;
Status matmul_on_host(const MatmulCall &call) noexcept;

// Whether `automatic` would use cuBLAS for this product, so that it is worth being opened.
bool prefers_cublas(const MatmulCall &call) noexcept;

// Opens cuBLAS from a path, or by its usual names where path is null. Only the first success counts.
Status open_cublas(const char *path) noexcept;

// The same by the usual names, without a record of failure: whether cuBLAS is there.
bool find_cublas() noexcept;

// Adds a search made elsewhere, in vain, to what the message of a missing cuBLAS lists.
void note_cublas_search(const char *who, const char *why) noexcept;

struct CublasInfo {
    bool open = false;
    int version = 0;  // major * 10000 + minor * 100 + patch
    char path[512] = {};
    char tried[2048] = {};
};
CublasInfo cublas_info() noexcept;

}  // namespace cukern
