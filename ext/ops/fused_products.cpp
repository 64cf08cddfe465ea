// Products with an epilogue that cuBLASLt computes in the same kernel: read, view, check, launch, return.
#include "base/python.h"

#include "base/backend.h"
#include "call/result.h"
#include "ops/operations.h"
#include "ops/product_views.h"

#include "cukern/operations.h"
#include "cukern/overlap.h"

namespace cukern::py {
namespace {

PyObject *not_fused() noexcept { return PyRef::borrow(Py_None).release(); }

// Whether an array is in a GPU's memory, or may be reached from there.
bool is_reachable(const Operand &operand) noexcept {
    return operand.access().location.reachable && !operand.view().immediate;
}

// An addend may be exactly the result.
bool may_be_added(const TensorView &addend, const TensorView &out) noexcept {
    const ByteLayout own = layout_of(addend);
    const ByteLayout result = layout_of(out);
    return identical(own, result) || !overlaps(own, result);
}

}  // namespace

PyObject *run_fused_product(PyObject *module, const char *function, const ProductOptions &options,
                            const FusedEpilogue &asked, PyObject *first, PyObject *second, PyObject *out,
                            PyObject *given_stream) noexcept {
    ModuleState &state = state_of(module);
    const Request request{state, function, out, given_stream};
    Backend backend;
    ReadContext reading;
    if (!begin_call(state, request, &backend, reading)) return nullptr;
    if (backend != Backend::cuda) return not_fused();
    Operand arrays[4];  // a, b, and what is given of bias and c
    Operand *operands[] = {&arrays[0], &arrays[1], &arrays[2], &arrays[3]};
    int count = 0;
    const auto read = [&](const char *name, PyObject *object) {
        return arrays[count++].read({state, function, name}, object, reading);
    };
    if (!read("a", first) || !read("b", second)) return nullptr;
    Operand *const bias = asked.bias != nullptr ? operands[count] : nullptr;
    if (bias != nullptr && !read("bias", asked.bias)) return nullptr;
    Operand *const c = asked.c != nullptr ? operands[count] : nullptr;
    if (c != nullptr && !read("c", asked.c)) return nullptr;
    for (int i = 0; i < count; ++i)
        if (!is_reachable(arrays[i])) return not_fused();
    const ElementType type = promote(arrays[0].type(), arrays[1].type());
    Shape shape;
    if (product_shape(options.form, Shape(arrays[0].view().ndim, arrays[0].view().shape),
                      Shape(arrays[1].view().ndim, arrays[1].view().shape), &shape) != CUKERN_OK ||
        arrays[0].view().ndim != 2 || arrays[1].view().ndim != 2)
        return not_fused();
    if (out != nullptr) {
        Description given;
        if (!describe(state, function, "out", out, &given)) return nullptr;
        if (given.type != type) return not_fused();
    }
    Result result;
    if (!result.prepare(request, shape, type, operands, c != nullptr ? count - 1 : count, Overlap::none_allowed,
                        reading))
        return nullptr;
    ProductViews views;
    make_product_views(options.form, arrays[0].view(), arrays[1].view(), result.view(), &views);
    ProductEpilogue epilogue;
    epilogue.alpha = asked.alpha;
    epilogue.beta = asked.beta;
    epilogue.gelu = asked.gelu;
    if (bias != nullptr) epilogue.bias = &bias->view();
    if (c != nullptr) epilogue.c = &c->view();
    MatmulCall call;
    call.algorithm = options.algorithm;
    call.compute = product_type(type);
    call.allows_tf32 = options.allows_tf32;
    call.inputs[0] = &views.a;
    call.inputs[1] = &views.b;
    call.out = &views.out;
    call.epilogue = &epilogue;
    if (!result.is_on_device() || !fuses_epilogue(call) ||
        (c != nullptr && !may_be_added(c->view(), result.view())))
        return not_fused();
    if (!seek_cublas(module)) return nullptr;
    if (!find_cublas()) return not_fused();
    bool is_refused = false;
    PyRef made = PyRef::steal(result.perform(request, backend, operands, count, call, [&](const Execution &where) {
        const Status status = matmul(call, where);
        is_refused = status == CUKERN_NOT_SUPPORTED;
        return status;
    }));
    if (made || !is_refused) return made.release();
    PyErr_Clear();
    return not_fused();
}

}  // namespace cukern::py
