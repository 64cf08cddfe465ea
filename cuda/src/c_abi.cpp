// The C ABI: pointers in, a status out. The elementwise functions are made from ops.def.
#include "cukern/cukern.h"

#include <utility>
#include <cstring>

#include "cukern/backend.h"
#include "cukern/operations.h"
#include "cukern/overlap.h"

namespace cukern {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 62;  // an address and so many bytes still fit in 64 bits

template <typename T>
Status check_pointer(const T *data, bool empty, const char *name) noexcept {
    if (data == nullptr && !empty) return fail(CUKERN_INVALID_ARGUMENT, "%s is NULL", name);
    if (reinterpret_cast<std::uintptr_t>(data) % sizeof(T) != 0)
        return fail(CUKERN_INVALID_ARGUMENT, "%s is not aligned to its elements of %zu bytes", name, sizeof(T));
    return CUKERN_OK;
}

template <typename T>
Status vector_view(const T *data, std::size_t n, const char *name, TensorView *view) noexcept {
    if (n > kMostBytes / sizeof(T)) return fail(CUKERN_INVALID_ARGUMENT, "n is %zu: too many elements", n);
    CUKERN_TRY(check_pointer(data, n == 0, name));
    view->data = const_cast<T *>(data);
    view->type = ElementTypeOf<T>::value;
    view->ndim = 1;
    view->shape[0] = static_cast<std::int64_t>(n);
    view->strides[0] = 1;
    return CUKERN_OK;
}

template <typename T>
Status strided_view(const T *data, const std::int64_t *strides, const std::int64_t *shape, int ndim,
                    const char *name, TensorView *view) noexcept {
    if (ndim < 0 || ndim > kMaxDims)
        return fail(CUKERN_INVALID_ARGUMENT, "ndim is %d; expected 0 to %d", ndim, kMaxDims);
    if (ndim > 0 && (shape == nullptr || strides == nullptr))
        return fail(CUKERN_INVALID_ARGUMENT, "%s of %s is NULL", shape == nullptr ? "the shape" : "the strides",
                    name);
    std::int64_t bytes = 0;
    if (!checked_bytes(shape, ndim, sizeof(T), &bytes))
        return fail(CUKERN_INVALID_ARGUMENT, "the shape of %s has a negative length or too many elements", name);
    CUKERN_TRY(check_pointer(data, bytes == 0, name));
    view->data = const_cast<T *>(data);
    view->type = ElementTypeOf<T>::value;
    view->ndim = ndim;
    for (int i = 0; i < ndim; ++i) {
        view->shape[i] = shape[i];
        view->strides[i] = strides[i];
    }
    return CUKERN_OK;
}

template <typename T>
void immediate_view(T value, TensorView *view) noexcept {
    view->type = ElementTypeOf<T>::value;
    view->immediate = true;
    std::memcpy(view->value.bytes, &value, sizeof value);
}

ByteLayout bytes_at(const TensorView &view, const std::int64_t *shape, const std::int64_t *strides) noexcept {
    return {view.data, size_of(view.type), 1, shape, strides};
}

// Packed arrays: the same start and element size, or no byte in common.
Status check_overlap(const TensorView &out, const TensorView &in, const char *name, bool same_allowed) noexcept {
    if (in.immediate) return CUKERN_OK;
    const std::int64_t out_shape = count_of(out);
    const std::int64_t in_shape = count_of(in);
    const std::int64_t out_stride = size_of(out.type);
    const std::int64_t in_stride = size_of(in.type);
    const ByteLayout x = bytes_at(out, &out_shape, &out_stride);
    const ByteLayout y = bytes_at(in, &in_shape, &in_stride);
    if ((same_allowed && identical(x, y)) || !overlaps(x, y)) return CUKERN_OK;
    return fail(CUKERN_INVALID_ARGUMENT, "out overlaps %s", name);
}

// The views of a call. A unary operation has no second input; what a choice and axpy have first is in `control`.
struct Views {
    TensorView control;
    TensorView a;
    TensorView b;
    TensorView out;
};

// C has no bool of a known size: its results are bytes.
Status make_call(Op op, Views &views, ElementwiseCall *call) noexcept {
    call->op = op;
    call->compute = compute_type(op, views.a.type, views.a.type);
    if (!takes(op, call->compute))
        return fail(CUKERN_NOT_SUPPORTED, "%s is not defined for element type %s", info(op).name,
                    name_of(views.a.type));
    if (returns_bool(info(op).rule)) views.out.type = ElementType::bool_;
    const TensorView *const inputs[] = {&views.control, &views.a, &views.b};
    for (int i = 0; i < arity(op); ++i) call->inputs[i] = inputs[arity(op) == 3 ? i : i + 1];
    call->out = &views.out;
    return CUKERN_OK;
}

Status run_on_host(Op op, Views &views) noexcept {
    ElementwiseCall call;
    CUKERN_TRY(make_call(op, views, &call));
    CUKERN_TRY(check_overlap(views.out, views.a, "a", true));
    if (arity(op) > 1) CUKERN_TRY(check_overlap(views.out, views.b, "b", true));
    if (arity(op) > 2) CUKERN_TRY(check_overlap(views.out, views.control, "condition", true));
    return elementwise(call, Execution{});
}

Status run_on_device(Op op, Views &views, int device, void *stream) noexcept {
    ElementwiseCall call;
    CUKERN_TRY(make_call(op, views, &call));
    StreamRef ref;
    CUKERN_TRY(stream_ref(stream, device, &ref));
    return elementwise(call, {true, ref});
}

template <typename T, typename R>
Status binary(Op op, const T *a, const T *b, R *out, std::size_t n) noexcept {
    Views views;
    CUKERN_TRY(vector_view(a, n, "a", &views.a));
    CUKERN_TRY(vector_view(b, n, "b", &views.b));
    CUKERN_TRY(vector_view(out, n, "out", &views.out));
    return run_on_host(op, views);
}

template <typename T, typename R>
Status scalar(Op op, const T *a, T factor, R *out, std::size_t n) noexcept {
    Views views;
    CUKERN_TRY(vector_view(a, n, "a", &views.a));
    CUKERN_TRY(vector_view(out, n, "out", &views.out));
    immediate_view(factor, &views.b);
    return run_on_host(op, views);
}

template <typename T, typename R>
Status unary(Op op, const T *a, R *out, std::size_t n) noexcept {
    Views views;
    CUKERN_TRY(vector_view(a, n, "a", &views.a));
    CUKERN_TRY(vector_view(out, n, "out", &views.out));
    return run_on_host(op, views);
}

template <typename T, typename R>
Status choice(Op op, const std::uint8_t *condition, const T *a, const T *b, R *out, std::size_t n) noexcept {
    Views views;
    CUKERN_TRY(vector_view(condition, n, "condition", &views.control));
    CUKERN_TRY(vector_view(a, n, "a", &views.a));
    CUKERN_TRY(vector_view(b, n, "b", &views.b));
    CUKERN_TRY(vector_view(out, n, "out", &views.out));
    return run_on_host(op, views);
}

template <typename T, typename R>
Status axpy(Op op, T a, const T *x, const T *y, R *out, std::size_t n) noexcept {
    Views views;
    immediate_view(a, &views.control);
    CUKERN_TRY(vector_view(x, n, "x", &views.a));
    CUKERN_TRY(vector_view(y, n, "y", &views.b));
    CUKERN_TRY(vector_view(out, n, "out", &views.out));
    return run_on_host(op, views);
}

// One result of n elements.
template <typename T, typename R>
Status reduction(Op op, const T *a, R *out, std::size_t n) noexcept {
    Views views;
    CUKERN_TRY(vector_view(a, n, "a", &views.a));
    CUKERN_TRY(vector_view(out, 1, "out", &views.out));
    if (n == 0 && !has_identity(op))
        return fail(CUKERN_INVALID_ARGUMENT, "n is 0: %s has no identity", info(op).name);
    ElementwiseCall typed;
    CUKERN_TRY(make_call(op, views, &typed));
    CUKERN_TRY(check_overlap(views.out, views.a, "a", false));
    views.out.ndim = 0;
    ReduceCall call;
    call.op = op;
    call.compute = typed.compute;
    call.inputs[0] = &views.a;
    call.out = &views.out;
    call.reduced[0] = true;
    return reduce(call, Execution{});
}

template <typename T, typename R>
Status reduction_on_device(Op op, const T *a, const std::int64_t *a_strides, const std::int64_t *shape, int ndim,
                           const int *axes, int num_axes, R *out, int device, void *stream) noexcept {
    Views views;
    CUKERN_TRY(strided_view(a, a_strides, shape, ndim, "a", &views.a));
    ReduceCall call;
    if (num_axes < 0 || num_axes > ndim)
        return fail(CUKERN_INVALID_ARGUMENT, "num_axes is %d; expected 0 to %d", num_axes, ndim);
    if (axes == nullptr && num_axes > 0)
        return fail(CUKERN_INVALID_ARGUMENT, "axes is null, and num_axes is %d", num_axes);
    for (int i = 0; i < num_axes; ++i) {
        if (axes[i] < 0 || axes[i] >= ndim)
            return fail(CUKERN_INVALID_ARGUMENT, "axes[%d] is %d; expected 0 to %d", i, axes[i], ndim - 1);
        if (std::exchange(call.reduced[axes[i]], true))
            return fail(CUKERN_INVALID_ARGUMENT, "axes[%d] is %d, which is given twice", i, axes[i]);
    }
    std::int64_t kept[kMaxDims];
    int num_kept = 0;
    std::int64_t reduced = 1;
    for (int d = 0; d < ndim; ++d) {
        if (call.reduced[d])
            reduced *= shape[d];
        else
            kept[num_kept++] = shape[d];
    }
    if (reduced == 0 && !has_identity(op))
        return fail(CUKERN_INVALID_ARGUMENT, "no elements: %s has no identity", info(op).name);
    CUKERN_TRY(strided_view(out, kept, kept, num_kept, "out", &views.out));
    set_contiguous(views.out);
    ElementwiseCall typed;
    CUKERN_TRY(make_call(op, views, &typed));
    call.op = op;
    call.compute = typed.compute;
    call.inputs[0] = &views.a;
    call.out = &views.out;
    StreamRef ref;
    CUKERN_TRY(stream_ref(stream, device, &ref));
    return reduce(call, {true, ref});
}

template <typename T>
Status matrix_view(const T *data, const std::int64_t *strides, std::int64_t rows, std::int64_t columns,
                   const char *name, TensorView *view) noexcept {
    const std::int64_t shape[] = {rows, columns};
    const std::int64_t packed[] = {columns, 1};
    return strided_view(data, strides == nullptr ? packed : strides, shape, 2, name, view);
}

template <typename T>
Status product(MatmulAlgorithm algorithm, const T *a, const T *b, T *out, std::int64_t m, std::int64_t k,
               std::int64_t n) noexcept {
    TensorView x;
    TensorView y;
    TensorView z;
    CUKERN_TRY(matrix_view(a, nullptr, m, k, "a", &x));
    CUKERN_TRY(matrix_view(b, nullptr, k, n, "b", &y));
    CUKERN_TRY(matrix_view(out, nullptr, m, n, "out", &z));
    CUKERN_TRY(check_overlap(z, x, "a", false));
    CUKERN_TRY(check_overlap(z, y, "b", false));
    MatmulCall call;
    call.algorithm = algorithm;
    call.compute = ElementTypeOf<T>::value;
    call.inputs[0] = &x;
    call.inputs[1] = &y;
    call.out = &z;
    return matmul(call, Execution{});
}

template <typename T>
Status product_on_device(MatmulAlgorithm algorithm, const T *a, const std::int64_t *a_strides, const T *b,
                         const std::int64_t *b_strides, T *out, const std::int64_t *out_strides, std::int64_t m,
                         std::int64_t k, std::int64_t n, int device, void *stream) noexcept {
    TensorView x;
    TensorView y;
    TensorView z;
    CUKERN_TRY(matrix_view(a, a_strides, m, k, "a", &x));
    CUKERN_TRY(matrix_view(b, b_strides, k, n, "b", &y));
    CUKERN_TRY(matrix_view(out, out_strides, m, n, "out", &z));
    MatmulCall call;
    call.algorithm = algorithm;
    call.compute = ElementTypeOf<T>::value;
    call.inputs[0] = &x;
    call.inputs[1] = &y;
    call.out = &z;
    StreamRef ref;
    CUKERN_TRY(stream_ref(stream, device, &ref));
    return matmul(call, {true, ref});
}

}  // namespace
}  // namespace cukern

using namespace cukern;  // NOLINT(google-build-using-namespace): the definitions below are all extern "C"

extern "C" {

const char *cukern_status_string(cukern_status status) { return status_text(status); }

const cukern_error *cukern_last_error(void) {
    thread_local cukern_error error;
    const ErrorRecord &record = last_error();
    error = {record.status, record.code, record.name, record.api, record.message};
    return &error;
}

const char *cukern_backend(void) {
    BackendInfo info;
    return backend_info(&info) == CUKERN_OK ? name_of(info.backend) : nullptr;
}

cukern_status cukern_set_cublas_path(const char *path) { return open_cublas(path); }

#define CUKERN_DEFINE_binary(id, T, S, R)                                                       \
    cukern_status CUKERN_SIGNATURE_binary(id, T, S, R) { return binary(Op::id, a, b, out, n); } \
    cukern_status CUKERN_SIGNATURE_DEV_binary(id, T, S, R) {                                    \
        Views views;                                                                            \
        CUKERN_TRY(strided_view(a, a_strides, shape, ndim, "a", &views.a));                     \
        CUKERN_TRY(strided_view(b, b_strides, shape, ndim, "b", &views.b));                     \
        CUKERN_TRY(strided_view(out, out_strides, shape, ndim, "out", &views.out));             \
        return run_on_device(Op::id, views, device, stream);                                    \
    }
#define CUKERN_DEFINE_scalar(id, T, S, R)                                                            \
    cukern_status CUKERN_SIGNATURE_scalar(id, T, S, R) { return scalar(Op::id, a, factor, out, n); } \
    cukern_status CUKERN_SIGNATURE_DEV_scalar(id, T, S, R) {                                         \
        Views views;                                                                                 \
        CUKERN_TRY(strided_view(a, a_strides, shape, ndim, "a", &views.a));                          \
        CUKERN_TRY(strided_view(out, out_strides, shape, ndim, "out", &views.out));                  \
        immediate_view(factor, &views.b);                                                            \
        return run_on_device(Op::id, views, device, stream);                                         \
    }
#define CUKERN_DEFINE_unary(id, T, S, R)                                                   \
    cukern_status CUKERN_SIGNATURE_unary(id, T, S, R) { return unary(Op::id, a, out, n); } \
    cukern_status CUKERN_SIGNATURE_DEV_unary(id, T, S, R) {                                \
        Views views;                                                                       \
        CUKERN_TRY(strided_view(a, a_strides, shape, ndim, "a", &views.a));                \
        CUKERN_TRY(strided_view(out, out_strides, shape, ndim, "out", &views.out));        \
        return run_on_device(Op::id, views, device, stream);                               \
    }
#define CUKERN_DEFINE_choice(id, T, S, R)                                                                  \
    cukern_status CUKERN_SIGNATURE_choice(id, T, S, R) { return choice(Op::id, condition, a, b, out, n); } \
    cukern_status CUKERN_SIGNATURE_DEV_choice(id, T, S, R) {                                               \
        Views views;                                                                                       \
        CUKERN_TRY(strided_view(condition, condition_strides, shape, ndim, "condition", &views.control));  \
        CUKERN_TRY(strided_view(a, a_strides, shape, ndim, "a", &views.a));                                \
        CUKERN_TRY(strided_view(b, b_strides, shape, ndim, "b", &views.b));                                \
        CUKERN_TRY(strided_view(out, out_strides, shape, ndim, "out", &views.out));                        \
        return run_on_device(Op::id, views, device, stream);                                               \
    }
#define CUKERN_DEFINE_axpy(id, T, S, R)                                                        \
    cukern_status CUKERN_SIGNATURE_axpy(id, T, S, R) { return axpy(Op::id, a, x, y, out, n); } \
    cukern_status CUKERN_SIGNATURE_DEV_axpy(id, T, S, R) {                                     \
        Views views;                                                                           \
        immediate_view(a, &views.control);                                                     \
        CUKERN_TRY(strided_view(x, x_strides, shape, ndim, "x", &views.a));                    \
        CUKERN_TRY(strided_view(y, y_strides, shape, ndim, "y", &views.b));                    \
        CUKERN_TRY(strided_view(out, out_strides, shape, ndim, "out", &views.out));            \
        return run_on_device(Op::id, views, device, stream);                                   \
    }
#define CUKERN_DEFINE_reduction(id, T, S, R)                                                                \
    cukern_status CUKERN_SIGNATURE_reduction(id, T, S, R) { return reduction(Op::id, a, out, n); }          \
    cukern_status CUKERN_SIGNATURE_DEV_reduction(id, T, S, R) {                                             \
        return reduction_on_device(Op::id, a, a_strides, shape, ndim, axes, num_axes, out, device, stream); \
    }
#define CUKERN_OP(id, kind, types, rule, doc)                                  \
    CUKERN_DEFINE_##kind(id, float, f32, CUKERN_RESULT_##rule##_f32)           \
        CUKERN_DEFINE_##kind(id, double, f64, CUKERN_RESULT_##rule##_f64)      \
            CUKERN_DEFINE_##kind(id, int32_t, i32, CUKERN_RESULT_##rule##_i32) \
                CUKERN_DEFINE_##kind(id, int64_t, i64, CUKERN_RESULT_##rule##_i64)
#include "cukern/ops.def"
#undef CUKERN_OP

#define CUKERN_DEFINE_MATMUL(name, algorithm, T, S)                                                              \
    cukern_status CUKERN_SIGNATURE_MATMUL(name, T, S) {                                                          \
        return product(MatmulAlgorithm::algorithm, a, b, out, m, k, n);                                          \
    }                                                                                                            \
    cukern_status CUKERN_SIGNATURE_MATMUL_DEV(name, T, S) {                                                      \
        return product_on_device(MatmulAlgorithm::algorithm, a, a_strides, b, b_strides, out, out_strides, m, k, \
                                 n, device, stream);                                                             \
    }
CUKERN_DEFINE_MATMUL(matmul, automatic, float, f32)
CUKERN_DEFINE_MATMUL(matmul, automatic, double, f64)
CUKERN_DEFINE_MATMUL(matmul, automatic, int32_t, i32)
CUKERN_DEFINE_MATMUL(matmul, automatic, int64_t, i64)
CUKERN_DEFINE_MATMUL(matmul_tiled, tiled, float, f32)
CUKERN_DEFINE_MATMUL(matmul_tiled, tiled, double, f64)
CUKERN_DEFINE_MATMUL(matmul_tiled, tiled, int32_t, i32)
CUKERN_DEFINE_MATMUL(matmul_tiled, tiled, int64_t, i64)
CUKERN_DEFINE_MATMUL(matmul_cublas, cublas, float, f32)
CUKERN_DEFINE_MATMUL(matmul_cublas, cublas, double, f64)

}  // extern "C"
