// The operations, for the module's functions, Array's operators and each other; `out` and `stream` may be null.
#pragma once

#include "base/module_state.h"
#include "ops/product_views.h"
#include "view/tracked_view.h"

#include "cukern/operations.h"

namespace cukern::py {

PyObject *run_elementwise(ModuleState &state, Op op, PyObject *first, PyObject *other, PyObject *out,
                          PyObject *given_stream) noexcept;
// A copy of the same kind in another element type; `function` is for messages.
PyObject *run_cast(ModuleState &state, const char *function, PyObject *object, ElementType type, PyObject *out,
                   PyObject *given_stream) noexcept;
// What a reduction is asked for besides its operand; null or None where it is not given.
struct ReductionOptions {
    PyObject *axis = nullptr;
    PyObject *dtype = nullptr;
    double correction = 0;
    bool keepdims = false;
    PyObject *out = nullptr;
    PyObject *stream = nullptr;
};
PyObject *run_reduction(ModuleState &state, Op op, PyObject *object, const ReductionOptions &given) noexcept;
// `object` itself, copied into `out`; of numbers, not of bool.
PyObject *run_copy(ModuleState &state, const char *function, PyObject *object, PyObject *out,
                   PyObject *given_stream) noexcept;

// How a product is computed, and of which shape it is.
struct ProductOptions {
    ProductForm form = ProductForm::matmul;
    MatmulAlgorithm algorithm = MatmulAlgorithm::automatic;
    bool allows_tf32 = false;
    bool keeps_sums = false;  // of 16-bit floats: the result is float32
};
// `function` is for messages.
PyObject *run_matmul(PyObject *module, const char *function, const ProductOptions &options, PyObject *first,
                     PyObject *second, PyObject *out, PyObject *given_stream) noexcept;

// A product with its epilogue in one kernel: gelu(alpha * first @ second + beta * c + bias). `c`, `bias` and `out`
// may be null. None where that is not possible: nothing has been done then.
struct FusedEpilogue {
    double alpha = 1;
    double beta = 1;
    PyObject *c = nullptr;
    PyObject *bias = nullptr;
    bool gelu = false;
};
PyObject *run_fused_product(PyObject *module, const char *function, const ProductOptions &options,
                            const FusedEpilogue &epilogue, PyObject *first, PyObject *second, PyObject *out,
                            PyObject *given_stream) noexcept;

}  // namespace cukern::py

// The parameters that docstrings begin with and calls are parsed by; `first` is the array, `rule` the row's.
#define CUKERN_REDUCTION_PARAMETERS(first, rule) \
    "(" first ", /, axis=None, *" CUKERN_OPTION_TEXT_##rule ", keepdims=False, out=None, stream=None)"
#define CUKERN_OPTION_TEXT_summed ", dtype=None"
#define CUKERN_OPTION_TEXT_floating ", dtype=None"
#define CUKERN_OPTION_TEXT_variance ", correction=0.0"
#define CUKERN_OPTION_TEXT_promoted ""
#define CUKERN_OPTION_TEXT_logical ""
#define CUKERN_OPTION_TEXT_index ""
