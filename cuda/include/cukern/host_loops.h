// Loops over elements on the processor that another library has: the extension hands over NumPy's.
#pragma once

#include <cstdint>

#include "cukern/ops.h"
#include "cukern/status.h"

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

// The loop for `count` elements of packed operands in host memory, if no other place and no second thread could be
// worth it: such a call needs no plan. Unless they are all packed, one is a value, with a stride of 0. Without a
// function where there is none.
HostLoop brief_loop(Op op, ElementType inputs, std::int64_t count, bool are_packed) noexcept;
// Calls it; it counts as a launch, and as a call on the processor.
Status call_brief_loop(const HostLoop &loop, char **data, std::int64_t count,
                       const std::intptr_t *strides) noexcept;

// Products of matrices of a type: `count` holds their number, m, k and n, and the strides are those from product
// to product of both inputs and of out, then those of rows and columns.
void set_host_product(ElementType type, const HostLoop &loop) noexcept;

}  // namespace cukern
