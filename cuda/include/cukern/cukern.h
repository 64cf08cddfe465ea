/* The C ABI of cukern: array operations on host memory and on device memory, without Python.
 *
 * Every function returns a cukern_status; CUKERN_OK is 0. What failed is told by cukern_last_error(), which
 * is the calling thread's own. No function prints, exits or throws.
 *
 * Names end in the element type: f32 float, f64 double, i32 int32_t, i64 int64_t.
 *
 * Host functions take C-contiguous arrays in host memory and return when `out` holds the result. `out` may
 * be exactly an input of elementwise operations; it must not overlap one in any other way.
 *
 * The `_dev` functions take memory that the device can reach, shapes and strides (in elements, negative and
 * zero ones included), the device's index and a stream (a cudaStream_t; NULL is the legacy default stream).
 * They enqueue and return without waiting. Overlap of `out` with an input is not checked there. */
#ifndef CUKERN_CUKERN_H
#define CUKERN_CUKERN_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define CUKERN_API
#else
#define CUKERN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cukern_status {
    CUKERN_OK = 0,
    CUKERN_INVALID_ARGUMENT = 1,  /* a shape, stride, pointer or overlap that an operation does not take */
    CUKERN_OUT_OF_MEMORY = 2,     /* of the device or of pinned host memory */
    CUKERN_CUDA_ERROR = 3,        /* CUDA or cuBLAS failed: cukern_last_error() has its code and name */
    CUKERN_DEVICE_LOST = 4,       /* an earlier error has poisoned the context: start a new process */
    CUKERN_NOT_SUPPORTED = 5,     /* this element type or back-end does not have the operation */
    CUKERN_LIBRARY_NOT_FOUND = 6, /* cuBLAS or NVRTC could not be opened */
    CUKERN_FORKED = 7,            /* the process was forked after the GPU was used */
    CUKERN_NO_BACKEND = 8,        /* CUKERN_BACKEND asks for what is not there */
    CUKERN_INTERNAL = 9,          /* a defect of cukern */
    CUKERN_CAPTURING = 10,        /* the stream is being captured, and the call needs what a graph cannot hold */
    CUKERN_INTERRUPTED = 11       /* who waits for the work has asked for its end */
} cukern_status;

/* The calling thread's last failure; valid until its next failure. */
typedef struct cukern_error {
    cukern_status status;
    int code;            /* CUDA's or cuBLAS's own code, else 0 */
    const char *name;    /* its name, such as "cudaErrorInvalidValue", else "" */
    const char *api;     /* the call that failed, such as "cudaMalloc", else "" */
    const char *message; /* a sentence that says what was wrong */
} cukern_error;

CUKERN_API const char *cukern_status_string(cukern_status status);
CUKERN_API const cukern_error *cukern_last_error(void);

/* The back-end in use: "cuda" or "host"; NULL when CUKERN_BACKEND asks for what is not there. */
CUKERN_API const char *cukern_backend(void);

/* Opens cuBLAS from `path`; without a call of this its usual names are tried when it is first needed. */
CUKERN_API cukern_status cukern_set_cublas_path(const char *path);

/* Elementwise operations, made from ops.def. For each row and element type T, with R its result type:
 *   cukern_add_f32(const T *a, const T *b, R *out, size_t n)                          kind binary
 *   cukern_scale_f32(const T *a, T factor, R *out, size_t n)                          kind scalar
 *   cukern_add_f32_dev(const T *a, const int64_t *a_strides, const T *b, const int64_t *b_strides,
 *                      R *out, const int64_t *out_strides, const int64_t *shape, int ndim,
 *                      int device, void *stream)
 *   cukern_scale_f32_dev(const T *a, const int64_t *a_strides, T factor, R *out, ...)  likewise
 *   cukern_exp_f32(const T *a, R *out, size_t n)                                      kind unary
 *   cukern_where_f32(const uint8_t *condition, const T *a, const T *b, R *out, size_t n)
 *   cukern_axpy_f32(T a, const T *x, const T *y, R *out, size_t n)
 *   cukern_sum_f32(const T *a, R *out, size_t n)                                      kind reduction, of all
 *   cukern_sum_f32_dev(const T *a, const int64_t *a_strides, const int64_t *shape, int ndim,
 *                      const int *axes, int num_axes, R *out, int device, void *stream)
 * A reduction's `axes` are the axes to reduce, counted from 0; `out` is packed. Its R is int64_t where it sums
 * integers or gives an index. R is T, but double for the integer forms of operations whose result rule is
 * `floating`, `sized` or `variance` (whose sum is divided by the number of elements), and a byte of 0 or 1 where
 * it is `boolean`, `test`, `sign` or `logical`. Where an operation does not take T, the function returns
 * CUKERN_NOT_SUPPORTED. */
#define CUKERN_RESULT_promoted_f32 float
#define CUKERN_RESULT_promoted_f64 double
#define CUKERN_RESULT_promoted_i32 int32_t
#define CUKERN_RESULT_promoted_i64 int64_t
#define CUKERN_RESULT_arithmetic_f32 float
#define CUKERN_RESULT_arithmetic_f64 double
#define CUKERN_RESULT_arithmetic_i32 int32_t
#define CUKERN_RESULT_arithmetic_i64 int64_t
#define CUKERN_RESULT_rounded_f32 float
#define CUKERN_RESULT_rounded_f64 double
#define CUKERN_RESULT_rounded_i32 int32_t
#define CUKERN_RESULT_rounded_i64 int64_t
#define CUKERN_RESULT_component_f32 float
#define CUKERN_RESULT_component_f64 double
#define CUKERN_RESULT_component_i32 int32_t
#define CUKERN_RESULT_component_i64 int64_t
#define CUKERN_RESULT_floating_f32 float
#define CUKERN_RESULT_floating_f64 double
#define CUKERN_RESULT_floating_i32 double
#define CUKERN_RESULT_floating_i64 double
#define CUKERN_RESULT_sized_f32 float
#define CUKERN_RESULT_sized_f64 double
#define CUKERN_RESULT_sized_i32 double
#define CUKERN_RESULT_sized_i64 double
#define CUKERN_RESULT_boolean_f32 uint8_t
#define CUKERN_RESULT_boolean_f64 uint8_t
#define CUKERN_RESULT_boolean_i32 uint8_t
#define CUKERN_RESULT_boolean_i64 uint8_t
#define CUKERN_RESULT_test_f32 uint8_t
#define CUKERN_RESULT_test_f64 uint8_t
#define CUKERN_RESULT_test_i32 uint8_t
#define CUKERN_RESULT_test_i64 uint8_t
#define CUKERN_RESULT_sign_f32 uint8_t
#define CUKERN_RESULT_sign_f64 uint8_t
#define CUKERN_RESULT_sign_i32 uint8_t
#define CUKERN_RESULT_sign_i64 uint8_t
#define CUKERN_RESULT_logical_f32 uint8_t
#define CUKERN_RESULT_logical_f64 uint8_t
#define CUKERN_RESULT_logical_i32 uint8_t
#define CUKERN_RESULT_logical_i64 uint8_t
#define CUKERN_RESULT_summed_f32 float
#define CUKERN_RESULT_summed_f64 double
#define CUKERN_RESULT_summed_i32 int64_t
#define CUKERN_RESULT_summed_i64 int64_t
#define CUKERN_RESULT_variance_f32 float
#define CUKERN_RESULT_variance_f64 double
#define CUKERN_RESULT_variance_i32 double
#define CUKERN_RESULT_variance_i64 double
#define CUKERN_RESULT_index_f32 int64_t
#define CUKERN_RESULT_index_f64 int64_t
#define CUKERN_RESULT_index_i32 int64_t
#define CUKERN_RESULT_index_i64 int64_t

#define CUKERN_SIGNATURE_binary(id, T, S, R) cukern_##id##_##S(const T *a, const T *b, R *out, size_t n)
#define CUKERN_SIGNATURE_unary(id, T, S, R) cukern_##id##_##S(const T *a, R *out, size_t n)
#define CUKERN_SIGNATURE_scalar(id, T, S, R) cukern_##id##_##S(const T *a, T factor, R *out, size_t n)
#define CUKERN_SIGNATURE_DEV_binary(id, T, S, R)                                                                \
    cukern_##id##_##S##_dev(const T *a, const int64_t *a_strides, const T *b, const int64_t *b_strides, R *out, \
                            const int64_t *out_strides, const int64_t *shape, int ndim, int device, void *stream)
#define CUKERN_SIGNATURE_choice(id, T, S, R) \
    cukern_##id##_##S(const uint8_t *condition, const T *a, const T *b, R *out, size_t n)
#define CUKERN_SIGNATURE_DEV_choice(id, T, S, R)                                                    \
    cukern_##id##_##S##_dev(const uint8_t *condition, const int64_t *condition_strides, const T *a, \
                            const int64_t *a_strides, const T *b, const int64_t *b_strides, R *out, \
                            const int64_t *out_strides, const int64_t *shape, int ndim, int device, void *stream)
#define CUKERN_SIGNATURE_axpy(id, T, S, R) cukern_##id##_##S(T a, const T *x, const T *y, R *out, size_t n)
#define CUKERN_SIGNATURE_DEV_axpy(id, T, S, R)                                                               \
    cukern_##id##_##S##_dev(T a, const T *x, const int64_t *x_strides, const T *y, const int64_t *y_strides, \
                            R *out, const int64_t *out_strides, const int64_t *shape, int ndim, int device,  \
                            void *stream)
#define CUKERN_SIGNATURE_reduction(id, T, S, R) cukern_##id##_##S(const T *a, R *out, size_t n)
#define CUKERN_SIGNATURE_DEV_reduction(id, T, S, R)                                               \
    cukern_##id##_##S##_dev(const T *a, const int64_t *a_strides, const int64_t *shape, int ndim, \
                            const int *axes, int num_axes, R *out, int device, void *stream)
#define CUKERN_SIGNATURE_DEV_unary(id, T, S, R)                                                       \
    cukern_##id##_##S##_dev(const T *a, const int64_t *a_strides, R *out, const int64_t *out_strides, \
                            const int64_t *shape, int ndim, int device, void *stream)
#define CUKERN_SIGNATURE_DEV_scalar(id, T, S, R)                                                                \
    cukern_##id##_##S##_dev(const T *a, const int64_t *a_strides, T factor, R *out, const int64_t *out_strides, \
                            const int64_t *shape, int ndim, int device, void *stream)
#define CUKERN_DECLARE(kind, id, T, S, R)                          \
    CUKERN_API cukern_status CUKERN_SIGNATURE_##kind(id, T, S, R); \
    CUKERN_API cukern_status CUKERN_SIGNATURE_DEV_##kind(id, T, S, R);
#define CUKERN_OP(id, kind, types, rule, doc)                          \
    CUKERN_DECLARE(kind, id, float, f32, CUKERN_RESULT_##rule##_f32)   \
    CUKERN_DECLARE(kind, id, double, f64, CUKERN_RESULT_##rule##_f64)  \
    CUKERN_DECLARE(kind, id, int32_t, i32, CUKERN_RESULT_##rule##_i32) \
    CUKERN_DECLARE(kind, id, int64_t, i64, CUKERN_RESULT_##rule##_i64)
#include "cukern/ops.def"
#undef CUKERN_OP
#undef CUKERN_DECLARE

/* Matrix products out = a @ b of a (m, k) and b (k, n), row-major on the host, any strides in the `_dev`
 * forms (two an operand, rows first). `matmul` picks the faster way, `matmul_tiled` is the shared-memory
 * kernel, `matmul_cublas` is cuBLAS in full precision (f32 and f64 only). */
#define CUKERN_SIGNATURE_MATMUL(name, T, S) \
    cukern_##name##_##S(const T *a, const T *b, T *out, int64_t m, int64_t k, int64_t n)
#define CUKERN_SIGNATURE_MATMUL_DEV(name, T, S)                                                                   \
    cukern_##name##_##S##_dev(const T *a, const int64_t *a_strides, const T *b, const int64_t *b_strides, T *out, \
                              const int64_t *out_strides, int64_t m, int64_t k, int64_t n, int device,            \
                              void *stream)
#define CUKERN_DECLARE_MATMUL(name, T, S)                         \
    CUKERN_API cukern_status CUKERN_SIGNATURE_MATMUL(name, T, S); \
    CUKERN_API cukern_status CUKERN_SIGNATURE_MATMUL_DEV(name, T, S);
CUKERN_DECLARE_MATMUL(matmul, float, f32)
CUKERN_DECLARE_MATMUL(matmul, double, f64)
CUKERN_DECLARE_MATMUL(matmul, int32_t, i32)
CUKERN_DECLARE_MATMUL(matmul, int64_t, i64)
CUKERN_DECLARE_MATMUL(matmul_tiled, float, f32)
CUKERN_DECLARE_MATMUL(matmul_tiled, double, f64)
CUKERN_DECLARE_MATMUL(matmul_tiled, int32_t, i32)
CUKERN_DECLARE_MATMUL(matmul_tiled, int64_t, i64)
CUKERN_DECLARE_MATMUL(matmul_cublas, float, f32)
CUKERN_DECLARE_MATMUL(matmul_cublas, double, f64)
#undef CUKERN_DECLARE_MATMUL

#ifdef __cplusplus
}
#endif
#endif /* CUKERN_CUKERN_H */
