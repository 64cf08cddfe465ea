// Matrix products over either back-end: which algorithm, and operands brought to what it takes.
//
// Idea: an algorithm takes matrices with one unit stride and a leading dimension, in batches of one step each. So
// transposed views and rows or columns of a larger matrix need no copy, nor do batches that broadcast. What that
// cannot express (another element type, negative or zero strides, every second column) is packed into a temporary
// of the computing type first. Dimensions of batches are merged where their strides allow it, and the rows of all
// matrices of a batch where b is one matrix; over what is left a loop goes.
#include <new>
#include <utility>

#include "context/scratch_buffer.h"
#include "operations/device_budget.h"
#include "operations/execute.h"
#include "operations/matmul.h"
#include "operations/matmul_batches.h"
#include "operations/matmul_panels.h"
#include "operations/matmul_ranges.h"
#include "operations/matrix_layout.h"
#include "operations/planned_product.h"
#include "plan/layout.h"
#include "plan/rounding.h"
#include "transfer/pipeline.h"

namespace cukern {
namespace {

std::int64_t rows_of(const MatmulCall &call) noexcept { return call.out->shape[call.out->ndim - 2]; }
std::int64_t columns_of(const MatmulCall &call) noexcept { return call.out->shape[call.out->ndim - 1]; }
std::int64_t depth_of(const MatmulCall &call) noexcept { return call.inputs[0]->shape[call.out->ndim - 1]; }

bool is_short(ElementType type) noexcept { return is_floating(type) && size_of(type) == 2; }

// Up to which k our own kernels take a product no longer than cuBLAS. `longest` is by the logarithms of rows and
// columns of c, to base 2 and rounded up, and gives the logarithm of k; -1: for no k. Most of cuBLAS's time for a
// small product is that of the call.
constexpr int kSides = 15;
constexpr int kSidesOfBatches = 11;  // for which the rows of all products are one side
struct OwnProducts {
    ElementType type;
    std::int8_t longest[kSides][kSides];
};
constexpr OwnProducts kOwnProducts[] = {
#include "operations/own_products.inc"
};

bool is_for_own_kernels(const MatmulCall &call) noexcept {
    std::int64_t products = 1;
    for (int d = 0; d < call.out->ndim - 2; ++d) products *= call.out->shape[d];
    const int rows = bits_from(rows_of(call) * products);
    const int columns = bits_from(columns_of(call));
    const int sides = products == 1 ? kSides : kSidesOfBatches;
    if (rows >= sides || columns >= sides) return false;
    for (const OwnProducts &own : kOwnProducts)
        if (own.type == call.compute) return bits_from(depth_of(call)) <= own.longest[rows][columns];
    return false;
}

// Whether the product is one for cuBLAS, or on the processor for its BLAS: for small ones the call costs more than
// its kernel saves. cuBLAS alone multiplies 16-bit floats as they are.
bool is_for_library(const MatmulCall &call, Backend backend) noexcept {
    if (is_integer(call.compute)) return false;
    if (backend == Backend::cuda) return !is_for_own_kernels(call);
    constexpr std::int64_t kLeast = 4;
    return rows_of(call) > kLeast || columns_of(call) > kLeast || depth_of(call) > kLeast;
}

bool takes_library(Context &context, const MatmulCall &call) noexcept {
    if (call.algorithm != MatmulAlgorithm::automatic) return call.algorithm == MatmulAlgorithm::cublas;
    const Backend backend = context.runtime.backend();
    return is_for_library(call, backend) && (backend == Backend::host || find_cublas());
}

// Integers of one size have the same bits of a product, with a sign or without.
TensorView as_type(const TensorView &view, ElementType type) noexcept {
    TensorView own = view;
    if (is_integer(view.type) && is_integer(type) && size_of(view.type) == size_of(type)) own.type = type;
    return own;
}

class Product {
public:
    Product(Context &context, const MatmulCall &call, const StreamRef &stream) noexcept
        : context_(context), call_(call), stream_(stream) {}

    Status run() noexcept {
        const TensorView &out = *call_.out;
        if (call_.epilogue != nullptr) return run_with_epilogue(*call_.epilogue);
        choose_algorithm();
        if (depth_of(call_) == 0) return copy(zero(), out);
        TensorView a;
        TensorView b;
        CUKERN_TRY(prepare(*call_.inputs[0], a_block_, &a));
        CUKERN_TRY(prepare(*call_.inputs[1], b_block_, &b));
        const bool is_sum = is_short(compute_) && out.type == ElementType::float32;
        const ElementType result_type = is_sum ? out.type : compute_;
        const TensorView own = as_type(out, result_type);
        Matrix matrix;
        if (own.type == result_type && as_matrix(own, &matrix) && is_aligned(own)) return launch_all(a, b, own);
        const std::int64_t bytes = count_of(out) * size_of(result_type);
        CUKERN_TRY(out_block_.acquire(context_, static_cast<std::size_t>(bytes), stream_));
        const TensorView result = packed_like(out, result_type, out_block_.data());
        CUKERN_TRY(launch_all(a, b, result));
        return copy(result, out);
    }

    LaunchPlan *plan() noexcept {
        choose_algorithm();
        const bool has_any_address = !by_cublas_ || kind_of(compute_) != 'c';  // see is_aligned
        const TensorView a = as_type(*call_.inputs[0], compute_);
        const TensorView b = as_type(*call_.inputs[1], compute_);
        const TensorView c = as_type(*call_.out, compute_);
        Matrix matrix;
        for (const TensorView *view : {&a, &b, &c})
            if (view->type != compute_ || !has_any_address || !as_matrix(*view, &matrix)) return nullptr;
        ProductLaunch product(compute_, a, b, c, by_cublas_);
        product.launch.allows_tf32 = call_.allows_tf32;
        return product.is_single() ? new (std::nothrow) PlannedProduct(context_, product, by_library_) : nullptr;
    }

private:
    void choose_algorithm() noexcept {
        by_library_ = takes_library(context_, call_);
        compute_ = computed_in(context_, call_);
        by_cublas_ = by_library_ && context_.runtime.backend() == Backend::cuda;
    }

    // cuBLAS reads complex numbers at once, which elsewhere are two numbers.
    bool is_aligned(const TensorView &view) const noexcept {
        const auto size = static_cast<std::uintptr_t>(size_of(view.type));
        return !by_cublas_ || reinterpret_cast<std::uintptr_t>(view.data) % size == 0;
    }

    TensorView zero() const noexcept {
        TensorView view;
        view.type = compute_;
        view.immediate = true;
        view.value = {};
        return view;
    }

    Status copy(const TensorView &from, const TensorView &to) noexcept {
        return context_.runtime.launch_elementwise(plan_copy(from, to), stream_.handle);
    }

    // An operand that an algorithm takes: what broadcasts is packed once.
    Status prepare(const TensorView &view, ScratchBuffer &block, TensorView *prepared) noexcept {
        *prepared = as_type(view, compute_);
        Matrix matrix;
        if (prepared->type == compute_ && as_matrix(*prepared, &matrix) && is_aligned(*prepared)) return CUKERN_OK;
        TensorView source = view;
        for (int d = 0; d < view.ndim - 2; ++d)
            if (view.strides[d] == 0) source.shape[d] = 1;
        const std::int64_t bytes = count_of(source) * size_of(compute_);
        CUKERN_TRY(block.acquire(context_, static_cast<std::size_t>(bytes), stream_));
        *prepared = packed_like(source, compute_, block.data());
        CUKERN_TRY(copy(source, *prepared));
        for (int d = 0; d < view.ndim - 2; ++d) {
            if (source.shape[d] != view.shape[d]) prepared->strides[d] = 0;
            prepared->shape[d] = view.shape[d];
        }
        return CUKERN_OK;
    }

    Status launch_all(const TensorView &a, const TensorView &b, const TensorView &c) noexcept {
        ProductLaunch product(compute_, a, b, c, by_cublas_);
        product.launch.allows_tf32 = call_.allows_tf32;
        ProductLauncher launcher(context_, stream_, by_library_);
        CUKERN_TRY(launcher.prepare(&product.launch));
        std::int64_t index[kMaxDims] = {};
        for (;;) {
            product.go_to(a.data, b.data, c.data, index);
            CUKERN_TRY(launcher.launch(product.launch));
            if (!product.next(index)) return CUKERN_OK;
        }
    }

    // By cuBLASLt: see fuses_epilogue.
    Status run_with_epilogue(const ProductEpilogue &asked) noexcept {
        by_library_ = by_cublas_ = true;
        compute_ = call_.compute;
        TensorView x;
        TensorView y;
        CUKERN_TRY(prepare(*call_.inputs[0], a_block_, &x));
        CUKERN_TRY(prepare(*call_.inputs[1], b_block_, &y));
        Matrix a;
        Matrix b;
        Matrix out;
        Matrix c;
        as_matrix(x, &a);
        as_matrix(y, &b);
        as_matrix(*call_.out, &out);
        MatmulEpilogue epilogue;
        epilogue.alpha = asked.alpha;
        epilogue.gelu = asked.gelu;
        if (asked.bias != nullptr) epilogue.bias = asked.bias->data;
        if (asked.c != nullptr) {
            as_matrix(*asked.c, &c);
            epilogue.beta = asked.beta;
            epilogue.c = c.data;
            epilogue.ldc = c.ld;
        }
        MatmulLaunch p{};
        p.type = p.result = compute_;
        p.allows_tf32 = call_.allows_tf32;
        p.m = rows_of(call_);
        p.k = depth_of(call_);
        p.n = columns_of(call_);
        p.a = a.data;
        p.lda = a.ld;
        p.a_transposed = a.transposed;
        p.b = b.data;
        p.ldb = b.ld;
        p.b_transposed = b.transposed;
        p.c = out.data;
        p.ldc = out.ld;
        p.batch = 1;
        p.epilogue = &epilogue;
        ProductLauncher launcher(context_, stream_, true);
        CUKERN_TRY(launcher.prepare(&p));
        return launcher.launch(p);
    }

    Context &context_;
    const MatmulCall &call_;
    const StreamRef stream_;
    bool by_library_ = false;
    bool by_cublas_ = false;
    ElementType compute_ = ElementType::float32;
    ScratchBuffer a_block_;
    ScratchBuffer b_block_;
    ScratchBuffer out_block_;
};

// What can be refused before anything is staged.
Status check_algorithm(const Context &context, const MatmulCall &call) noexcept {
    if (call.algorithm != MatmulAlgorithm::cublas) return CUKERN_OK;
    if (is_integer(call.compute))
        return fail(CUKERN_NOT_SUPPORTED, "matmul_cublas: element type %s is not supported: floats and complex",
                    name_of(call.compute));
    return context.runtime.backend() == Backend::cuda ? open_cublas(nullptr) : CUKERN_OK;
}

TensorView without_first(const TensorView &view) noexcept {
    TensorView rest = view;
    --rest.ndim;
    for (int d = 0; d < rest.ndim; ++d) {
        rest.shape[d] = view.shape[d + 1];
        rest.strides[d] = view.strides[d + 1];
    }
    return rest;
}

// One product of the host's matrices, which is large.
Status multiply_in_parts(const MatmulCall &call, int device) noexcept {
    std::int64_t longest = 0;
    CUKERN_TRY(longest_sum(call, device, &longest));
    // What is lost between blocks and what cuBLAS needs may leave too little memory: shorter sums take less.
    constexpr int kMostTries = 4;
    for (int i = 0; i < kMostTries && longest > 0 && longest < depth_of(call); ++i, longest /= 2)
        if (const Status status = matmul_in_ranges(call, device, longest); status != CUKERN_OUT_OF_MEMORY)
            return status;
    bool untouched = true;
    const Status status = matmul_in_panels(call, device, &untouched);
    if (status != CUKERN_OK && !untouched) add_to_message("; the result may have been written in part");
    return status;
}

// Arrays of the host by way of the device: batches of small matrices in chunks, and single products by panels.
// What does not fit there at once is halved.
template <typename Launch>
Status multiply_staged(const MatmulCall &call, int device, const Launch &launch) noexcept {
    const TensorView &out = *call.out;
    if (out.ndim == 2) {
        if (is_in_panels(call, device)) return multiply_in_parts(call, device);
        return execute_staged(call, device, Staging::Uses::many, launch);
    }
    MatmulCall part = call;
    TensorView views[3] = {*call.inputs[0], *call.inputs[1], out};
    part.inputs[0] = &views[0];
    part.inputs[1] = &views[1];
    part.out = &views[2];
    if (out.shape[0] == 1) {
        for (TensorView &view : views) view = without_first(view);
        return multiply_staged(part, device, launch);
    }
    if (is_in_batches(call, device)) return matmul_in_batches(call, device);
    // Each of large ones goes by panels.
    const bool are_large = is_worth_a_pipeline(rows_of(call) * columns_of(call) * size_of(out.type));
    if (!are_large && product_fits(call, device)) return execute_staged(call, device, Staging::Uses::many, launch);
    const std::int64_t n = out.shape[0];
    for (const auto &[begin, end] : {std::pair{std::int64_t{0}, n / 2}, std::pair{n / 2, n}}) {
        views[0] = part_along(*call.inputs[0], 0, begin, end);
        views[1] = part_along(*call.inputs[1], 0, begin, end);
        views[2] = part_along(out, 0, begin, end);
        CUKERN_TRY(multiply_staged(part, device, launch));
    }
    return CUKERN_OK;
}

}  // namespace

bool prefers_cublas(const MatmulCall &call) noexcept {
    Context *active = nullptr;
    return is_for_library(call, Backend::cuda) && context(&active) == CUKERN_OK &&
           active->runtime.backend() == Backend::cuda;
}

// cuBLASLt adds a bias to each row of what it takes for columns: out has to be row-major, of one matrix, and all
// that is added of its type. Results of 16 bits are rounded once by its kernels for rows of whole vectors and one
// addend; others were seen to round in between.
bool fuses_epilogue(const MatmulCall &call) noexcept {
    const ProductEpilogue &epilogue = *call.epilogue;
    const TensorView &out = *call.out;
    const auto is_row_major = [&](const TensorView &view) {
        Matrix matrix;
        return view.type == out.type && as_matrix(view, &matrix) && !matrix.transposed;
    };
    if (!is_floating(out.type) || size_of(out.type) > 4 || call.compute != out.type || out.ndim != 2 ||
        count_of(out) == 0 || depth_of(call) == 0 || call.algorithm == MatmulAlgorithm::tiled ||
        !is_row_major(out))
        return false;
    constexpr std::int64_t kVector = 8;  // elements of 16 bits
    if (is_short(out.type) &&
        (columns_of(call) % kVector != 0 || (epilogue.c != nullptr && epilogue.bias != nullptr)))
        return false;
    if (epilogue.c != nullptr && !is_row_major(*epilogue.c)) return false;
    const TensorView *const bias = epilogue.bias;
    return bias == nullptr || (bias->type == out.type && is_packed(*bias));
}

// 16-bit floats are multiplied in float32 where no library takes them as they are.
ElementType computed_in(Context &context, const MatmulCall &call) noexcept {
    const bool has_kernel = context.runtime.backend() == Backend::cuda && takes_library(context, call);
    return is_short(call.compute) && !has_kernel ? ElementType::float32 : call.compute;
}

bool product_fits(const MatmulCall &call, int device) noexcept {
    Context *context = nullptr;
    if (cukern::context(&context) != CUKERN_OK) return true;  // which will be told
    const ElementType compute = computed_in(*context, call);
    std::int64_t needed = 0;
    for (const TensorView *view : {call.inputs[0], call.inputs[1], call.out}) {
        const bool is_converted = as_type(*view, compute).type != compute;
        needed += bytes_of(*view) + (is_converted ? count_of(*view) * size_of(compute) : 0);
    }
    return fits_in_budget(*context, device, needed);
}

Status multiply(Context &context, const MatmulCall &call, const StreamRef &stream) noexcept {
    return Product(context, call, stream).run();
}

// Of a product that needs no copies, in one launch.
LaunchPlan *LaunchPlan::make(const MatmulCall &call) noexcept {
    Context *context = nullptr;
    if (call.epilogue != nullptr || depth_of(call) == 0 || count_of(*call.out) == 0 ||
        chosen_context(&context) != CUKERN_OK)
        return nullptr;
    return Product(*context, call, {}).plan();
}

Status matmul(const MatmulCall &call, const Execution &where) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(chosen_context(&active));
    CUKERN_TRY(check_algorithm(*active, call));
    const auto staged = [](const MatmulCall &own, int device, const auto &launch) {
        return multiply_staged(own, device, launch);
    };
    return execute(call, where, multiply, staged);
}

}  // namespace cukern
