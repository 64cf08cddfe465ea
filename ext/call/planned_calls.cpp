#include "base/python.h"

#include "call/planned_calls.h"

#include <new>
#include <utility>

#include "base/errors.h"
#include "call/result.h"
#include "streams/with_blocks.h"

#include "cukern/backend.h"

namespace cukern::py {

namespace {

constexpr int kMostPlans = 64;
constexpr int kMostDims = 6;  // of an Array whose layout is kept
constexpr int kMostArrays = kMaxInputs + 1;

// What an Array is, but for its address.
struct ArrayLayout {
    std::int64_t dimensions[2 * kMostDims];
    ElementType type;
    std::int16_t ndim;

    void set(const Array *array) noexcept {
        type = array->type;
        ndim = array->ndim;
        for (int i = 0; i < 2 * ndim; ++i) dimensions[i] = array->dimensions[i];
    }
    bool is_of(const Array *array) const noexcept {
        if (array->type != type || array->ndim != ndim) return false;
        for (int i = 0; i < 2 * ndim; ++i)
            if (array->dimensions[i] != dimensions[i]) return false;
        return true;
    }
};

}  // namespace

struct PlannedCall {
    Op op;
    bool is_fresh;
    bool in_use = false;               // while it is, other threads may run
    ArrayLayout layouts[kMostArrays];  // of the result, then of the operands
    ElementwisePlan *plan = nullptr;

    PlannedCall() noexcept = default;
    PlannedCall(const PlannedCall &) = delete;
    PlannedCall &operator=(const PlannedCall &) = delete;
    ~PlannedCall() { delete plan; }
};

namespace {

unsigned slot_of(Op op, const Array *first, bool is_fresh) noexcept {
    const auto length = static_cast<unsigned>(first->ndim > 0 ? first->dimensions[first->ndim - 1] : 0);
    const unsigned key = static_cast<unsigned>(op) * 4 + static_cast<unsigned>(first->type) * 32 +
                         static_cast<unsigned>(first->ndim) * 2 + static_cast<unsigned>(is_fresh) + length * 5;
    return (key ^ (key >> 6) ^ (key >> 12)) % kMostPlans;
}

bool are_together(const Storage *a, const Storage *b) noexcept {
    return a == b || (a->kind() == b->kind() && a->device() == b->device());
}

bool have_same_layout(const Array *a, const Array *b) noexcept {
    ArrayLayout layout;
    if (a->ndim > kMostDims) return false;
    layout.set(a);
    return layout.is_of(b);
}

// Whether `out` can take the result of an operand: memory of its own, or the very same.
bool takes_result_of(const Array *out, const Array *operand) noexcept {
    return are_apart(out->storage, operand->storage) ||
           (out->data == operand->data && have_same_layout(out, operand));
}

// The call kept for arrays[0] (`out`, or null) and the operands after it, if it may be made so.
PlannedCall *find(const ModuleState &state, Op op, Array *const *arrays, int num_arrays) noexcept {
    const Array *out = arrays[0];
    PlannedCall *call = state.plans[slot_of(op, arrays[1], out == nullptr)];
    if (call == nullptr || call->op != op || call->is_fresh != (out == nullptr) || call->in_use) return nullptr;
    if (out != nullptr && (out->read_only || out->storage->exports() != 0 || !call->layouts[0].is_of(out) ||
                           !are_together(out->storage, arrays[1]->storage)))
        return nullptr;
    for (int i = 1; i < num_arrays; ++i)
        if (!call->layouts[i].is_of(arrays[i]) || !are_together(arrays[i]->storage, arrays[1]->storage) ||
            (out != nullptr && !takes_result_of(out, arrays[i])))
            return nullptr;
    return call;
}

// Orders, launches and records one call. False without an exception where memory ran out.
bool launch(const ModuleState &state, PlannedCall *call, Array *const *arrays, int num_arrays,
            const StreamRef &stream) noexcept {
    const char *function = info(call->op).name;
    void *data[kMostArrays];
    for (int i = num_arrays - 1; i >= 0; --i) {
        const Status status = arrays[i]->storage->wait_before_use(stream, i == 0);
        if (status != CUKERN_OK) return raise_failure(state, function, status);
        data[i] = arrays[i]->data;
    }
    Status status = call->plan->launch(data, stream);
    if (status == CUKERN_OUT_OF_MEMORY) return false;
    if (status != CUKERN_OK) {
        Backend backend = Backend::host;
        if (active_backend(&backend) == CUKERN_OK && backend == Backend::cuda) synchronize_after_failure(stream);
        return raise_failure(state, function, status);
    }
    for (int i = num_arrays - 1; status == CUKERN_OK && i >= 0; --i)
        status = arrays[i]->storage->record_use(stream, i == 0);
    return status == CUKERN_OK || raise_failure(state, function, status);
}

}  // namespace

bool run_planned(ModuleState &state, Op op, PyObject *const *operands, int num_operands, PyObject *out,
                 PyObject **result) noexcept {
    Array *arrays[kMostArrays] = {};
    if (state.plans == nullptr || (out != nullptr && !is_array(state, out))) return false;
    arrays[0] = out != nullptr ? array_of(out) : nullptr;
    arrays[1] = array_of(operands[0]);
    for (int i = 1; i < num_operands; ++i) {
        if (!is_array(state, operands[i])) return false;
        arrays[i + 1] = array_of(operands[i]);
    }
    PlannedCall *call = find(state, op, arrays, num_operands + 1);
    if (call == nullptr) return false;
    *result = nullptr;
    const char *function = info(op).name;
    HeldStream stream;
    if (!any_active_blocks())
        stream.set_default(arrays[1]->device());
    else if (!choose_stream(state, function, nullptr, arrays[1]->device(), {}, &stream))
        return true;
    PyRef fresh;
    if (out == nullptr) {
        const ArrayLayout &layout = call->layouts[0];
        call->in_use = true;
        fresh = new_array(state, function, arrays[1]->kind(), layout.type, layout.ndim, layout.dimensions,
                          layout.dimensions + layout.ndim, stream);
        call->in_use = false;
        if (!fresh) return true;
        arrays[0] = array_of(fresh.get());
    }
    if (!launch(state, call, arrays, num_operands + 1, stream)) return PyErr_Occurred() != nullptr;
    *result = out != nullptr ? PyRef::borrow(out).release() : fresh.release();
    return true;
}

void keep_plan(ModuleState &state, Backend backend, const ElementwiseCall &call, Operand *const *operands,
               int num_operands, PyObject *out, bool is_fresh) noexcept {
    Array *arrays[kMostArrays] = {};
    for (int i = 0; i <= num_operands; ++i) {
        PyObject *object = i == 0 ? out : operands[i - 1]->object();
        if (!is_array(state, object) || array_of(object)->ndim > kMostDims) return;
        arrays[i] = array_of(object);
        if (backend == Backend::host && arrays[i]->size() > kBriefCount) return;  // it gives the GIL up
    }
    if (state.plans == nullptr) state.plans = new (std::nothrow) PlannedCall *[kMostPlans]();
    if (state.plans == nullptr) return;
    PlannedCall *&slot = state.plans[slot_of(call.op, array_of(operands[0]->object()), is_fresh)];
    if (slot != nullptr && slot->in_use) return;
    auto *kept = new (std::nothrow) PlannedCall;
    if (kept == nullptr) return;
    kept->plan = ElementwisePlan::make(call);
    kept->op = call.op;
    kept->is_fresh = is_fresh;
    for (int i = 0; i <= num_operands; ++i) kept->layouts[i].set(arrays[i]);
    if (kept->plan != nullptr) std::swap(slot, kept);
    delete kept;
}

void clear_plans(ModuleState &state) noexcept {
    PlannedCall **plans = std::exchange(state.plans, nullptr);
    for (int i = 0; plans != nullptr && i < kMostPlans; ++i) delete plans[i];
    delete[] plans;
}

}  // namespace cukern::py
