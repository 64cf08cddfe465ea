// Elementwise calls and products that repeat the layouts of an earlier one's Arrays, or packed tensors of torch on
// a GPU.
//
// Idea: programs make the same calls again and again, on other memory. What promotion, broadcasting, the checks
// and the planning of a call come to depends on the layouts of its arrays alone (element types, shapes, strides),
// so it is kept by operation and layouts. A call that is found orders itself after pending work, launches and
// records its uses; one of tensors runs on torch's current stream, in whose order torch has them. Anything out of
// the ordinary (a stream that is given, memory of several kinds, overlap, no memory left, a tensor that requires
// gradients) goes the long way, which also tells what is wrong.
#pragma once

#include "array/array.h"
#include "call/operand.h"

#include "cukern/operations.h"

namespace cukern::py {

// What is called: a row of the table, or a product by one of the ways to compute it.
struct PlannedFunction {
    int id;               // of no other one
    bool works_in_place;  // out may be exactly an operand
    const char *name;     // for messages

    explicit PlannedFunction(Op op) noexcept
        : id(static_cast<int>(op)), works_in_place(true), name(info(op).name) {}
    PlannedFunction(MatmulAlgorithm algorithm, const char *function) noexcept
        : id(-1 - static_cast<int>(algorithm)), works_in_place(false), name(function) {}
};

// Whether a call was made so. *result is then what it returns, or null with an exception set. `out` may be null.
bool run_planned(ModuleState &state, const PlannedFunction &function, PyObject *const *operands, int num_operands,
                 PyObject *out, PyObject **result) noexcept;

// Keeps what a call has come to, if all are Arrays in one kind of memory, or all are packed tensors of torch on
// one GPU, and the call is made for the second time in a row. `out` is the result, at `result`, which was made for
// the call where `is_fresh`. Of an ElementwiseCall or a MatmulCall.
template <typename Call>
void keep_plan(ModuleState &state, Backend backend, const PlannedFunction &function, const Call &call,
               const TensorView &result, Operand *const *operands, int num_operands, PyObject *out,
               bool is_fresh) noexcept;

void clear_plans(ModuleState &state) noexcept;

}  // namespace cukern::py
