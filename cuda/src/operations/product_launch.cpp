#include "operations/product_launch.h"

#include <utility>

namespace cukern {

ProductLaunch::ProductLaunch(ElementType compute, const TensorView &a, const TensorView &b, const TensorView &c,
                             bool by_cublas) noexcept
    : batch_(a, b, c) {
    Matrix of_a;
    Matrix of_b;
    Matrix of_c;
    as_matrix(a, &of_a);
    as_matrix(b, &of_b);
    as_matrix(c, &of_c);
    const std::int64_t rows = c.shape[c.ndim - 2];
    const std::int64_t columns = c.shape[c.ndim - 1];
    const int last = batch_.ndim - 1;
    const auto rows_follow = [&] {
        return last >= 0 && batch_.b[last] == 0 && batch_.a[last] == rows * of_a.ld &&
               batch_.c[last] == rows * of_c.ld && !of_a.transposed && !of_c.transposed;
    };
    if (!rows_follow()) batch_.put_longest_last();
    launch.type = compute;
    launch.result = c.type;
    launch.m = rows;
    launch.k = a.shape[a.ndim - 1];
    launch.n = columns;
    launch.batch = 1;
    // Steps backwards are a loop: cuBLAS does not tell whether it takes them.
    const bool is_loop =
        last >= 0 && by_cublas && (batch_.a[last] < 0 || batch_.b[last] < 0 || batch_.c[last] < 0);
    if (last >= 0 && rows_follow()) {  // one matrix with more rows
        launch.m *= batch_.shape[last];
    } else if (last >= 0 && !is_loop) {
        launch.batch = batch_.shape[last];
        launch.batch_a = batch_.a[last];
        launch.batch_b = batch_.b[last];
        launch.batch_c = batch_.c[last];
    }
    loops_ = last < 0 ? 0 : is_loop ? last + 1 : last;
    // A column-major result is the row-major result of the transposed operands in the other order.
    is_transposed_ = of_c.transposed;
    if (is_transposed_) {
        std::swap(of_a, of_b);
        std::swap(launch.m, launch.n);
        std::swap(launch.batch_a, launch.batch_b);
        of_a.transposed = !of_a.transposed;
        of_b.transposed = !of_b.transposed;
    }
    launch.lda = of_a.ld;
    launch.a_transposed = of_a.transposed;
    launch.ldb = of_b.ld;
    launch.b_transposed = of_b.transposed;
    launch.ldc = of_c.ld;
}

void ProductLaunch::go_to(void *a, void *b, void *c, const std::int64_t *index) noexcept {
    std::int64_t at_a = 0;
    std::int64_t at_b = 0;
    std::int64_t at_c = 0;
    for (int d = 0; d < loops_; ++d) {
        at_a += index[d] * batch_.a[d];
        at_b += index[d] * batch_.b[d];
        at_c += index[d] * batch_.c[d];
    }
    launch.a = static_cast<char *>(a) + at_a * size_of(launch.type);
    launch.b = static_cast<char *>(b) + at_b * size_of(launch.type);
    launch.c = static_cast<char *>(c) + at_c * size_of(launch.result);
    if (is_transposed_) std::swap(launch.a, launch.b);
}

bool ProductLaunch::next(std::int64_t *index) const noexcept {
    int d = loops_ - 1;
    for (; d >= 0 && ++index[d] == batch_.shape[d]; --d) index[d] = 0;
    return d >= 0;
}

Status ProductLauncher::acquire(std::int64_t bytes, MatmulLaunch *launch) noexcept {
    if (bytes == 0) return CUKERN_OK;
    CUKERN_TRY(memory_.acquire(context_, static_cast<std::size_t>(bytes), stream_));
    launch->scratch = memory_.data();
    return CUKERN_OK;
}

Status ProductLauncher::prepare(MatmulLaunch *launch) noexcept {
    if (!by_library_) {
        std::int64_t bytes = 0;
        CUKERN_TRY(context_.runtime.matmul_scratch(*launch, &bytes));
        Status status = acquire(bytes, launch);
        if (status != CUKERN_OUT_OF_MEMORY) return status;
        launch->saves_scratch = true;
        CUKERN_TRY(context_.runtime.matmul_scratch(*launch, &bytes));
        return acquire(bytes, launch);
    }
    if (context_.runtime.backend() == Backend::host) return CUKERN_OK;
    Capture capture;
    if (stream_.id != 0) CUKERN_TRY(context_.runtime.find_capture(stream_.handle, &capture));
    if (capture.is_active)  // a graph has one of its own
        CUKERN_TRY(memory_.acquire(context_, kCublasWorkspaceBytes, stream_));
    else
        CUKERN_TRY(context_.workspaces.begin(stream_, &workspace_));
    launch->workspace = capture.is_active ? memory_.data() : workspace_.data();
    launch->workspace_bytes = capture.is_active ? kCublasWorkspaceBytes : workspace_.bytes();
    return CUKERN_OK;
}

Status ProductLauncher::launch(const MatmulLaunch &launch) noexcept {
    if (!by_library_) return context_.runtime.launch_matmul(launch, stream_.handle);
    const Status status = context_.runtime.launch_cublas(launch, stream_.device, stream_.handle);
    if (status != CUKERN_OUT_OF_MEMORY) return status;
    context_.blocks.trim();  // cuBLAS allocates memory of its own for the first product on a device
    return context_.runtime.launch_cublas(launch, stream_.device, stream_.handle);
}

}  // namespace cukern
