// Matrix products over either back-end: which algorithm, and operands brought to what it takes.
//
// Both algorithms take operands with one unit stride and a leading dimension, so transposed views and rows
// or columns of a larger matrix need no copy. What they cannot express (another element type, negative or
// zero strides, every second column) is packed into a temporary of the computing type first.
#include <utility>

#include "context/scratch_buffer.h"
#include "operations/execute.h"
#include "operations/matmul_panels.h"
#include "plan/layout.h"

namespace cukern {
namespace {

// An operand as a matrix with a leading dimension.
struct Matrix {
    void *data = nullptr;
    std::int64_t ld = 0;
    bool transposed = false;  // column-major
};

bool as_matrix(const TensorView &view, Matrix *matrix) noexcept {
    const std::int64_t rows = view.shape[0];
    const std::int64_t columns = view.shape[1];
    matrix->data = view.data;
    if ((columns == 1 || view.strides[1] == 1) && (rows == 1 || view.strides[0] >= columns)) {
        matrix->ld = rows == 1 ? columns : view.strides[0];
        matrix->transposed = false;
        return true;
    }
    if ((rows == 1 || view.strides[0] == 1) && (columns == 1 || view.strides[1] >= rows)) {
        matrix->ld = columns == 1 ? rows : view.strides[1];
        matrix->transposed = true;
        return true;
    }
    return false;
}

// Whether a side is longer than so much.
bool is_longer(const MatmulCall &call, std::int64_t most) noexcept {
    return call.inputs[0]->shape[0] > most || call.inputs[0]->shape[1] > most || call.inputs[1]->shape[1] > most;
}

// Whether the product is one for cuBLAS, or on the processor for its BLAS: for small ones the call costs more than
// its kernel saves.
bool is_for_library(const MatmulCall &call, Backend backend) noexcept {
    return is_floating(call.compute) && is_longer(call, backend == Backend::cuda ? 32 : 4);
}

class Product {
public:
    Product(Context &context, const MatmulCall &call, const StreamRef &stream) noexcept
        : context_(context), call_(call), device_(stream.device), stream_(stream) {}

    Status run() noexcept {
        const TensorView &out = *call_.out;
        if (call_.inputs[0]->shape[1] == 0) return copy(zero(), out);
        Matrix a;
        Matrix b;
        CUKERN_TRY(prepare(*call_.inputs[0], a_block_, &a));
        CUKERN_TRY(prepare(*call_.inputs[1], b_block_, &b));
        Matrix c;
        if (out.type == call_.compute && as_matrix(out, &c)) return launch(a, b, c);
        const std::int64_t bytes = count_of(out) * size_of(call_.compute);
        CUKERN_TRY(out_block_.acquire(context_, static_cast<std::size_t>(bytes), stream_));
        const TensorView result = packed_like(out, call_.compute, out_block_.data());
        as_matrix(result, &c);
        CUKERN_TRY(launch(a, b, c));
        return copy(result, out);
    }

private:
    TensorView zero() const noexcept {
        TensorView view;
        view.type = call_.compute;
        view.immediate = true;
        view.value = {};
        return view;
    }

    Status copy(const TensorView &from, const TensorView &to) noexcept {
        return context_.runtime.launch_elementwise(plan_copy(from, to), stream_.handle);
    }

    Status prepare(const TensorView &view, ScratchBuffer &block, Matrix *matrix) noexcept {
        if (view.type == call_.compute && as_matrix(view, matrix)) return CUKERN_OK;
        const std::int64_t bytes = count_of(view) * size_of(call_.compute);
        CUKERN_TRY(block.acquire(context_, static_cast<std::size_t>(bytes), stream_));
        const TensorView packed = packed_like(view, call_.compute, block.data());
        CUKERN_TRY(copy(view, packed));
        as_matrix(packed, matrix);
        return CUKERN_OK;
    }

    // A column-major result is the row-major result of the transposed operands in the other order.
    Status launch(Matrix a, Matrix b, const Matrix &c) noexcept {
        MatmulLaunch p;
        p.type = call_.compute;
        p.m = call_.inputs[0]->shape[0];
        p.k = call_.inputs[0]->shape[1];
        p.n = call_.inputs[1]->shape[1];
        if (c.transposed) {
            std::swap(a, b);
            std::swap(p.m, p.n);
            a.transposed = !a.transposed;
            b.transposed = !b.transposed;
        }
        p.a = a.data;
        p.lda = a.ld;
        p.a_transposed = a.transposed;
        p.b = b.data;
        p.ldb = b.ld;
        p.b_transposed = b.transposed;
        p.c = c.data;
        p.ldc = c.ld;
        p.workspace = nullptr;
        const Backend backend = context_.runtime.backend();
        bool cublas = call_.algorithm == MatmulAlgorithm::cublas;
        if (call_.algorithm == MatmulAlgorithm::automatic)
            cublas = is_for_library(call_, backend) && (backend == Backend::host || find_cublas());
        if (!cublas) return context_.runtime.launch_matmul(p, stream_.handle);
        Capture capture;
        if (stream_.id != 0) CUKERN_TRY(context_.runtime.find_capture(stream_.handle, &capture));
        if (capture.is_active) {  // a graph has a workspace of its own
            CUKERN_TRY(workspace_.acquire(context_, kCublasWorkspaceBytes, stream_));
            p.workspace = workspace_.data();
        }
        const Status status = context_.runtime.launch_cublas(p, device_, stream_.handle);
        if (status != CUKERN_OUT_OF_MEMORY) return status;
        context_.blocks.trim();  // the first product on a stream allocates a workspace
        return context_.runtime.launch_cublas(p, device_, stream_.handle);
    }

    Context &context_;
    const MatmulCall &call_;
    const int device_;
    const StreamRef stream_;
    ScratchBuffer a_block_;
    ScratchBuffer b_block_;
    ScratchBuffer out_block_;
    ScratchBuffer workspace_;
};

// What can be refused before anything is staged.
Status check_algorithm(const Context &context, const MatmulCall &call) noexcept {
    if (call.algorithm != MatmulAlgorithm::cublas) return CUKERN_OK;
    if (!is_floating(call.compute))
        return fail(CUKERN_NOT_SUPPORTED, "matmul_cublas: element type %s is not supported: float32, float64",
                    name_of(call.compute));
    return context.runtime.backend() == Backend::cuda ? open_cublas(nullptr) : CUKERN_OK;
}

}  // namespace

bool prefers_cublas(const MatmulCall &call) noexcept {
    Context *active = nullptr;
    return is_for_library(call, Backend::cuda) && context(&active) == CUKERN_OK &&
           active->runtime.backend() == Backend::cuda;
}

Status multiply(Context &context, const MatmulCall &call, const StreamRef &stream) noexcept {
    return Product(context, call, stream).run();
}

Status matmul(const MatmulCall &call, const Execution &where) noexcept {
    Context *active = nullptr;
    CUKERN_TRY(chosen_context(&active));
    CUKERN_TRY(check_algorithm(*active, call));
    const auto staged = [](const MatmulCall &own, int device, const auto &launch) {
        return is_in_panels(own, device) ? matmul_in_panels(own, device)
                                         : execute_staged(own, device, Staging::Uses::many, launch);
    };
    return execute(call, where, multiply, staged);
}

}  // namespace cukern
