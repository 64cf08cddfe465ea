// The active `with Stream` and `with Device` blocks of the current context (contextvars).
//
// Idea: one context variable holds an immutable chain of entries, the innermost block first. Entering puts an
// entry in front; leaving unlinks the own entry wherever it is in the chain. So blocks of interleaved tasks,
// generators and threads don't mix, and the blocks of a thread that ends go with its context. A task that is made
// inside a block starts with a copy of the chain and keeps it. A block that is left in another context than the
// one that it was entered in, as when a task closes the generator of another, is marked: its entry counts no more.
#pragma once

#include <atomic>

#include "streams/streams.h"

namespace cukern::py {

// One `with` block, which its entry and the Stream or Device share.
struct WithBlock {
    const void *frame = nullptr;  // that entered it, for comparison alone
    WithBlock *next = nullptr;    // of the same object, not left either
    WithBlock **list = nullptr;   // of the object, while the block is in it
    int references = 0;
    bool is_left = false;
    bool is_void = false;  // left in another context: entries of it count no more
};

// How many blocks are active in any context. Atomic, since the exchange API's current_stream is called without the
// GIL.
inline std::atomic<int> g_active_blocks{0};

// Most calls find none and never touch the context variable.
inline bool any_active_blocks() noexcept { return g_active_blocks.load(std::memory_order_relaxed) != 0; }

// Makes the context variable; part of the module's initialisation.
bool make_active_blocks(ModuleState &state) noexcept;

// The Stream of the innermost active block of one, held; `stream` stays as it is where there is none. False with
// an exception set.
bool find_active_stream(const ModuleState &state, HeldStream *stream, bool *is_active) noexcept;
inline bool active_stream(const ModuleState &state, HeldStream *stream, bool *is_active) noexcept {
    *is_active = false;
    return !any_active_blocks() || find_active_stream(state, stream, is_active);
}

// The Stream object itself, where it is of `device`; else null.
bool active_stream_object(const ModuleState &state, int device, PyRef *stream) noexcept;

// The Stream object of the innermost block; null where that is of a Device or there is none.
bool innermost_stream(const ModuleState &state, PyRef *stream) noexcept;

// The device of the innermost block of a Device.
bool active_device(const ModuleState &state, int *device, bool *is_active) noexcept;

// `self` is a Stream or a Device. `blocks` are those of `self` that are not left yet.
bool enter_block(const ModuleState &state, PyObject *self, WithBlock **blocks) noexcept;
// RuntimeError where no block of `self` is active anywhere.
bool leave_block(const ModuleState &state, PyObject *self, const char *what, WithBlock **blocks) noexcept;
// The object goes; the blocks that it has not left went with their contexts.
void forget_blocks(WithBlock *blocks) noexcept;

}  // namespace cukern::py
