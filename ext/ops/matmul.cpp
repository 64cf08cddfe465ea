// Products of matrices: view, check, launch, return. products.cpp has the functions of the module.
#include "base/python.h"

#include "array/array.h"
#include "base/backend.h"
#include "base/errors.h"
#include "call/planned_calls.h"
#include "call/result.h"
#include "ops/operations.h"
#include "ops/product_views.h"

#include "cukern/operations.h"

namespace cukern::py {
namespace {

// Whether what products are computed in has more bits than their type.
bool is_widened(ElementType type) noexcept {
    return size_of(type) < 4 && (is_floating(type) || product_type(type) != type);
}

// A product whose type is narrower than what it is computed in, into an `out` of another type: it is brought to
// its own type before.
PyObject *copy_narrowed(PyObject *module, const char *function, const ProductOptions &options, ElementType type,
                        PyObject *first, PyObject *second, PyObject *out, PyObject *given_stream) noexcept {
    const TemporaryArrays scope;
    const PyRef product =
        PyRef::steal(run_matmul(module, function, options, first, second, nullptr, given_stream));
    return product ? run_cast(state_of(module), function, product.get(), type, out, given_stream) : nullptr;
}

}  // namespace

PyObject *run_matmul(PyObject *module, const char *function, const ProductOptions &options, PyObject *first,
                     PyObject *second, PyObject *out, PyObject *given_stream) noexcept {
    ModuleState &state = state_of(module);
    const PlannedFunction planned(options.algorithm, function);
    const bool may_repeat = given_stream == nullptr && options.form == ProductForm::matmul &&
                            !options.allows_tf32 && !options.keeps_sums;
    PyObject *const objects[] = {first, second};
    PyObject *repeated = nullptr;
    if (may_repeat && state.plans != nullptr && run_planned(state, planned, objects, 2, out, &repeated))
        return repeated;
    const Request request{state, function, out, given_stream};
    Backend backend;
    ReadContext reading;
    if (!begin_call(state, request, &backend, reading)) return nullptr;

    Operand a;
    Operand b;
    if (!a.read({state, function, "a"}, first, reading) || !b.read({state, function, "b"}, second, reading))
        return nullptr;
    Shape shape;
    if (const Status status = product_shape(options.form, Shape(a.view().ndim, a.view().shape),
                                            Shape(b.view().ndim, b.view().shape), &shape);
        status != CUKERN_OK) {
        raise_status(state, function, status);
        return nullptr;
    }
    const ElementType type = promote(a.type(), b.type());
    const ElementType compute = product_type(type);
    if (options.algorithm == MatmulAlgorithm::cublas && is_integer(compute)) {
        PyErr_Format(
            PyExc_TypeError,
            "%s: element type %s is not supported by cuBLAS; supported are floats and complex numbers (matmul "
            "takes integers and bool too)",
            function, name_of(type));
        return nullptr;
    }
    if (out != nullptr && is_widened(type)) {
        Description given;
        if (!describe(state, function, "out", out, &given)) return nullptr;
        if (given.type != type)
            return copy_narrowed(module, function, options, type, first, second, out, given_stream);
    }
    const bool is_sum = options.keeps_sums && is_floating(type) && size_of(type) == 2;
    Operand *const operands[] = {&a, &b};
    Result result;
    if (!result.prepare(request, shape, is_sum ? ElementType::float32 : type, operands, 2, Overlap::none_allowed,
                        reading))
        return nullptr;
    ProductViews views;
    make_product_views(options.form, a.view(), b.view(), result.view(), &views);
    MatmulCall call;
    call.algorithm = options.algorithm;
    call.compute = compute;
    call.allows_tf32 = options.allows_tf32;
    call.inputs[0] = &views.a;
    call.inputs[1] = &views.b;
    call.out = &views.out;
    const bool is_preferred = options.algorithm == MatmulAlgorithm::automatic && prefers_cublas(call);
    if (result.place(call) != Placement::host && (options.algorithm == MatmulAlgorithm::cublas || is_preferred))
        if (!seek_cublas(module)) return nullptr;
    PyObject *const done = result.perform(request, backend, operands, 2, call,
                                          [&](const Execution &where) { return matmul(call, where); });
    const bool is_known = a.family() == Family::array || a.family() == Family::exchange;
    if (may_repeat && is_known && done != nullptr && result.is_on_device())
        keep_plan(state, backend, planned, call, result.view(), operands, 2, done, out == nullptr);
    return done;
}

}  // namespace cukern::py
