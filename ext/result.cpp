#include "python.h"

#include "result.h"

#include <cstdlib>

namespace cukern::py {
namespace {

std::int64_t stride_along(const Operand &operand, int ndim, int axis) noexcept {
    if (!operand.has_memory()) return 0;
    const ByteLayout layout = operand.layout();
    const int own = axis - (ndim - layout.ndim);
    return own < 0 || layout.shape[own] == 1 ? 0 : layout.strides[own];
}

// Whether axis x is slower than y in memory, over all operands: NumPy's rule for order='K', by which C order
// wins where operands disagree.
enum class Comparison { slower, faster, undecided };
Comparison compare_axes(Operand *const *operands, int num_operands, int ndim, int x, int y) noexcept {
    Comparison result = Comparison::undecided;
    for (int i = 0; i < num_operands; ++i) {
        const std::int64_t sx = std::llabs(stride_along(*operands[i], ndim, x));
        const std::int64_t sy = std::llabs(stride_along(*operands[i], ndim, y));
        if (sx == 0 || sy == 0) continue;
        if (sx <= sy)
            result = Comparison::faster;
        else if (result == Comparison::undecided)
            result = Comparison::slower;
    }
    return result;
}

// Strides in bytes of a fresh result that keeps the operands' memory order.
void keep_order(Operand *const *operands, int num_operands, const Shape &shape, int item_size,
                npy_intp *strides) noexcept {
    int axes[kMaxDims];  // from the fastest to the slowest
    for (int i = 0; i < shape.ndim; ++i) {
        const int axis = shape.ndim - 1 - i;
        int at = i;
        for (int j = i - 1; j >= 0; --j) {
            const Comparison c = compare_axes(operands, num_operands, shape.ndim, axes[j], axis);
            if (c == Comparison::faster) break;
            if (c == Comparison::slower) at = j;
        }
        for (int j = i; j > at; --j) axes[j] = axes[j - 1];
        axes[at] = axis;
    }
    npy_intp stride = item_size;
    for (int i = 0; i < shape.ndim; ++i) {
        strides[axes[i]] = stride;
        stride *= shape.lengths[axes[i]] > 0 ? shape.lengths[axes[i]] : 1;
    }
}

}  // namespace

bool broadcast(const char *function, const Operand &a, const Operand &b, Shape *shape) noexcept {
    const TensorView &x = a.view();
    const TensorView &y = b.view();
    shape->ndim = x.ndim > y.ndim ? x.ndim : y.ndim;
    for (int i = 0; i < shape->ndim; ++i) {
        const int ix = i - (shape->ndim - x.ndim);
        const int iy = i - (shape->ndim - y.ndim);
        const std::int64_t nx = ix < 0 ? 1 : x.shape[ix];
        const std::int64_t ny = iy < 0 ? 1 : y.shape[iy];
        if (nx != ny && nx != 1 && ny != 1) {
            const PyRef sx = shape_text(x.ndim, x.shape);
            const PyRef sy = shape_text(y.ndim, y.shape);
            if (sx && sy)
                PyErr_Format(PyExc_ValueError, "%s: shapes do not broadcast: %s is %U, %s is %U", function,
                             a.name(), sx.get(), b.name(), sy.get());
            return false;
        }
        shape->lengths[i] = nx == 1 ? ny : nx;
    }
    return true;
}

bool Result::prepare(const char *function, PyObject *out, const Shape &shape, ElementType type,
                     Operand *const *operands, int num_operands, Overlap overlap) noexcept {
    std::int64_t bytes = 0;
    if (!checked_bytes(shape.lengths, shape.ndim, size_of(type), &bytes)) {
        const PyRef text = shape_text(shape.ndim, shape.lengths);
        if (text)
            PyErr_Format(PyExc_ValueError, "%s: the result's shape %U has more elements than memory can hold",
                         function, text.get());
        return false;
    }
    if (out != nullptr) {
        object_ = PyRef::borrow(out);
        return operand_.read_out({function, "out"}, out) &&
               check_out(function, shape, type, operands, num_operands, overlap);
    }
    npy_intp lengths[kMaxDims];
    npy_intp strides[kMaxDims];
    for (int i = 0; i < shape.ndim; ++i) lengths[i] = shape.lengths[i];
    const bool keeps_order = overlap == Overlap::same_allowed;
    if (keeps_order) keep_order(operands, num_operands, shape, size_of(type), strides);
    object_ = PyRef::steal(PyArray_New(&PyArray_Type, shape.ndim, lengths, numpy_type_of(type),
                                       keeps_order ? strides : nullptr, nullptr, 0, 0, nullptr));
    return object_ && operand_.read_out({function, "the result"}, object_.get());
}

bool Result::check_out(const char *function, const Shape &shape, ElementType type, Operand *const *operands,
                       int num_operands, Overlap overlap) noexcept {
    const TensorView &view = operand_.view();
    bool same = view.ndim == shape.ndim;
    for (int i = 0; same && i < shape.ndim; ++i) same = view.shape[i] == shape.lengths[i];
    if (!same) {
        const PyRef got = shape_text(view.ndim, view.shape);
        const PyRef expected = shape_text(shape.ndim, shape.lengths);
        if (got && expected)
            PyErr_Format(PyExc_ValueError, "%s: out has shape %U; the result has %U", function, got.get(),
                         expected.get());
        return false;
    }
    if (!can_cast_same_kind(type, view.type)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: the result is of element type %s, which out's %s cannot take (casting "
                     "'same_kind')",
                     function, name_of(type), name_of(view.type));
        return false;
    }
    const ByteLayout own = operand_.layout();
    if (overlaps_itself(own)) {
        PyErr_Format(PyExc_ValueError,
                     "%s: elements of out overlap each other; pass an array without repeated "
                     "elements (strides of 0)",
                     function);
        return false;
    }
    for (int i = 0; i < num_operands; ++i) {
        if (!operands[i]->has_memory()) continue;
        const ByteLayout other = operands[i]->layout();
        if (overlap == Overlap::same_allowed && identical(own, other)) continue;
        if (!overlaps(own, other)) continue;
        const char *allowed = overlap == Overlap::same_allowed
                                  ? "it may be exactly that array, or share no memory with it"
                                  : "it must share no memory with it";
        PyErr_Format(PyExc_ValueError, "%s: out overlaps %s; %s", function, operands[i]->name(), allowed);
        return false;
    }
    return true;
}

PyObject *Result::finish() noexcept { return operand_.finish_out() ? object_.release() : nullptr; }

}  // namespace cukern::py
