// matmul, matmul_tiled and matmul_cublas: products, and what may be done with them.
//
// Idea: a product with factors, another summand, a bias or an activation is one kernel of cuBLASLt where that has
// it (fused_products.cpp). Else it is a product, of 16-bit floats as float32, and elementwise operations on it,
// which is rounded to the result's type at the end. Calls without these go to `run_matmul` at once.
#include "base/python.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "array/array.h"
#include "base/errors.h"
#include "base/methods.h"
#include "base/signature.h"
#include "call/arguments.h"
#include "call/operand.h"
#include "ops/operations.h"
#include "view/shapes.h"

namespace cukern::py {
namespace {

enum class Activation { none, relu, gelu };

// Borrowed; null: not given.
struct Epilogue {
    PyObject *alpha = nullptr;
    PyObject *beta = nullptr;
    PyObject *c = nullptr;
    PyObject *bias = nullptr;
    Activation activation = Activation::none;

    bool is_empty() const noexcept {
        return alpha == nullptr && beta == nullptr && c == nullptr && bias == nullptr &&
               activation == Activation::none;
    }
};

// One of the names that an argument may be; false with ValueError.
bool find_name(const char *function, const char *argument, PyObject *text, const char *const *names, int count,
               int *found) noexcept {
    *found = 0;
    if (!is_given(text)) return true;
    for (int i = 0; i < count && PyUnicode_Check(text); ++i)
        if (PyUnicode_CompareWithASCIIString(text, names[i]) == 0) {
            *found = i;
            return true;
        }
    PyErr_Format(PyExc_ValueError, "%s: %s is %R; expected '%s', '%s'%s%s%s", function, argument, text, names[0],
                 names[1], count > 2 ? " or '" : "", count > 2 ? names[2] : "", count > 2 ? "'" : "");
    return false;
}

// Whether a factor is a number that leaves the result's type as it is.
bool check_factor(const char *function, const char *argument, PyObject *factor, ElementType type) noexcept {
    if (factor == nullptr) return true;
    if (!is_number(factor)) {
        PyErr_Format(PyExc_TypeError, "%s: %s is %R; expected a number of Python", function, argument, factor);
        return false;
    }
    const Weak weak = weak_of(factor);
    const bool fits = weak <= Weak::integer || (weak == Weak::real && !is_integer(type)) || kind_of(type) == 'c';
    if (!fits)
        PyErr_Format(PyExc_TypeError, "%s: %s is %R, which a product of element type %s cannot be multiplied with",
                     function, argument, factor, name_of(type));
    return fits;
}

// What an addend must be: of a shape, and of a type that the result's can take.
bool check_addend(ModuleState &state, const char *function, const char *argument, PyObject *object,
                  ElementType type, const Shape &wanted) noexcept {
    if (object == nullptr) return true;
    Description own;
    if (!describe(state, function, argument, object, &own)) return false;
    bool same = own.shape.ndim == wanted.ndim;
    for (int d = 0; same && d < wanted.ndim; ++d) same = own.shape.lengths[d] == wanted.lengths[d];
    if (!same) {
        const PyRef got = shape_text(own.shape.ndim, own.shape.lengths);
        const PyRef expected = shape_text(wanted.ndim, wanted.lengths);
        if (got && expected)
            PyErr_Format(PyExc_ValueError, "%s: %s has shape %U; expected %U", function, argument, got.get(),
                         expected.get());
        return false;
    }
    if (can_cast_same_kind(own.type, type)) return true;
    PyErr_Format(PyExc_TypeError,
                 "%s: %s is of element type %s, which the product's %s cannot take (casting "
                 "'same_kind')",
                 function, argument, name_of(own.type), name_of(type));
    return false;
}

bool is_zero(PyObject *number, bool *zero) noexcept {
    const int truth = PyObject_IsTrue(number);
    *zero = truth == 0;
    return truth >= 0;
}

// Operations on the product, in its own memory.
class Steps {
public:
    Steps(ModuleState &state, PyObject *stream, PyRef product) noexcept
        : state_(state), stream_(stream), product_(std::move(product)) {}

    bool apply(Op op, PyObject *other) noexcept { return change(op, product_.get(), other, product_.get()); }

    // `c` is multiplied in the product's type, `type`, as the product is.
    bool add_scaled(PyObject *c, PyObject *beta, ElementType type) noexcept {
        if (beta == nullptr) return apply(Op::add, c);
        const PyRef scaled = PyRef::steal(run_cast(state_, "matmul", c, type, nullptr, stream_));
        return scaled && change(Op::multiply, scaled.get(), beta, scaled.get()) && apply(Op::add, scaled.get());
    }

    // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    bool apply_gelu() noexcept {
        constexpr double kCubic = 0.044715;
        constexpr double kRoot = 0.79788456080286536;  // of 2 / pi
        PyObject *const x = product_.get();
        const PyRef owned = PyRef::steal(run_elementwise(state_, Op::multiply, x, x, nullptr, stream_));
        PyObject *const t = owned.get();
        return owned && change_by(Op::multiply, t, kCubic) && change_by(Op::add, t, 1) &&
               change(Op::multiply, t, x, t) && change_by(Op::multiply, t, kRoot) &&
               change(Op::tanh, t, nullptr, t) && change_by(Op::add, t, 1) && change_by(Op::multiply, x, 0.5) &&
               apply(Op::multiply, t);
    }

    PyRef take() noexcept { return std::move(product_); }

private:
    bool change(Op op, PyObject *a, PyObject *b, PyObject *out) noexcept {
        return static_cast<bool>(PyRef::steal(run_elementwise(state_, op, a, b, out, stream_)));
    }
    bool change_by(Op op, PyObject *a, double number) noexcept {
        const PyRef factor = PyRef::steal(PyFloat_FromDouble(number));
        return factor && change(op, a, factor.get(), a);
    }

    ModuleState &state_;
    PyObject *const stream_;
    PyRef product_;
};

// A factor of a real product as a double; 1 where there is none. False with an exception: an int beyond all
// doubles.
bool factor_of(PyObject *number, double *factor) noexcept {
    *factor = number != nullptr ? PyFloat_AsDouble(number) : 1;
    return *factor != -1 || PyErr_Occurred() == nullptr;
}

// The result, of one kernel; None where that is not possible.
PyRef try_fused(PyObject *module, const char *function, const ProductOptions &options, const Epilogue &epilogue,
                ElementType type, bool ignores_c, PyObject *first, PyObject *second, PyObject *out,
                PyObject *stream) noexcept {
    if (!is_floating(type) || size_of(type) > 4) return PyRef::borrow(Py_None);
    FusedEpilogue fused;
    fused.bias = epilogue.bias;
    fused.gelu = epilogue.activation == Activation::gelu;
    if (!ignores_c) fused.c = epilogue.c;
    if (!factor_of(epilogue.alpha, &fused.alpha) || !factor_of(epilogue.beta, &fused.beta)) return {};
    for (const double factor : {fused.alpha, fused.beta})  // which the sums' type, float32, has to hold
        if (std::fabs(factor) > FLT_MAX && std::isfinite(factor)) return PyRef::borrow(Py_None);
    PyRef result = PyRef::steal(run_fused_product(module, function, options, fused, first, second, out, stream));
    if (!result || Py_IsNone(result.get()) != 0 || epilogue.activation != Activation::relu) return result;
    // cuBLASLt's relu makes 0 of NaN.
    const PyRef zero = PyRef::steal(PyLong_FromLong(0));
    if (!zero) return {};
    return PyRef::steal(
        run_elementwise(state_of(module), Op::maximum, result.get(), zero.get(), result.get(), stream));
}

PyObject *run_with_epilogue(PyObject *module, const char *function, ProductOptions options,
                            const Epilogue &epilogue, PyObject *first, PyObject *second, PyObject *out,
                            PyObject *stream) noexcept {
    ModuleState &state = state_of(module);
    Description a;
    Description b;
    if (!describe(state, function, "a", first, &a) || !describe(state, function, "b", second, &b)) return nullptr;
    const ElementType type = promote(a.type, b.type);
    Shape shape;
    if (const Status status = product_shape(options.form, a.shape, b.shape, &shape); status != CUKERN_OK) {
        raise_status(state, function, status);
        return nullptr;
    }
    if (type == ElementType::bool_ || (epilogue.activation != Activation::none && kind_of(type) == 'c') ||
        (epilogue.activation == Activation::gelu && !is_floating(type)))
        return PyErr_Format(PyExc_TypeError, "%s: products of element type %s take no such option", function,
                            name_of(type));
    if (epilogue.beta != nullptr && epilogue.c == nullptr)
        return PyErr_Format(PyExc_TypeError, "%s: beta is a factor of c, which is missing", function);
    const Shape columns(shape.ndim > 0 && b.shape.ndim > 1 ? 1 : 0,
                        shape.lengths + (shape.ndim > 0 ? shape.ndim - 1 : 0));
    if (!check_factor(function, "alpha", epilogue.alpha, type) ||
        !check_factor(function, "beta", epilogue.beta, type) ||
        !check_addend(state, function, "c", epilogue.c, type, shape) ||
        !check_addend(state, function, "bias", epilogue.bias, type, columns))
        return nullptr;

    bool ignores_c = epilogue.c == nullptr;
    if (epilogue.beta != nullptr && !is_zero(epilogue.beta, &ignores_c)) return nullptr;
    PyRef fused = try_fused(module, function, options, epilogue, type, ignores_c, first, second, out, stream);
    if (!fused || Py_IsNone(fused.get()) == 0) return fused.release();
    std::optional<TemporaryArrays> scope;  // the product is copied to `out` at the end
    if (out != nullptr) scope.emplace();
    options.keeps_sums = true;
    PyRef product = PyRef::steal(run_matmul(module, function, options, first, second, nullptr, stream));
    if (!product) return nullptr;
    Steps steps(state, stream, std::move(product));
    if (epilogue.alpha != nullptr && !steps.apply(Op::multiply, epilogue.alpha)) return nullptr;
    const bool is_short = is_floating(type) && size_of(type) == 2;
    const ElementType sum = is_short ? ElementType::float32 : type;
    if (!ignores_c && !steps.add_scaled(epilogue.c, epilogue.beta, sum)) return nullptr;
    if (epilogue.bias != nullptr && !steps.apply(Op::add, epilogue.bias)) return nullptr;
    if (epilogue.activation == Activation::relu) {
        const PyRef zero = PyRef::steal(PyLong_FromLong(0));
        if (!zero || !steps.apply(Op::maximum, zero.get())) return nullptr;
    }
    if (epilogue.activation == Activation::gelu && !steps.apply_gelu()) return nullptr;
    product = steps.take();
    if (out != nullptr) return run_copy(state, function, product.get(), out, stream);
    if (is_short) return run_cast(state, function, product.get(), type, nullptr, stream);
    return product.release();
}

#define CUKERN_PRODUCT_OPTIONS "alpha=None, beta=None, c=None, bias=None, activation=None, precision='highest'"
#define CUKERN_MATMUL "(a, b, /, *, out=None, stream=None, " CUKERN_PRODUCT_OPTIONS ", kernel='auto')"
#define CUKERN_MATMUL_OF_KERNEL "(a, b, /, *, out=None, stream=None, " CUKERN_PRODUCT_OPTIONS ")"

// Whether nothing is named but what `parse_arguments` knows.
bool is_plain_call(PyObject *names) noexcept {
    const Py_ssize_t count = names == nullptr ? 0 : PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *const name = PyTuple_GetItem(names, i);
        if (PyUnicode_CompareWithASCIIString(name, "out") != 0 &&
            PyUnicode_CompareWithASCIIString(name, "stream") != 0)
            return false;
    }
    return true;
}

PyObject *call_with_options(const char *function, ProductOptions options, PyObject *module,
                            PyObject *const *values, Py_ssize_t count, PyObject *names) noexcept {
    static constexpr Signature kSignature(CUKERN_MATMUL);
    static constexpr Signature kOfKernel(CUKERN_MATMUL_OF_KERNEL);
    static constexpr const char *kActivations[] = {"none", "relu", "gelu"};
    static constexpr const char *kPrecisions[] = {"highest", "tf32"};
    static constexpr const char *kKernels[] = {"auto", "tiled", "cublas"};
    PyObject *arguments[Signature::kMost] = {};
    const bool names_kernel = options.algorithm != MatmulAlgorithm::automatic;
    const Signature &signature = names_kernel ? kOfKernel : kSignature;
    if (!signature.parse(function, nullptr, values, count, names, arguments)) return nullptr;
    Epilogue epilogue;
    epilogue.alpha = given_or_null(arguments[4]);
    epilogue.beta = given_or_null(arguments[5]);
    epilogue.c = given_or_null(arguments[6]);
    epilogue.bias = given_or_null(arguments[7]);
    int activation = 0;
    int precision = 0;
    int kernel = 0;
    if (!find_name(function, "activation", arguments[8], kActivations, 3, &activation) ||
        !find_name(function, "precision", arguments[9], kPrecisions, 2, &precision) ||
        (!names_kernel && !find_name(function, "kernel", arguments[10], kKernels, 3, &kernel)))
        return nullptr;
    epilogue.activation = static_cast<Activation>(activation);
    options.allows_tf32 = precision == 1;
    if (!names_kernel) options.algorithm = static_cast<MatmulAlgorithm>(kernel);
    PyObject *const out = given_or_null(arguments[2]);
    PyObject *const stream = given_or_null(arguments[3]);
    if (epilogue.is_empty()) return run_matmul(module, function, options, arguments[0], arguments[1], out, stream);
    return run_with_epilogue(module, function, options, epilogue, arguments[0], arguments[1], out, stream);
}

template <MatmulAlgorithm algorithm>
PyObject *method(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    constexpr const char *kNames[] = {"matmul", "matmul_tiled", "matmul_cublas"};
    const char *const function = kNames[static_cast<int>(algorithm)];
    ProductOptions options;
    options.algorithm = algorithm;
    if (!is_plain_call(names)) return call_with_options(function, options, module, values, count, names);
    Arguments arguments;
    if (!parse_arguments(state_of(module), function, 2, values, count, names, &arguments)) return nullptr;
    return run_matmul(module, function, options, arguments.positional[0], arguments.positional[1], arguments.out,
                      arguments.stream);
}

}  // namespace

#define CUKERN_MATMUL_DOC(name, parameters, summary, types, kernels, errors)                                  \
    name parameters                                                                                           \
        "\n--\n\n" summary                                                                                    \
        "\n\nParameters\n----------\n"                                                                        \
        "a, b : Array, ndarray, another library's array, or buffer\n"                                         \
        "    Of one dimension or more, with any strides; a's last length is b's last but one. Dimensions\n"   \
        "    before the last two are batches, and broadcast. Element types: " types                           \
        ".\n"                                                                                                 \
        "out : array of any kind, or writable buffer, optional\n"                                             \
        "    Takes the result, and is returned. It shares no memory with `a` or `b`.\n"                       \
        "stream : Stream, object with __cuda_stream__, or int, optional\n    Where the work runs.\n"          \
        "alpha, beta : number, optional\n"                                                                    \
        "    Factors of the product, and of `c`, by default 1. With beta 0 c is not looked at.\n"             \
        "c : array of the result's shape, optional\n"                                                         \
        "    Is added: alpha * (a @ b) + beta * c. It may be exactly `out`.\n"                                \
        "bias : array of shape (n,), optional\n    Is added to each row.\n"                                   \
        "activation : {'relu', 'gelu'}, optional\n"                                                           \
        "    What is done with the sum: max(x, 0), or x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 *\n"     \
        "    x**3))) (D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, 2016).\n"                      \
        "precision : {'highest', 'tf32'}\n"                                                                   \
        "    tf32 lets cuBLAS multiply float32 on tensor cores, which keep 11 bits of each factor.\n" kernels \
        "\nReturns\n-------\n"                                                                                \
        "array of the kind of `a`, or `out`\n"                                                                \
        "    (..., m, k) with (..., k, n) gives (..., m, n); a vector's dimension leaves the result, so\n"    \
        "    that two of them give shape (). The element type is the promoted type of the operands. 16-bit\n" \
        "    floats are summed in float32, integers wrap, and of bool it is whether any product holds.\n"     \
        "\nRaises\n------\n"                                                                                  \
        "TypeError\n    An operand is no array, or of another element type.\n"                                \
        "ValueError\n    Inner dimensions differ; batches do not broadcast; an operand has no dimensions;\n"  \
        "    `out` has another shape, is read-only, or overlaps an operand; `c` or `bias` has another "       \
        "shape.\n" errors                                                                                     \
        "CudaError\n    A call of CUDA or cuBLAS failed.\n"                                                   \
        "\nExamples\n--------\n"                                                                              \
        ">>> import numpy, cukern\n"                                                                          \
        ">>> a = numpy.ones((2, 3), numpy.float32)\n"                                                         \
        ">>> cukern." name                                                                                    \
        "(a, a.T)\n"                                                                                          \
        "array([[3., 3.],\n"                                                                                  \
        "       [3., 3.]], dtype=float32)\n"

PyMethodDef kMatmulMethods[] = {
    {"matmul", as_method(method<MatmulAlgorithm::automatic>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_MATMUL_DOC("matmul", CUKERN_MATMUL,
                       "Multiply two matrices, by the faster of `matmul_cublas` and `matmul_tiled`.\n\n"
                       "float32 is computed in full precision, without TF32. On the processor products of\n"
                       "floats and complex numbers are those of NumPy's BLAS, but for small ones.",
                       "all",
                       "kernel : {'auto', 'tiled', 'cublas'}\n    By which: the faster one, or the one of "
                       "`matmul_tiled` or `matmul_cublas`.\n",
                       "")},
    {"matmul_tiled", as_method(method<MatmulAlgorithm::tiled>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_MATMUL_DOC("matmul_tiled", CUKERN_MATMUL_OF_KERNEL,
                       "Multiply two matrices with cukern's own shared-memory kernel.", "all", "", "")},
    {"matmul_cublas", as_method(method<MatmulAlgorithm::cublas>), METH_FASTCALL | METH_KEYWORDS,
     CUKERN_MATMUL_DOC("matmul_cublas", CUKERN_MATMUL_OF_KERNEL,
                       "Multiply two matrices with cuBLAS, in full precision (no TF32).\n\n"
                       "On the host back-end it computes as `matmul` does.",
                       "floats and complex numbers", "",
                       "RuntimeError\n    cuBLAS was not found; the message says what was tried.\n")},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
