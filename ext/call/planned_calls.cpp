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

struct PlannedCall {
    Op op;
    bool is_fresh;
    bool in_use = false;               // by a call in which other code may run
    ArrayLayout layouts[kMostArrays];  // of the result, then of the operands
    ElementwisePlan *plan = nullptr;

    PlannedCall() noexcept = default;
    PlannedCall(const PlannedCall &) = delete;
    PlannedCall &operator=(const PlannedCall &) = delete;
    ~PlannedCall() { delete plan; }
};

}  // namespace

struct PlannedCalls {
    PlannedCall *kept[kMostPlans] = {};
    std::uint64_t missed[kMostPlans] = {};  // hash of the last call that was not found
};

namespace {

unsigned slot_of(Op op, const Array *first, bool is_fresh) noexcept {
    const auto length = static_cast<unsigned>(first->ndim > 0 ? first->dimensions[first->ndim - 1] : 0);
    const unsigned key = static_cast<unsigned>(op) * 4 + static_cast<unsigned>(first->type) * 32 +
                         static_cast<unsigned>(first->ndim) * 2 + static_cast<unsigned>(is_fresh) + length * 5;
    return (key ^ (key >> 6) ^ (key >> 12)) % kMostPlans;
}

// FNV-1a, by words.
void hash_into(std::uint64_t *hash, const Array *array) noexcept {
    constexpr std::uint64_t kPrime = 0x100000001B3;
    const auto kind = static_cast<std::uint64_t>(array->type) << 16 | static_cast<std::uint64_t>(array->ndim);
    *hash = (*hash ^ kind) * kPrime;
    for (int i = 0; i < 2 * array->ndim; ++i)
        *hash = (*hash ^ static_cast<std::uint64_t>(array->dimensions[i])) * kPrime;
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
    PlannedCall *call = state.plans->kept[slot_of(op, arrays[1], out == nullptr)];
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

// A call whose plan is used: no other takes it or replaces it meanwhile.
class Use {
public:
    explicit Use(PlannedCall *call) noexcept : call_(call) { call_->in_use = true; }
    Use(const Use &) = delete;
    Use &operator=(const Use &) = delete;
    ~Use() { call_->in_use = false; }

private:
    PlannedCall *call_;
};

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
    const Use use(call);
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
        fresh = new_array(state, function, arrays[1]->kind(), layout.type, layout.ndim, layout.dimensions,
                          layout.dimensions + layout.ndim, stream);
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
        if (!are_together(arrays[i]->storage, arrays[0]->storage)) return;
        if (backend == Backend::host && arrays[i]->size() > kBriefCount) return;  // it gives the GIL up
    }
    if (state.plans == nullptr) state.plans = new (std::nothrow) PlannedCalls;
    if (state.plans == nullptr) return;
    const unsigned place = slot_of(call.op, array_of(operands[0]->object()), is_fresh);
    PlannedCall *&slot = state.plans->kept[place];
    if (slot != nullptr && slot->in_use) return;
    std::uint64_t hash = 0xCBF29CE484222325 + static_cast<std::uint64_t>(call.op) * 2 + (is_fresh ? 1 : 0);
    for (int i = 0; i <= num_operands; ++i) hash_into(&hash, arrays[i]);
    // Only what is called twice in a row, so that calls that take turns don't make plans for nothing.
    if (std::exchange(state.plans->missed[place], hash) != hash) return;
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
    PlannedCalls *plans = std::exchange(state.plans, nullptr);
    for (int i = 0; plans != nullptr && i < kMostPlans; ++i) delete plans->kept[i];
    delete plans;
}

}  // namespace cukern::py
