// The operations themselves: what the extension and the C ABI call.
//
// Arguments are checked by the caller: shapes broadcast, types fit, `out` does not overlap wrongly.
#pragma once

#include "cukern/ops.h"
#include "cukern/status.h"
#include "cukern/stream.h"
#include "cukern/tensor_view.h"

namespace cukern {

// Of a call on the host's memory: the processor computes it there, or it is brought to the device and back.
enum class Placement : std::int8_t { automatic, host, device };

// Where a call's arrays are, and with that how it runs. In memory that a device reaches it is enqueued on a
// stream, in whose order it runs. A call on memory of the host alone returns when its result is there: make it
// without the GIL unless it is short.
struct Execution {
    bool on_device = false;
    StreamRef stream;
    int host_device = -1;  // that the host's memory is brought to; -1: the thread's current one
    Placement placement = Placement::automatic;  // of the host's memory; automatic: yet to be chosen
    bool is_shared = false;                      // an Array is among it that the device reaches
};

// The arrays of a call; inputs beyond those that its operation takes are null.
struct CallArrays {
    const TensorView *inputs[kMaxInputs] = {};
    const TensorView *out = nullptr;
};

// out = op(inputs...), computed in `compute`; inputs broadcast to out's shape. A copy converts from any element
// type to any, and finds out itself what to compute in.
struct ElementwiseCall : CallArrays {
    Op op = Op::copy;
    ElementType compute = ElementType::float32;
};

Status elementwise(const ElementwiseCall &call, const Execution &where) noexcept;

// out = op of the input over the dimensions marked in `reduced`, computed in `compute`. `out` has the others, in
// order.
struct ReduceCall : CallArrays {
    Op op = Op::sum;
    ElementType compute = ElementType::float32;
    bool reduced[kMaxDims] = {};
    double correction = 0;  // of var and std: what the number of elements is lessened by
};

Status reduce(const ReduceCall &call, const Execution &where) noexcept;

// out = the results of a reduction (sum or prod) of the elements up to each along one dimension, computed in
// `compute` and returned in `result`, which `out` may convert; of the input's shape.
struct ScanCall : CallArrays {
    Op op = Op::sum;
    ElementType compute = ElementType::float32;
    ElementType result = ElementType::float32;
    int axis = 0;
};

Status scan(const ScanCall &call, const Execution &where) noexcept;

enum class MatmulAlgorithm : std::int8_t { automatic, tiled, cublas };

// What a product ends with, where it is one kernel: out = gelu(alpha * a @ b + beta * c + bias).
struct ProductEpilogue {
    double alpha = 1;
    double beta = 1;
    const TensorView *c = nullptr;     // null: none; of out's shape, and may be exactly out
    const TensorView *bias = nullptr;  // null: none; of the columns of out
    bool gelu = false;                 // in the form with tanh; false: not applied
};

// out = the products of the matrices that the last two dimensions of both inputs are, computed in `compute`, a
// product_type. The dimensions before them are of out's shape, with strides of 0 where an input repeats.
struct MatmulCall : CallArrays {
    MatmulAlgorithm algorithm = MatmulAlgorithm::automatic;
    ElementType compute = ElementType::float32;
    bool allows_tf32 = false;                   // float32 by the tensor cores, which keep 11 bits of an operand
    const ProductEpilogue *epilogue = nullptr;  // null: none; see fuses_epilogue
};

// CUKERN_NOT_SUPPORTED, before anything is written, where cuBLASLt has no kernel for the epilogue.
Status matmul(const MatmulCall &call, const Execution &where) noexcept;

// A call prepared for every other one of the same operation on arrays of the same layouts: of those only the
// addresses are new. Not for immediate values.
class LaunchPlan {
public:
    // Null: out of memory.
    static LaunchPlan *make(const ElementwiseCall &call) noexcept;
    // Null, too, for a product that is empty, is several launches, has operands that have to be copied, or an
    // epilogue.
    static LaunchPlan *make(const MatmulCall &call) noexcept;
    virtual ~LaunchPlan() = default;
    // `data`: of `out` and then of the inputs, all reachable on the stream's device. One thread at a time.
    // CUKERN_NOT_SUPPORTED, before anything is launched: a product that was planned on another back-end.
    virtual Status launch(void *const *data, const StreamRef &stream) noexcept = 0;
};

// Whether `automatic` would use cuBLAS for this product, so that it is worth being opened.
bool prefers_cublas(const MatmulCall &call) noexcept;

// Whether a product of arrays in a GPU's memory may be given its epilogue.
bool fuses_epilogue(const MatmulCall &call) noexcept;

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
