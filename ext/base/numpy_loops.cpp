// NumPy's inner loops and its argmax and argmin, as the host back-end is given them.
#include "base/python.h"

#include <numpy/ufuncobject.h>

#include <cstring>

#include "base/methods.h"
#include "base/numpy_loops.h"

#include "cukern/host_loops.h"

namespace cukern::py {
namespace {

// NumPy's names that are not ours.
constexpr const char *kNames[][2] = {
    {"divide", "true_divide"},
    {"pow", "power"},
    {"abs", "absolute"},
    {"conj", "conjugate"},
    {"atan2", "arctan2"},
    {"asin", "arcsin"},
    {"acos", "arccos"},
    {"atan", "arctan"},
    {"asinh", "arcsinh"},
    {"acosh", "arccosh"},
    {"atanh", "arctanh"},
    {"bitwise_invert", "invert"},
    {"round", "rint"},
    {"scale", "multiply"},
    {"bitwise_left_shift", "left_shift"},
    {"bitwise_right_shift", "right_shift"},
};

// NumPy's type numbers by ElementType; -1: it has no such type.
constexpr int kTypeNumbers[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) npy,
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
};

// Where ours are as fast, more precise, or raise nothing, they stay.
bool takes_loops(Op op, ElementType type) noexcept {
    switch (op) {
        case Op::pow:
        case Op::reciprocal: return is_floating(type);  // of integers NumPy's raise, and divide by zero
        case Op::positive:
        case Op::abs:
        case Op::add:
        case Op::subtract:
        case Op::negative:
        case Op::conj:
        case Op::asinh: return true;
        // Of complex numbers NumPy rounds by the place in the loop: its vectors contract
        // products, the rest does not.
        default:
            return kind_of(type) != 'c' || is_comparison(op) || is_logical(op) ||
                   info(op).rule == ResultRule::test;
    }
}

void hand_over(Op op, const PyUFuncObject &ufunc) noexcept {
    const int inputs = arity(op);
    if (ufunc.nin != inputs || ufunc.nout != 1) return;
    for (int t = 0; t < kNumElementTypes; ++t) {
        const auto type = static_cast<ElementType>(t);
        if (kTypeNumbers[t] < 0 || !takes_loops(op, type)) continue;
        const bool looks_at_stored = is_logical(op) || info(op).rule == ResultRule::test;
        const ElementType compute = looks_at_stored ? type : compute_type(op, type, type);
        if (compute != type || !(looks_at_stored || takes(op, compute))) continue;
        const int result =
            kTypeNumbers[static_cast<int>(looks_at_stored ? ElementType::bool_ : result_type(op, type))];
        for (int i = 0; i < ufunc.ntypes; ++i) {
            const char *types = ufunc.types + static_cast<std::ptrdiff_t>(i) * ufunc.nargs;
            bool fits = types[inputs] == result;
            for (int j = 0; j < inputs; ++j) fits = fits && types[j] == kTypeNumbers[t];
            if (!fits || ufunc.functions[i] == nullptr) continue;
            set_host_loop(op, type, {ufunc.functions[i], ufunc.data == nullptr ? nullptr : ufunc.data[i]});
            break;
        }
    }
}

// NumPy's product of floats and complex numbers, which is its BLAS's; that of integers is slower than ours.
bool hand_over_products(const ModuleState &state, PyObject *kind) noexcept {
    const PyRef matmul = PyRef::steal(PyObject_GetAttrString(state.numpy, "matmul"));
    if (!matmul) return false;
    if (reinterpret_cast<PyObject *>(Py_TYPE(matmul.get())) != kind) return true;  // replaced: ours are taken
    const auto &ufunc = *reinterpret_cast<const PyUFuncObject *>(matmul.get());
    if (ufunc.nin != 2 || ufunc.nout != 1 || ufunc.core_enabled == 0) return true;
    for (const ElementType type :
         {ElementType::float32, ElementType::float64, ElementType::complex64, ElementType::complex128}) {
        const int number = kTypeNumbers[static_cast<int>(type)];
        for (int i = 0; i < ufunc.ntypes; ++i) {
            const char *types = ufunc.types + static_cast<std::ptrdiff_t>(i) * ufunc.nargs;
            if (types[0] != number || types[1] != number || types[2] != number) continue;
            if (ufunc.functions[i] == nullptr) continue;
            set_host_product(type, {ufunc.functions[i], ufunc.data == nullptr ? nullptr : ufunc.data[i]});
        }
    }
    return true;
}

// numpy.clip itself is written in Python; a NumPy that has no such ufunc is done without.
bool hand_over_clip(const ModuleState &state, PyObject *kind) noexcept {
    PyRef found = PyRef::borrow(state.numpy);
    for (const char *name : {"_core", "umath", "clip"})
        if (found) found = PyRef::steal(PyObject_GetAttrString(found.get(), name));
    if (!found) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return false;
        PyErr_Clear();
    } else if (reinterpret_cast<PyObject *>(Py_TYPE(found.get())) == kind) {
        hand_over(Op::clip, *reinterpret_cast<const PyUFuncObject *>(found.get()));
    }
    return true;
}

// argmax and argmin of packed elements.
bool hand_over_index_functions() noexcept {
    for (int t = 0; t < kNumElementTypes; ++t) {
        if (kTypeNumbers[t] < 0) continue;
        const PyRef descr = PyRef::steal(reinterpret_cast<PyObject *>(PyArray_DescrFromType(kTypeNumbers[t])));
        if (!descr) return false;
        const PyArray_ArrFuncs *functions = PyDataType_GetArrFuncs(reinterpret_cast<PyArray_Descr *>(descr.get()));
        set_host_index_function(static_cast<ElementType>(t), true, functions->argmax);
        set_host_index_function(static_cast<ElementType>(t), false, functions->argmin);
    }
    return true;
}

}  // namespace

bool hand_over_loops(const ModuleState &state) noexcept {
    if (!hand_over_index_functions()) return false;
    const PyRef kind = PyRef::steal(PyObject_GetAttrString(state.numpy, "ufunc"));
    if (!kind || !hand_over_products(state, kind.get()) || !hand_over_clip(state, kind.get())) return false;
    for (int row = 0; row < kNumTableOps; ++row) {
        const auto op = static_cast<Op>(row);
        const OpKind form = info(op).kind;
        if (form != OpKind::unary && form != OpKind::binary && form != OpKind::scalar) continue;
        const char *name = info(op).name;
        for (const auto &[ours, numpys] : kNames)
            if (std::strcmp(name, ours) == 0) name = numpys;
        const PyRef ufunc = PyRef::steal(PyObject_GetAttrString(state.numpy, name));
        if (!ufunc) {  // real, imag
            if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return false;
            PyErr_Clear();
        } else if (reinterpret_cast<PyObject *>(Py_TYPE(ufunc.get())) == kind.get()) {
            hand_over(op, *reinterpret_cast<const PyUFuncObject *>(ufunc.get()));
        }
    }
    return true;
}

namespace {

// _use_numpy_loops(use): whether the host back-end takes NumPy's loops, or our own formulas alone, as on a GPU.
PyObject *use_loops_method(PyObject *module, PyObject *use) {
    const int is_used = PyObject_IsTrue(use);
    if (is_used < 0) return nullptr;
    for (int row = 0; row < kNumTableOps; ++row)
        for (int type = 0; type < kNumElementTypes; ++type)
            set_host_loop(static_cast<Op>(row), static_cast<ElementType>(type), {});
    for (int type = 0; type < kNumElementTypes; ++type)
        set_host_loop(Op::clip, static_cast<ElementType>(type), {});
    for (int type = 0; type < kNumElementTypes; ++type)
        for (const bool finds_max : {false, true})
            set_host_index_function(static_cast<ElementType>(type), finds_max, nullptr);
    for (int type = 0; type < kNumElementTypes; ++type) set_host_product(static_cast<ElementType>(type), {});
    if (is_used != 0 && !hand_over_loops(state_of(module))) return nullptr;
    Py_RETURN_NONE;
}

}  // namespace

PyMethodDef kLoopMethods[] = {
    {"_use_numpy_loops", use_loops_method, METH_O,
     "_use_numpy_loops(use, /)\n--\n\nLet the host back-end take NumPy's loops, or our own formulas alone."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
