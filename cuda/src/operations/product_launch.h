// Products as the launches that they come to.
#pragma once

#include "context/scratch_buffer.h"
#include "operations/matrix_layout.h"
#include "plan/launch.h"

namespace cukern {

// The products of all matrices of a batch: a launch has as many of them as lie at one step, and a loop goes over
// the other dimensions.
class ProductLaunch {
public:
    // Of operands that as_matrix takes: a and b of type `compute`, c of the type that sums are stored in.
    ProductLaunch(ElementType compute, const TensorView &a, const TensorView &b, const TensorView &c,
                  bool by_cublas) noexcept;

    bool is_single() const noexcept { return loops_ == 0; }
    // Whether the launch's a is b, and the other way round: c is the transpose of its result.
    bool is_transposed() const noexcept { return is_transposed_; }

    // Gives the launch its addresses: of operands at `a`, `b` and `c`, and the index of a loop.
    void go_to(void *a, void *b, void *c, const std::int64_t *index) noexcept;
    // Moves to the next index; false where that was the last one.
    bool next(std::int64_t *index) const noexcept;

    MatmulLaunch launch{};

private:
    Batch batch_;
    int loops_ = 0;  // dimensions of the batch that a loop goes over
    bool is_transposed_ = false;
};

// What the launches of one product share: the memory that they need beside operands.
class ProductLauncher {
public:
    // By cuBLAS, on the processor by NumPy's BLAS, or by kernels of our own.
    ProductLauncher(Context &context, const StreamRef &stream, bool by_library) noexcept
        : context_(context), stream_(stream), by_library_(by_library) {}

    Status prepare(MatmulLaunch *launch) noexcept;
    Status launch(const MatmulLaunch &launch) noexcept;

private:
    Status acquire(std::int64_t bytes, MatmulLaunch *launch) noexcept;

    Context &context_;
    const StreamRef stream_;
    const bool by_library_;
    ScratchBuffer memory_;
    Workspaces::Use workspace_;
};

}  // namespace cukern
