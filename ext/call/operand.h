// One Python object as one borrowed view of memory, and what keeps it alive.
#pragma once

#include "interop/frameworks.h"
#include "view/tracked_view.h"

#include "cukern/overlap.h"

namespace cukern::py {

// Python scalars have no element type: they adopt the arrays' (NEP 50).
enum class Weak { none, boolean, integer, real, complex };

// The element types of two operands as far as results depend on them: a Python scalar adopts the other's.
struct Types {
    ElementType a;
    ElementType b;
    ElementType promoted() const noexcept { return promote(a, b); }
};
class Operand;
Types types_of(const Operand &a, const Operand &b) noexcept;

// NEP 50: the promoted type of an array's type and a Python number.
ElementType promote_weak(ElementType strong, Weak weak) noexcept;
// The element type of a Python number that no array is beside.
ElementType weak_type(Weak weak) noexcept;

// Whose array it is: a result without `out` is of the same kind.
enum class Family : std::int8_t {
    number,    // Python's or NumPy's
    numpy,     // ndarrays and buffers
    array,     // cukern.Array
    exchange,  // a type with DLPack's exchange API, such as torch.Tensor
    cupy,
    dlpack,  // a type with __dlpack__
    cuda     // a type with __cuda_array_interface__ alone
};

class Operand {
public:
    Operand() noexcept = default;
    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    // Accepts, in this order: Array, types of other libraries that are known, ndarray, Python's numbers, NumPy's
    // scalars, and what has a protocol (docs/architecture.md, "Operands"). Raises TypeError for what is none of
    // these, and for element types that are not ours.
    bool read(const ArgumentInfo &argument, PyObject *object, ReadContext &reading) noexcept;

    // The same for `out`: writable arrays and buffers only, and no copy stands in for them unnoticed.
    bool read_out(const ArgumentInfo &argument, PyObject *object, ReadContext &reading) noexcept;

    // A fresh array of the library whose array `like` is, as the result of a call: nothing of it needs a check.
    bool take_fresh(const ArgumentInfo &argument, PyObject *object, const ForeignArray &array,
                    const Operand &like) noexcept;

    // The same of a fresh Array or ndarray of ours.
    bool take_result(const ArgumentInfo &argument, PyObject *object, ElementType type) noexcept;

    // As read(), or read_out() where `writes`, with a context of its own; refuses Python's numbers.
    bool read_memory(const ArgumentInfo &argument, PyObject *object, bool writes) noexcept;

    // Gives a weak operand its value in `type`; OverflowError where an integer type cannot hold it.
    bool resolve(ElementType type) noexcept;
    // Gives a weak integer that the other operand's type cannot hold the infinity of its sign, to compare it.
    void resolve_to_infinity() noexcept;

    // Compares a weak integer with another one exactly, of any size: stores the sign of their difference, and 0.
    bool resolve_compared(Operand &other) noexcept;

    // Whether a weak operand's value is one of an integer `type`; true for all others.
    bool fits(ElementType type) const noexcept;

    // Of an array as it is, of any strides, for kernels that are given its address: no copy stands in for it.
    bool read_address(const ArgumentInfo &argument, PyObject *object, ReadContext &reading) noexcept;
    // The same of an array that may lie at any address.
    bool read_layout(const ArgumentInfo &argument, PyObject *object, ReadContext &reading) noexcept;

    // After all operands have been read: RuntimeError where the code of another one (its __dlpack__, say) has
    // moved or reshaped this one's memory, so that what was read of it is no longer true.
    bool check_unchanged(const char *function) const noexcept;

    // Writes back what an unaligned `out` was computed in; nothing to do for others.
    bool finish_out() noexcept;

    const char *name() const noexcept { return access_.name; }  // the argument's
    const TensorView &view() const noexcept { return access_.view; }
    const TrackedView &access() const noexcept { return access_; }
    TrackedView &access() noexcept { return access_; }
    ElementType type() const noexcept { return access_.view.type; }
    Weak weak() const noexcept { return weak_; }
    Family family() const noexcept { return family_; }
    const dlpack::ExchangeAPI *api() const noexcept { return api_; }  // of Family::exchange
    // An array in the host's own memory, be it a value that travels with the call.
    bool on_host() const noexcept { return family_ != Family::number && !access_.location.reachable; }
    // For messages about the element type: what to do with bytes that say nothing of theirs.
    const char *advice() const noexcept {
        return untyped_ ? "; to read its bytes as another type, pass memoryview(x).cast(\"f\") or the like" : "";
    }
    PyObject *object() const noexcept { return object_; }
    const dlpack::Device &foreign_device() const noexcept { return foreign_device_; }
    const ByteLayout &layout() const noexcept { return layout_; }  // of the object's own memory
    bool has_memory() const noexcept { return layout_.data != nullptr; }
    // Whether what is written is seen by others: not where the memory is a copy that was made for the call.
    bool is_writable() const noexcept { return writable_ && !is_copy_; }

    // The operand as ndarray of its own memory, never of a subclass. For what is on the host.
    PyRef ndarray() const noexcept;

private:
    bool read_own(PyObject *object) noexcept;
    bool read_array(const ArgumentInfo &argument, PyArrayObject *array, ReadContext &reading) noexcept;
    bool read_buffer(const ArgumentInfo &argument, PyObject *object) noexcept;
    bool read_numpy_scalar(const ArgumentInfo &argument, PyObject *object) noexcept;
    bool read_library(const ArgumentInfo &argument, PyObject *object, ReadContext &reading, bool writes,
                      const TypeRecord *known = nullptr) noexcept;
    bool read_by_record(const ArgumentInfo &argument, PyObject *object, const TypeRecord &record,
                        ReadContext &reading, bool writes) noexcept;
    bool set_memory(const ArgumentInfo &argument, void *data, int ndim, const std::int64_t *shape,
                    const std::int64_t *strides, std::int64_t item_size) noexcept;
    bool make_writable(const ArgumentInfo &argument) noexcept;
    bool use_aligned_copy(const ArgumentInfo &argument) noexcept;

    PyObject *object_ = nullptr;  // borrowed from the caller's arguments
    PyRef keeper_;                // of another library's memory
    PyRef copy_;                  // aligned, in place of an array that is not
    BufferHolder buffer_;
    TrackedView access_;
    ByteLayout layout_{};
    std::int64_t byte_strides_[kMaxDims];  // what layout_ points at, but for an Array
    std::int64_t layout_shape_[kMaxDims];
    const dlpack::ExchangeAPI *api_ = nullptr;
    dlpack::Device foreign_device_{};
    Family family_ = Family::number;
    Weak weak_ = Weak::none;
    bool writable_ = false;
    bool is_copy_ = false;
    bool aligned_ = true;
    bool untyped_ = false;  // a buffer of bytes that say nothing of their type
};

// The element type and the shape of any operand, without its memory.
struct Description {
    ElementType type;
    Shape shape;
};
bool describe(ModuleState &state, const char *function, const char *argument, PyObject *object,
              Description *description) noexcept;

// A Python number, or a list or tuple: what NumPy makes an array of.
bool is_number(PyObject *object) noexcept;
Weak weak_of(PyObject *number) noexcept;
inline bool is_plain(PyObject *object) noexcept {
    return is_number(object) || PyList_Check(object) || PyTuple_Check(object);
}

}  // namespace cukern::py
