// One Python object as one borrowed view of memory, and what keeps it alive.
#pragma once

#include "element_types.h"
#include "py_ref.h"

#include "cukern/overlap.h"
#include "cukern/tensor_view.h"

namespace cukern::py {

// Python's own numbers have no element type: they take that of the arrays beside them (NEP 50).
enum class Weak { none, boolean, integer, real };

class Operand {
public:
    // For messages: the function and the argument's name.
    struct Place {
        const char *function;
        const char *argument;
    };

    Operand() noexcept = default;
    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    // Accepts, in this order: ndarray, Python's int and float, NumPy's scalars, objects with the buffer protocol.
    // Raises TypeError for what is none of these, and for element types that are not ours.
    bool read(Place place, PyObject *object) noexcept;

    // The same for `out`: writable arrays and buffers only, and no copy stands in for them unnoticed.
    bool read_out(Place place, PyObject *object) noexcept;

    // Gives a weak operand its value in `type`; OverflowError where an integer type cannot hold it.
    bool resolve(ElementType type) noexcept;

    // Writes back what an unaligned `out` was computed in; nothing to do for others.
    bool finish_out() noexcept;

    const char *name() const noexcept { return name_; }  // the argument's
    const TensorView &view() const noexcept { return view_; }
    ElementType type() const noexcept { return view_.type; }
    Weak weak() const noexcept { return weak_; }
    ByteLayout layout() const noexcept;  // of the object's own memory
    bool has_memory() const noexcept { return layout_.data != nullptr; }

    // The operand as ndarray of its own memory, never of a subclass.
    PyRef ndarray() const noexcept;

private:
    bool read_array(Place place, PyArrayObject *array) noexcept;
    bool read_buffer(Place place, PyObject *object) noexcept;
    bool read_numpy_scalar(Place place, PyObject *object) noexcept;
    bool set_memory(Place place, void *data, int ndim, const Py_ssize_t *shape, const Py_ssize_t *strides,
                    Py_ssize_t item_size) noexcept;
    bool stand_in() noexcept;

    const char *name_ = "";
    PyObject *object_ = nullptr;  // borrowed from the caller's arguments
    PyRef copy_;                  // aligned, in place of an array that is not
    BufferHolder buffer_;
    TensorView view_;
    ByteLayout layout_{};
    std::int64_t byte_strides_[kMaxDims];
    std::int64_t layout_shape_[kMaxDims];
    Weak weak_ = Weak::none;
    bool writable_ = false;
    bool aligned_ = true;
};

// "(3, 4)", or "(3,)" as Python writes it.
PyRef shape_text(int ndim, const std::int64_t *shape) noexcept;

}  // namespace cukern::py
