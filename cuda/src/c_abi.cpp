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

// What a function of the table is made for: an operation, and the types of its inputs and of its results.
struct Row {
    Op op;
    ElementType in;
    ElementType out;
};

template <typename T, typename R>
constexpr Row row_of(Op op) noexcept {
    return {op, ElementTypeOf<T>::value, ElementTypeOf<R>::value};
}

// An array; strides are null in the host's memory, where arrays are packed.
struct Strided {
    const void *data;
    const std::int64_t *strides;
};

Status check_pointer(const void *data, ElementType type, bool empty, const char *name) noexcept {
    if (data == nullptr && !empty) return fail(CUKERN_INVALID_ARGUMENT, "%s is NULL", name);
    if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(size_of(type)) != 0)
        return fail(CUKERN_INVALID_ARGUMENT, "%s is not aligned to its elements of %d bytes", name, size_of(type));
    return CUKERN_OK;
}

Status vector_view(const void *data, ElementType type, std::size_t n, const char *name,
                   TensorView *view) noexcept {
    if (n > kMostBytes / static_cast<std::size_t>(size_of(type)))
        return fail(CUKERN_INVALID_ARGUMENT, "n is %zu: too many elements", n);
    CUKERN_TRY(check_pointer(data, type, n == 0, name));
    view->data = const_cast<void *>(data);
    view->type = type;
    view->ndim = 1;
    view->shape[0] = static_cast<std::int64_t>(n);
    view->strides[0] = 1;
    return CUKERN_OK;
}

Status strided_view(const Strided &array, ElementType type, const std::int64_t *shape, int ndim, const char *name,
                    TensorView *view) noexcept {
    if (ndim < 0 || ndim > kMaxDims)
        return fail(CUKERN_INVALID_ARGUMENT, "ndim is %d; expected 0 to %d", ndim, kMaxDims);
    if (ndim > 0 && (shape == nullptr || array.strides == nullptr))
        return fail(CUKERN_INVALID_ARGUMENT, "%s of %s is NULL", shape == nullptr ? "the shape" : "the strides",
                    name);
    std::int64_t bytes = 0;
    if (!checked_bytes(shape, ndim, size_of(type), &bytes))
        return fail(CUKERN_INVALID_ARGUMENT, "the shape of %s has a negative length or too many elements", name);
    CUKERN_TRY(check_pointer(array.data, type, bytes == 0, name));
    view->data = const_cast<void *>(array.data);
    view->type = type;
    view->ndim = ndim;
    for (int i = 0; i < ndim; ++i) {
        view->shape[i] = shape[i];
        view->strides[i] = array.strides[i];
    }
    return CUKERN_OK;
}

// `value`: one element.
void immediate_view(const void *value, ElementType type, TensorView *view) noexcept {
    view->type = type;
    view->immediate = true;
    std::memcpy(view->value.bytes, value, static_cast<std::size_t>(size_of(type)));
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

// Where a function finds its arrays: n elements each in the host's memory, packed, or of a shape on a device.
class Place {
public:
    explicit Place(std::size_t n) noexcept : n_(n) {}
    Place(const std::int64_t *shape, int ndim, int device, void *stream) noexcept
        : on_device_(true), shape_(shape), ndim_(ndim), device_(device), stream_(stream) {}

    const std::int64_t *shape() const noexcept { return shape_; }
    int ndim() const noexcept { return ndim_; }

    Status view(const Strided &array, ElementType type, const char *name, TensorView *view) const noexcept {
        return on_device_ ? strided_view(array, type, shape_, ndim_, name, view)
                          : vector_view(array.data, type, n_, name, view);
    }
    Status stream(StreamRef *ref) const noexcept { return stream_ref(stream_, device_, ref); }

    Status run(Op op, Views &views) const noexcept {
        ElementwiseCall call;
        CUKERN_TRY(make_call(op, views, &call));
        if (on_device_) {
            StreamRef ref;
            CUKERN_TRY(stream(&ref));
            return elementwise(call, {true, ref});
        }
        CUKERN_TRY(check_overlap(views.out, views.a, "a", true));
        if (arity(op) > 1) CUKERN_TRY(check_overlap(views.out, views.b, "b", true));
        if (arity(op) > 2) CUKERN_TRY(check_overlap(views.out, views.control, "condition", true));
        return elementwise(call, Execution{});
    }

private:
    bool on_device_ = false;
    std::size_t n_ = 0;
    const std::int64_t *shape_ = nullptr;
    int ndim_ = 0;
    int device_ = 0;
    void *stream_ = nullptr;
};

Status unary(Row row, Strided a, Strided out, const Place &place) noexcept {
    Views views;
    CUKERN_TRY(place.view(a, row.in, "a", &views.a));
    CUKERN_TRY(place.view(out, row.out, "out", &views.out));
    return place.run(row.op, views);
}

Status binary(Row row, Strided a, Strided b, Strided out, const Place &place) noexcept {
    Views views;
    CUKERN_TRY(place.view(a, row.in, "a", &views.a));
    CUKERN_TRY(place.view(b, row.in, "b", &views.b));
    CUKERN_TRY(place.view(out, row.out, "out", &views.out));
    return place.run(row.op, views);
}

Status scalar(Row row, Strided a, const void *factor, Strided out, const Place &place) noexcept {
    Views views;
    CUKERN_TRY(place.view(a, row.in, "a", &views.a));
    CUKERN_TRY(place.view(out, row.out, "out", &views.out));
    immediate_view(factor, row.in, &views.b);
    return place.run(row.op, views);
}

Status choice(Row row, Strided condition, Strided a, Strided b, Strided out, const Place &place) noexcept {
    Views views;
    CUKERN_TRY(place.view(condition, ElementType::uint8, "condition", &views.control));
    CUKERN_TRY(place.view(a, row.in, "a", &views.a));
    CUKERN_TRY(place.view(b, row.in, "b", &views.b));
    CUKERN_TRY(place.view(out, row.out, "out", &views.out));
    return place.run(row.op, views);
}

Status axpy(Row row, const void *a, Strided x, Strided y, Strided out, const Place &place) noexcept {
    Views views;
    immediate_view(a, row.in, &views.control);
    CUKERN_TRY(place.view(x, row.in, "x", &views.a));
    CUKERN_TRY(place.view(y, row.in, "y", &views.b));
    CUKERN_TRY(place.view(out, row.out, "out", &views.out));
    return place.run(row.op, views);
}

// One result of n elements.
Status reduction(Row row, const void *a, void *out, std::size_t n) noexcept {
    Views views;
    CUKERN_TRY(vector_view(a, row.in, n, "a", &views.a));
    CUKERN_TRY(vector_view(out, row.out, 1, "out", &views.out));
    if (n == 0 && !has_identity(row.op))
        return fail(CUKERN_INVALID_ARGUMENT, "n is 0: %s has no identity", info(row.op).name);
    ElementwiseCall typed;
    CUKERN_TRY(make_call(row.op, views, &typed));
    CUKERN_TRY(check_overlap(views.out, views.a, "a", false));
    views.out.ndim = 0;
    ReduceCall call;
    call.op = row.op;
    call.compute = typed.compute;
    call.inputs[0] = &views.a;
    call.out = &views.out;
    call.reduced[0] = true;
    return reduce(call, Execution{});
}

// `out` is packed.
Status reduction_on_device(Row row, Strided a, const int *axes, int num_axes, void *out,
                           const Place &place) noexcept {
    const std::int64_t *const shape = place.shape();
    const int ndim = place.ndim();
    Views views;
    CUKERN_TRY(place.view(a, row.in, "a", &views.a));
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
    if (reduced == 0 && !has_identity(row.op))
        return fail(CUKERN_INVALID_ARGUMENT, "no elements: %s has no identity", info(row.op).name);
    CUKERN_TRY(strided_view({out, kept}, row.out, kept, num_kept, "out", &views.out));
    set_contiguous(views.out);
    ElementwiseCall typed;
    CUKERN_TRY(make_call(row.op, views, &typed));
    call.op = row.op;
    call.compute = typed.compute;
    call.inputs[0] = &views.a;
    call.out = &views.out;
    StreamRef ref;
    CUKERN_TRY(place.stream(&ref));
    return reduce(call, {true, ref});
}

// Null strides: packed rows.
Status matrix_view(Strided array, ElementType type, std::int64_t rows, std::int64_t columns, const char *name,
                   TensorView *view) noexcept {
    const std::int64_t shape[] = {rows, columns};
    const std::int64_t packed[] = {columns, 1};
    if (array.strides == nullptr) array.strides = packed;
    return strided_view(array, type, shape, 2, name, view);
}

// Of a product: `a` is of m rows and k columns, `b` of k and n.
struct Product {
    MatmulAlgorithm algorithm;
    ElementType type;
    std::int64_t m;
    std::int64_t k;
    std::int64_t n;
};

struct Matrices {
    TensorView a;
    TensorView b;
    TensorView out;
};

Status make_product(const Product &of, Strided a, Strided b, Strided out, Matrices *views,
                    MatmulCall *call) noexcept {
    CUKERN_TRY(matrix_view(a, of.type, of.m, of.k, "a", &views->a));
    CUKERN_TRY(matrix_view(b, of.type, of.k, of.n, "b", &views->b));
    CUKERN_TRY(matrix_view(out, of.type, of.m, of.n, "out", &views->out));
    call->algorithm = of.algorithm;
    call->compute = of.type;
    call->inputs[0] = &views->a;
    call->inputs[1] = &views->b;
    call->out = &views->out;
    return CUKERN_OK;
}

Status product(const Product &of, const void *a, const void *b, void *out) noexcept {
    Matrices views;
    MatmulCall call;
    CUKERN_TRY(make_product(of, {a, nullptr}, {b, nullptr}, {out, nullptr}, &views, &call));
    CUKERN_TRY(check_overlap(views.out, views.a, "a", false));
    CUKERN_TRY(check_overlap(views.out, views.b, "b", false));
    return matmul(call, Execution{});
}

Status product_on_device(const Product &of, Strided a, Strided b, Strided out, int device, void *stream) noexcept {
    Matrices views;
    MatmulCall call;
    CUKERN_TRY(make_product(of, a, b, out, &views, &call));
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

#define CUKERN_DEFINE_binary(id, T, S, R)                                                          \
    cukern_status CUKERN_SIGNATURE_binary(id, T, S, R) {                                           \
        return binary(row_of<T, R>(Op::id), {a, nullptr}, {b, nullptr}, {out, nullptr}, Place(n)); \
    }                                                                                              \
    cukern_status CUKERN_SIGNATURE_DEV_binary(id, T, S, R) {                                       \
        return binary(row_of<T, R>(Op::id), {a, a_strides}, {b, b_strides}, {out, out_strides},    \
                      Place(shape, ndim, device, stream));                                         \
    }
#define CUKERN_DEFINE_scalar(id, T, S, R)                                                     \
    cukern_status CUKERN_SIGNATURE_scalar(id, T, S, R) {                                      \
        return scalar(row_of<T, R>(Op::id), {a, nullptr}, &factor, {out, nullptr}, Place(n)); \
    }                                                                                         \
    cukern_status CUKERN_SIGNATURE_DEV_scalar(id, T, S, R) {                                  \
        return scalar(row_of<T, R>(Op::id), {a, a_strides}, &factor, {out, out_strides},      \
                      Place(shape, ndim, device, stream));                                    \
    }
#define CUKERN_DEFINE_unary(id, T, S, R)                                            \
    cukern_status CUKERN_SIGNATURE_unary(id, T, S, R) {                             \
        return unary(row_of<T, R>(Op::id), {a, nullptr}, {out, nullptr}, Place(n)); \
    }                                                                               \
    cukern_status CUKERN_SIGNATURE_DEV_unary(id, T, S, R) {                         \
        return unary(row_of<T, R>(Op::id), {a, a_strides}, {out, out_strides},      \
                     Place(shape, ndim, device, stream));                           \
    }
#define CUKERN_DEFINE_choice(id, T, S, R)                                                                     \
    cukern_status CUKERN_SIGNATURE_choice(id, T, S, R) {                                                      \
        return choice(row_of<T, R>(Op::id), {condition, nullptr}, {a, nullptr}, {b, nullptr}, {out, nullptr}, \
                      Place(n));                                                                              \
    }                                                                                                         \
    cukern_status CUKERN_SIGNATURE_DEV_choice(id, T, S, R) {                                                  \
        return choice(row_of<T, R>(Op::id), {condition, condition_strides}, {a, a_strides}, {b, b_strides},   \
                      {out, out_strides}, Place(shape, ndim, device, stream));                                \
    }
#define CUKERN_DEFINE_axpy(id, T, S, R)                                                              \
    cukern_status CUKERN_SIGNATURE_axpy(id, T, S, R) {                                               \
        return axpy(row_of<T, R>(Op::id), &a, {x, nullptr}, {y, nullptr}, {out, nullptr}, Place(n)); \
    }                                                                                                \
    cukern_status CUKERN_SIGNATURE_DEV_axpy(id, T, S, R) {                                           \
        return axpy(row_of<T, R>(Op::id), &a, {x, x_strides}, {y, y_strides}, {out, out_strides},    \
                    Place(shape, ndim, device, stream));                                             \
    }
#define CUKERN_DEFINE_reduction(id, T, S, R)                                                                     \
    cukern_status CUKERN_SIGNATURE_reduction(id, T, S, R) { return reduction(row_of<T, R>(Op::id), a, out, n); } \
    cukern_status CUKERN_SIGNATURE_DEV_reduction(id, T, S, R) {                                                  \
        return reduction_on_device(row_of<T, R>(Op::id), {a, a_strides}, axes, num_axes, out,                    \
                                   Place(shape, ndim, device, stream));                                          \
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
        return product({MatmulAlgorithm::algorithm, ElementTypeOf<T>::value, m, k, n}, a, b, out);               \
    }                                                                                                            \
    cukern_status CUKERN_SIGNATURE_MATMUL_DEV(name, T, S) {                                                      \
        return product_on_device({MatmulAlgorithm::algorithm, ElementTypeOf<T>::value, m, k, n}, {a, a_strides}, \
                                 {b, b_strides}, {out, out_strides}, device, stream);                            \
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
