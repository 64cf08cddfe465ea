// Element types as Python knows them: NumPy's type numbers and buffer formats.
#pragma once

#include "python.h"

#include "cukern/element_type.h"

namespace cukern::py {

// False where the type is not one of ours.
bool element_type_of(int numpy_type, ElementType *type) noexcept;
int numpy_type_of(ElementType type) noexcept;

enum class Format { known, byte_swapped, untyped, unknown };

// Reads a buffer's format, in native or standard form. Untyped are single bytes, which may stand for anything.
Format element_type_of(const char *format, Py_ssize_t item_size, ElementType *type) noexcept;

// "float32, float64, int32, int64"
const char *supported_element_types() noexcept;

}  // namespace cukern::py
