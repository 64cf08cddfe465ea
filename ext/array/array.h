// cukern.Array: a strided view of memory that arrays share.
#pragma once

#include "view/tracked_view.h"

#include "cukern/ops.h"
#include "cukern/storage.h"
#include "cukern/tensor_view.h"

namespace cukern::py {

// The object. Its shape and its strides, in elements, follow each other in `dimensions`.
struct Array {
    PyObject_VAR_HEAD Storage *storage;  // owned; null only while the array is being made
    PyObject *base;  // owned: the Array that this is a view of, or the foreign object whose memory it is; or null
    PyObject *weak_references;
    char *data;
    ElementType type;
    std::int16_t ndim;
    bool read_only;
    std::uint32_t layout;  // a number for its type, shape and strides (call/planned_calls.cpp); 0: none yet
    std::int64_t dimensions[1];

    std::int64_t *shape() noexcept { return dimensions; }
    const std::int64_t *shape() const noexcept { return dimensions; }
    std::int64_t *strides() noexcept { return dimensions + ndim; }
    const std::int64_t *strides() const noexcept { return dimensions + ndim; }
    MemoryKind kind() const noexcept { return storage->kind(); }
    int device() const noexcept { return storage->device(); }
    std::int64_t size() const noexcept {
        std::int64_t count = 1;
        for (int i = 0; i < ndim; ++i) count *= dimensions[i];
        return count;
    }
};

inline Array *array_of(PyObject *object) noexcept { return reinterpret_cast<Array *>(object); }
inline PyObject *object_of(Array *array) noexcept { return reinterpret_cast<PyObject *>(array); }
inline bool is_array(const ModuleState &state, PyObject *object) noexcept {
    return reinterpret_cast<PyObject *>(Py_TYPE(object)) == state.array_type;
}

// The same without the module's state, by a slot that Python code cannot replace. Nothing derives from Array.
bool is_own_array(PyObject *object) noexcept;

void view_of(const Array *array, TensorView *view) noexcept;
void tracked_view_of(const Array *array, TrackedView *access) noexcept;
bool is_c_contiguous(int ndim, const std::int64_t *shape, const std::int64_t *strides) noexcept;
bool is_f_contiguous(int ndim, const std::int64_t *shape, const std::int64_t *strides) noexcept;

// An array over `storage`, which is taken over, also on failure. `strides` in elements, null: C-contiguous.
PyRef array_over(const ModuleState &state, Storage *storage, char *data, ElementType type, int ndim,
                 const std::int64_t *shape, const std::int64_t *strides, PyObject *base, bool read_only) noexcept;

// A view of an array's memory.
PyRef array_view(Array *array, char *data, int ndim, const std::int64_t *shape,
                 const std::int64_t *strides) noexcept;

// Fresh memory in `stream`'s order, not initialised. `function` names the caller in errors: ValueError where the
// shape is too large, OutOfMemoryError after the garbage collector has had its chance, RuntimeError while the
// stream is being captured.
PyRef new_array(const ModuleState &state, const char *function, MemoryKind kind, ElementType type, int ndim,
                const std::int64_t *shape, const std::int64_t *strides, const StreamRef &stream) noexcept;

// While it lives, Arrays that this thread makes end with the call that is being made. On a stream that another
// library captures their memory is the graph's own, where new_array refuses others.
class TemporaryArrays {
public:
    TemporaryArrays() noexcept;
    ~TemporaryArrays();
    TemporaryArrays(const TemporaryArrays &) = delete;
    TemporaryArrays &operator=(const TemporaryArrays &) = delete;

private:
    bool before_;
};

// The memory order of a copy, as NumPy's letters name it: C, Fortran, Fortran if the source is (any), that of the
// source (keep).
enum class MemoryOrder : std::int8_t { c, fortran, any, keep };
// Reads an `order` argument, which is left as it is where none is given.
bool parse_order(const char *function, PyObject *object, MemoryOrder *order) noexcept;
// The strides, in elements, of a packed copy of `view` in this order.
void strides_in_order(const TensorView &view, MemoryOrder order, std::int64_t *strides) noexcept;

// A new Array of the elements and the shape of `source`, in another element type; `strides` as above.
PyRef new_copy(const ModuleState &state, const char *function, const TrackedView &source, MemoryKind kind,
               ElementType type, const std::int64_t *strides, const StreamRef &stream) noexcept;
// The same of what a call was given, in memory order `order`; refused where Python code has changed it meanwhile.
class Operand;
PyRef new_copy(const ModuleState &state, const char *function, const Operand &source, MemoryKind kind,
               ElementType type, MemoryOrder order, const StreamRef &stream) noexcept;

// The memory as ndarray, after waiting: a view where the host sees it (`share`), else a copy.
PyRef to_numpy(const ModuleState &state, const char *function, Array *array, bool share) noexcept;

// The element of an array that has one, as Python's number.
PyRef element_of(Array *array) noexcept;

// Fills an array with one value, which is in `value` as an element of `type`.
bool fill_with(const ModuleState &state, const char *function, Array *array, const Immediate &value,
               ElementType type, const StreamRef &stream) noexcept;

// A number (of Python, of NumPy, or an array without dimensions) for an element of type `target`: as a value of
// the wide type *type, which converts to it. TypeError for what is no number, OverflowError for an integer that
// the target cannot hold; with `casts` a number that has an element type of its own is converted as an array would
// be.
bool element_from(const char *function, PyObject *object, ElementType target, bool casts, ElementType *type,
                  Immediate *value) noexcept;

// A copy in memory of the same kind, with another element type; `stream` null: the current one.
PyRef converted(const ModuleState &state, const char *function, Array *array, ElementType type, MemoryOrder order,
                PyObject *stream) noexcept;
// The elements in C order as one dimension; a view where the strides allow it.
PyRef raveled(Array *array) noexcept;
// A view with dimensions of length 1 at `axis`, an int or a tuple of ints.
PyRef expanded(const char *function, Array *array, PyObject *axis) noexcept;
// A view of the elements that an index selects.
PyRef indexed(Array *array, PyObject *key) noexcept;

// Copies to a writable operand, after checking that it takes `source`; see cukern.copyto.
bool copy_checked(const ModuleState &state, const char *function, const TrackedView &source, Operand &to,
                  bool blocking, const StreamRef &stream) noexcept;
// The same to any writable object.
bool copy_to_object(const ModuleState &state, const char *function, const TrackedView &source,
                    PyObject *destination, bool blocking, const StreamRef &stream) noexcept;

// Adds the type to the module, and its parts (each in its own file).
bool add_array_type(PyObject *module, ModuleState &state) noexcept;
extern PyMethodDef kArrayMethods[];
extern PyGetSetDef kArrayAttributes[];

// Slots.
PyObject *array_repr(PyObject *self);
PyObject *array_item_at(PyObject *self, Py_ssize_t index);
PyObject *array_subscript(PyObject *self, PyObject *key);
int array_assign_subscript(PyObject *self, PyObject *key, PyObject *value);
PyObject *array_iterate(PyObject *self);
Py_ssize_t array_length(PyObject *self);
int array_get_buffer(PyObject *self, Py_buffer *buffer, int flags);
void array_release_buffer(PyObject *self, Py_buffer *buffer);
int array_bool(PyObject *self);
PyObject *array_int(PyObject *self);
PyObject *array_float(PyObject *self);
PyObject *array_complex(PyObject *self, PyObject *);
PyObject *array_index(PyObject *self);
PyObject *array_format(PyObject *self, PyObject *spec);
PyObject *array_round(PyObject *self, PyObject *args);
PyObject *array_compare(PyObject *a, PyObject *b, int how);
int array_contains(PyObject *self, PyObject *value);

// Operators, as X(name of the slot, operation). pow takes a third operand.
#define CUKERN_BINARY_OPERATORS(X) \
    X(add, add)                    \
    X(subtract, subtract)          \
    X(multiply, multiply)          \
    X(true_divide, divide)         \
    X(floor_divide, floor_divide)  \
    X(remainder, remainder)        \
    X(and, bitwise_and)            \
    X(or, bitwise_or)              \
    X(xor, bitwise_xor)            \
    X(lshift, bitwise_left_shift)  \
    X(rshift, bitwise_right_shift)
#define CUKERN_UNARY_OPERATORS(X) \
    X(negative, negative)         \
    X(positive, positive)         \
    X(absolute, abs)              \
    X(invert, bitwise_invert)
#define CUKERN_OPERATOR(name, op)                     \
    PyObject *array_##name(PyObject *a, PyObject *b); \
    PyObject *array_i##name(PyObject *a, PyObject *b);
CUKERN_BINARY_OPERATORS(CUKERN_OPERATOR)
#undef CUKERN_OPERATOR
#define CUKERN_OPERATOR(name, op) PyObject *array_##name(PyObject *a);
CUKERN_UNARY_OPERATORS(CUKERN_OPERATOR)
#undef CUKERN_OPERATOR
PyObject *array_power(PyObject *a, PyObject *b, PyObject *modulus);
PyObject *array_ipower(PyObject *a, PyObject *b, PyObject *modulus);
PyObject *array_matmul(PyObject *a, PyObject *b);
PyObject *array_imatmul(PyObject *a, PyObject *b);

// Methods that live beside what they are about.
PyObject *array_reshape(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *array_ravel(PyObject *self, PyObject *);
PyObject *array_transpose(PyObject *self, PyObject *args);
// With the last two dimensions swapped; `function` is for messages.
PyObject *array_matrix_transpose(const char *function, PyObject *self) noexcept;
PyObject *array_squeeze(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names);
PyObject *array_get(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names);
PyObject *array_item(PyObject *self, PyObject *args);
PyObject *array_tolist(PyObject *self, PyObject *);
PyObject *array_fill(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names);
PyObject *array_astype(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names);
PyObject *array_copy(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names);
PyObject *array_shallow_copy(PyObject *self, PyObject *);
PyObject *array_deepcopy(PyObject *self, PyObject *memo);
PyObject *array_reduce_ex(PyObject *self, PyObject *protocol);
PyObject *reduce_array(Op op, PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) noexcept;
PyObject *array_to_dlpack(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names);
PyObject *array_dlpack_device(PyObject *self, PyObject *);
PyObject *array_as_numpy(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names);
PyObject *array_ufunc(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *array_function(PyObject *self, PyObject *args);
PyObject *array_cuda_interface(PyObject *self, void *);

}  // namespace cukern::py
