// Where a call runs and where its result goes: a fresh array of the operands' kind, or `out` after all that it
// must satisfy.
#pragma once

#include "operand.h"

#include "cukern/ops.h"

namespace cukern::py {

enum class Overlap { same_allowed, none_allowed };

// A call on host memory is staged; one on memory that a device reaches is enqueued on a stream.
struct Site {
    bool on_device = false;
    StreamRef stream;
};

// What a call is asked for, beside its operands.
struct Request {
    const ModuleState &state;
    const char *function;
    PyObject *out;     // null: none
    PyObject *stream;  // null: none
};

// The stream that producers are asked to be ready for, before it is known where the call runs.
bool consumer_of(const Request &request, StreamRef *consumer) noexcept;

class Result {
public:
    // Reads and checks `out`, if there is one, decides where the call runs, and else makes an array. A fresh array
    // keeps the operands' memory order as NumPy does, unless it has to overlap nothing.
    bool prepare(const Request &request, const Shape &shape, ElementType type, Operand *const *operands,
                 int num_operands, Overlap overlap, Reading &reading) noexcept;

    const Site &site() const noexcept { return site_; }
    const TensorView &view() const noexcept { return operand_.view(); }
    const Operand &operand() const noexcept { return operand_; }
    PyRef ndarray() const noexcept { return operand_.ndarray(); }

    // On a device: orders the operands' work before the call, and what follows after it.
    bool begin(const Request &request, Operand *const *operands, int num_operands) noexcept;
    bool end(const Request &request, Operand *const *operands, int num_operands) noexcept;

    // Has `launch` give the device its work, or the host do it, without the GIL where that takes time. Out of
    // memory it is tried again after a collection: nothing has been written then.
    template <typename Launch>
    bool compute(const Request &request, Backend backend, const Launch &launch) const noexcept {
        Status status = CUKERN_OK;
        if (site_.on_device && backend == Backend::cuda) {
            status = launch();
        } else {
            const GilRelease released;
            status = launch();
        }
        if (status == CUKERN_OUT_OF_MEMORY) status = retry_after_collection(launch);
        return status == CUKERN_OK || raise_failure(request.state, request.function, status);
    }

    // The object to return, once the result is in it; null when writing back failed.
    PyObject *finish(const ModuleState &state) noexcept;

private:
    bool decide_site(const Request &request, Operand *const *operands, int num_operands) noexcept;
    bool make(const Request &request, const Shape &shape, ElementType type, Operand *const *operands,
              int num_operands, Overlap overlap, Reading &reading) noexcept;
    bool check_out(const char *function, const Shape &shape, ElementType type, Operand *const *operands,
                   int num_operands, Overlap overlap) noexcept;

    PyRef object_;
    PyObject *like_ = nullptr;  // borrowed: the operand whose library the result is handed to at the end
    Operand operand_;
    Site site_;
};

// Makes `shape`, that of `a`, the one to which it broadcasts with b; ValueError where they don't.
bool broadcast_onto(const char *function, const Operand &a, const Operand &b, Shape *shape) noexcept;

}  // namespace cukern::py
