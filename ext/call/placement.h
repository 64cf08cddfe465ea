// Where calls on arrays of the host run: the block `placement`, and what `explain_placement` is told.
#pragma once

#include "base/python.h"

#include <atomic>

#include "cukern/placement.h"

namespace cukern::py {

// The type `placement`; part of the module's initialisation.
bool add_placement_type(PyObject *module) noexcept;

// How many threads are explaining calls. Most calls find none and look no further.
inline std::atomic<int> g_explaining{0};

// Whether the thread only wants to know where its calls would run: they compute nothing.
bool thread_is_explaining() noexcept;
inline bool is_explaining() noexcept {
    return g_explaining.load(std::memory_order_relaxed) != 0 && thread_is_explaining();
}

// Adds a choice to the explanation that the thread is making.
void note_choice(const PlacementChoice &choice) noexcept;

template <typename Call>
Placement choose_and_explain(const Call &call, const Execution &where) noexcept {
    const bool explains = is_explaining();
    const PlacementChoice choice = choose_placement(call, where, explains);
    if (explains) note_choice(choice);
    return choice.placement;
}

}  // namespace cukern::py
