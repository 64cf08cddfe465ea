// Loops over elements on the processor that another library has: the extension hands over NumPy's.
#pragma once

#include <cstdint>

#include "cukern/ops.h"

namespace cukern {

// Computes `*count` elements: data and strides (in bytes) of the inputs, then of out. It may be called by any
// thread.
using LoopFunction = void (*)(char **data, const std::intptr_t *count, const std::intptr_t *strides,
                              void *context);

struct HostLoop {
    LoopFunction function = nullptr;  // null: there is none, and our own formula is taken
    void *context = nullptr;
};

// Finds the index of the first of the largest, or of the least, packed elements, of which there is one at least.
using HostIndexFunction = int (*)(void *data, std::intptr_t count, std::intptr_t *index, void *unused);
void set_host_index_function(ElementType type, bool finds_max, HostIndexFunction function) noexcept;

// Of an operation whose inputs are all of a type, as it returns them from that type. Before the first operation.
void set_host_loop(Op op, ElementType inputs, const HostLoop &loop) noexcept;

// Products of matrices of a type: `count` holds 1, m, k and n, and the strides are three that are not used, then
// those of rows and columns of both inputs and of out.
void set_host_product(ElementType type, const HostLoop &loop) noexcept;

}  // namespace cukern
