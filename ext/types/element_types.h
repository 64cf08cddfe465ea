// Element types as Python knows them: NumPy's type numbers and dtypes, buffer formats, DLPack's codes.
#pragma once

#include "base/module_state.h"
#include "types/dlpack.h"

#include "cukern/element_type.h"

namespace cukern::py {

// False where the type is not one of ours.
bool element_type_of(int numpy_type, ElementType *type) noexcept;
int numpy_type_of(ElementType type) noexcept;  // -1 for bfloat16

// Raises OverflowError: an integer does not fit the type. False.
bool refuse_out_of_bounds(PyObject *number, ElementType type) noexcept;
// Also recognises ml_dtypes.bfloat16, which has no fixed number.
bool element_type_of(const ModuleState &state, PyArray_Descr *descr, ElementType *type) noexcept;
bool element_type_of(const dlpack::DataType &dtype, ElementType *type) noexcept;
dlpack::DataType dlpack_type_of(ElementType type) noexcept;

enum class Format { known, byte_swapped, untyped, unknown };

// Reads a buffer's format, in native or standard form. Untyped are single bytes, which may stand for anything.
Format element_type_of(const char *format, Py_ssize_t item_size, ElementType *type) noexcept;

// numpy.dtype, of which NumPy has one for every type but bfloat16: that one's is ml_dtypes' where it has been
// imported; else null without an exception.
PyRef numpy_dtype(const ModuleState &state, ElementType type) noexcept;
// What `Array.dtype` is: the same, but always cukern.bfloat16 for that one, so that it is one object with one hash
// whether or not ml_dtypes has been imported.
PyRef dtype_of(const ModuleState &state, ElementType type) noexcept;
// Reads a `dtype` argument: whatever NumPy takes, "bfloat16", cukern.bfloat16, ml_dtypes' bfloat16. TypeError for
// what is not one of ours.
bool parse_dtype(const ModuleState &state, const char *function, PyObject *object, ElementType *type) noexcept;
// TypeError that names the package which NumPy needs for bfloat16.
void raise_no_bfloat16(const char *function) noexcept;

// All of them.
const char *all_element_types() noexcept;

bool add_element_types(PyObject *module, ModuleState &state) noexcept;

}  // namespace cukern::py
