// Where a call runs and where its result goes: a fresh array of the operands' kind, or `out` after all that it
// must satisfy.
#pragma once

#include <initializer_list>

#include "base/backend.h"
#include "base/long_release.h"
#include "call/operand.h"
#include "call/placement.h"

#include "cukern/operations.h"

namespace cukern::py {

// Two blocks of our own. What was adopted may be part of any other memory.
inline bool are_apart(const Storage *a, const Storage *b) noexcept {
    return a != nullptr && b != nullptr && a != b && !a->is_adopted() && !b->is_adopted();
}

enum class Overlap { same_allowed, none_allowed };

// What a call is asked for, beside its operands.
struct Request {
    const ModuleState &state;
    const char *function;
    PyObject *out;     // null: none
    PyObject *stream;  // null: none
};

// The stream that producers are asked to be ready for, before it is known where the call runs.
bool consumer_of(const Request &request, ReadContext &reading) noexcept;

// What every call begins with: the back-end, and that stream.
inline bool begin_call(ModuleState &state, const Request &request, Backend *backend,
                       ReadContext &reading) noexcept {
    return ensure_backend(state, request.function, backend) && consumer_of(request, reading);
}

class Result {
public:
    // Reads and checks `out`, if there is one, decides where the call runs, and else makes an array. A fresh array
    // keeps the operands' memory order as NumPy does, unless it has to overlap nothing; or that of `order`, a view
    // of its dimensions.
    bool prepare(const Request &request, const Shape &shape, ElementType type, Operand *const *operands,
                 int num_operands, Overlap overlap, ReadContext &reading,
                 const TensorView *order = nullptr) noexcept;

    const TensorView &view() const noexcept { return operand_.view(); }
    bool is_on_device() const noexcept { return execution_.on_device; }

    // Decides whether a call on the host's memory runs there.
    template <typename Call>
    Placement place(const Call &call) noexcept {
        if (!execution_.on_device && execution_.placement == Placement::automatic)
            execution_.placement = choose_and_explain(call, execution_);
        return execution_.on_device ? Placement::device : execution_.placement;
    }

    // Waits for pending work, runs `launch`, records the uses, and returns the result. Out of memory: collects
    // garbage and runs `launch` again, so a launch that fails so must not have changed its operands.
    template <typename Call, typename Launch>
    PyObject *perform(const Request &request, Backend backend, Operand *const *operands, int num_operands,
                      const Call &call, const Launch &launch) noexcept {
        const Placement placement = place(call);
        if (!execution_.on_device && is_explaining()) return object_.release();
        const bool enqueues = execution_.on_device && backend == Backend::cuda;
        const bool computes = execution_.on_device || placement == Placement::host;
        const bool keeps_gil = enqueues || (computes && is_brief(operands, num_operands));
        const auto attempt = [&] {
            if (keeps_gil) return launch(execution_);
            const LongRelease released(request.state);
            return launch(execution_);
        };
        if (!begin(request, operands, num_operands)) return nullptr;
        Status status = attempt();
        if (status == CUKERN_OUT_OF_MEMORY && collect_garbage()) {
            // Code of Python has run meanwhile, and other threads.
            if (!check_unchanged(request, operands, num_operands) || !begin(request, operands, num_operands)) {
                wait_after_failure(backend);
                return nullptr;
            }
            status = attempt();
        }
        if (status != CUKERN_OK) {
            wait_after_failure(backend);
            raise_failure(request.state, request.function, status);
            return nullptr;
        }
        return end(request, operands, num_operands) && warn_of_refusal() ? finish(request.state) : nullptr;
    }

private:
    // Before the call: makes its stream (or the host) wait for pending work. After it: records the uses.
    bool begin(const Request &request, Operand *const *operands, int num_operands) noexcept;
    bool end(const Request &request, Operand *const *operands, int num_operands) noexcept;

    // The object to return, once the result is in it; null when writing back failed.
    PyObject *finish(const ModuleState &state) noexcept;

    // False with RuntimeError where code that ran has given an operand other memory.
    bool check_unchanged(const Request &request, Operand *const *operands, int num_operands) const noexcept;
    // Whether the host computes it in less time than giving the GIL up and taking it again is worth.
    bool is_brief(Operand *const *operands, int num_operands) const noexcept;
    // After a failure: waits for what was launched before it, of which nothing else knows. Errors stay as they
    // are.
    void wait_after_failure(Backend backend) const noexcept;
    bool choose_execution(const Request &request, Operand *const *operands, int num_operands) noexcept;
    bool make(const Request &request, const Shape &shape, ElementType type, Operand *const *operands,
              int num_operands, Overlap overlap, ReadContext &reading, const TensorView *order) noexcept;
    bool check_out(const char *function, const Shape &shape, ElementType type, Operand *const *operands,
                   int num_operands, Overlap overlap) noexcept;

    PyRef object_;
    PyObject *like_ = nullptr;  // borrowed: the operand whose library the result is handed to at the end
    Operand operand_;
    Execution execution_;
    HeldStream held_stream_;  // keeps execution_.stream alive: operands' code may drop its Python object
};

// Makes `shape`, that of `a`, the one to which it broadcasts with b; ValueError where they don't.
bool broadcast_onto(const char *function, const Operand &a, const Operand &b, Shape *shape) noexcept;

// The stream of a call: `given` (null or None: none), else the innermost active one, else that of the first array
// whose library has one, else the legacy default stream. It is of `device`; -1: of no array here, so that any
// does.
bool choose_stream(const ModuleState &state, const char *function, PyObject *given, int device,
                   std::initializer_list<const TrackedView *> accesses, HeldStream *stream) noexcept;

}  // namespace cukern::py
