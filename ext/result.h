// Where a result goes: a fresh ndarray, or `out` after all that it must satisfy.
#pragma once

#include "operand.h"

namespace cukern::py {

struct Shape {
    int ndim = 0;
    std::int64_t lengths[kMaxDims];

    Shape() noexcept {}  // NOLINT(modernize-use-equals-default): lengths stay uninitialised
};

enum class Overlap { same_allowed, none_allowed };

class Result {
public:
    // Checks `out`, if it is not null, against the result and the operands; else makes an array. A fresh
    // array keeps the operands' memory order as NumPy does, unless `operands` has to overlap nothing.
    bool prepare(const char *function, PyObject *out, const Shape &shape, ElementType type,
                 Operand *const *operands, int num_operands, Overlap overlap) noexcept;

    const TensorView &view() const noexcept { return operand_.view(); }
    PyRef ndarray() const noexcept { return operand_.ndarray(); }

    // The object to return, once the result is in it; null when writing back failed.
    PyObject *finish() noexcept;

private:
    bool check_out(const char *function, const Shape &shape, ElementType type, Operand *const *operands,
                   int num_operands, Overlap overlap) noexcept;

    PyRef object_;
    Operand operand_;
};

// The shape that two operands broadcast to; ValueError where they don't.
bool broadcast(const char *function, const Operand &a, const Operand &b, Shape *shape) noexcept;

}  // namespace cukern::py
