#include "base/python.h"

#include "call/planned_calls.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/errors.h"
#include "call/array_layouts.h"
#include "call/result.h"
#include "streams/with_blocks.h"

#include "cukern/backend.h"

namespace cukern::py {

namespace {

constexpr int kMostPlans = 64;

struct PlannedCall {
    int function;  // PlannedFunction::id
    bool is_fresh;
    bool in_use = false;                       // by a call in which other code may run
    int device = 0;                            // of tensors
    const dlpack::ExchangeAPI *api = nullptr;  // of tensors; null: of Arrays
    std::unique_ptr<LaunchPlan> plan;
    std::uint32_t numbers[kMostArrays] = {};  // Array::layout of those below
    Layouts layouts;                          // of the result, then of the operands

    PlannedCall(int id, bool fresh) noexcept : function(id), is_fresh(fresh) {}
};

}  // namespace

struct PlannedCalls {
    std::unique_ptr<PlannedCall> kept[kMostPlans];
    std::uint32_t last_number = 0;
    std::uint64_t missed[kMostPlans] = {};   // hash of the last call that was not found
    std::uint64_t refused[kMostPlans] = {};  // of the last one that has no plan
};

namespace {

unsigned slot_of(int function, const PlainArray &first, bool is_fresh, bool is_tensor) noexcept {
    const auto length = static_cast<unsigned>(first.ndim > 0 ? first.shape[first.ndim - 1] : 0);
    const unsigned key = static_cast<unsigned>(function) * 4 + static_cast<unsigned>(first.type) * 32 +
                         static_cast<unsigned>(first.ndim) * 2 + static_cast<unsigned>(is_fresh) + length * 5 +
                         (is_tensor ? 17 : 0);
    return (key ^ (key >> 6) ^ (key >> 12)) % kMostPlans;
}

bool are_together(const Storage *a, const Storage *b) noexcept {
    return a == b || (a->kind() == b->kind() && a->device() == b->device());
}

bool have_same_layout(const Array *a, const Array *b) noexcept {
    if (a->layout == b->layout && a->layout != 0) return true;
    if (a->type != b->type || a->ndim != b->ndim) return false;
    for (int i = 0; i < 2 * a->ndim; ++i)
        if (a->dimensions[i] != b->dimensions[i]) return false;
    return true;
}

// Whether `out` can take the result of an operand: memory of its own, or the very same.
bool takes_result_of(const PlannedFunction &function, const Array *out, const Array *operand) noexcept {
    return are_apart(out->storage, operand->storage) ||
           (function.works_in_place && out->data == operand->data && have_same_layout(out, operand));
}

[[gnu::hot]] PlannedCall *kept_call(const ModuleState &state, int function, const PlainArray &first, bool is_fresh,
                                    const dlpack::ExchangeAPI *api) noexcept {
    PlannedCall *call = state.plans->kept[slot_of(function, first, is_fresh, api != nullptr)].get();
    return call != nullptr && call->function == function && call->is_fresh == is_fresh && call->api == api &&
                   !call->in_use
               ? call
               : nullptr;
}

// Whether an Array is of the layout that the call has at `index`. One that is gets its number, so that the next
// look at it is a comparison of two numbers.
bool has_layout(Array *array, const PlannedCall &call, int index) noexcept {
    if (array->layout == call.numbers[index]) return true;
    if (!call.layouts.match(plain(array), index)) return false;
    array->layout = call.numbers[index];
    return true;
}

// The call kept for arrays[0] (`out`, or null) and the operands after it, if it may be made so.
PlannedCall *find(const ModuleState &state, const PlannedFunction &function, Array *const *arrays,
                  int num_arrays) noexcept {
    const Array *out = arrays[0];
    PlannedCall *call = kept_call(state, function.id, plain(arrays[1]), out == nullptr, nullptr);
    if (call == nullptr) return nullptr;
    if (out != nullptr && (out->read_only || out->storage->exports() != 0 || !has_layout(arrays[0], *call, 0) ||
                           !are_together(out->storage, arrays[1]->storage)))
        return nullptr;
    for (int i = 1; i < num_arrays; ++i)
        if (!has_layout(arrays[i], *call, i) || !are_together(arrays[i]->storage, arrays[1]->storage) ||
            (out != nullptr && !takes_result_of(function, out, arrays[i])))
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

// False without an exception where memory ran out, or the plan was made for another back-end.
bool launch(const ModuleState &state, const char *function, const PlannedCall &call, void *const *data,
            const StreamRef &stream) noexcept {
    const Status status = call.plan->launch(data, stream);
    if (status == CUKERN_OK) return true;
    if (status == CUKERN_OUT_OF_MEMORY || status == CUKERN_NOT_SUPPORTED) return false;
    Backend backend = Backend::host;
    if (active_backend(&backend) == CUKERN_OK && backend == Backend::cuda) synchronize_after_failure(stream);
    return raise_failure(state, function, status);
}

// Orders, launches and records one call of Arrays. False without an exception as above.
bool launch_ordered(const ModuleState &state, const char *function, const PlannedCall &call, Array *const *arrays,
                    int num_arrays, const StreamRef &stream) noexcept {
    void *data[kMostArrays];
    bool is_ordered = !any_graph_captured();  // by the stream itself
    for (int i = 0; i < num_arrays; ++i) {
        is_ordered = is_ordered && arrays[i]->storage->is_used_on(stream);
        data[i] = arrays[i]->data;
    }
    if (is_ordered) {
        if (!launch(state, function, call, data, stream)) return false;
        for (int i = 0; i < num_arrays; ++i) arrays[i]->storage->record_again(i == 0);
        return true;
    }
    for (int i = num_arrays - 1; i >= 0; --i) {
        const Status status = arrays[i]->storage->wait_before_use(stream, i == 0);
        if (status != CUKERN_OK) return raise_failure(state, function, status);
    }
    if (!launch(state, function, call, data, stream)) return false;
    for (int i = num_arrays - 1; i >= 0; --i) {
        const Status status = arrays[i]->storage->record_use(stream, i == 0);
        if (status != CUKERN_OK) return raise_failure(state, function, status);
    }
    return true;
}

// The first operand is an Array.
bool run_arrays(const ModuleState &state, const PlannedFunction &function, PyObject *const *operands,
                int num_operands, PyObject *out, PyObject **result) noexcept {
    Array *arrays[kMostArrays] = {};
    if (out != nullptr && !is_array(state, out)) return false;
    arrays[0] = out != nullptr ? array_of(out) : nullptr;
    arrays[1] = array_of(operands[0]);
    for (int i = 1; i < num_operands; ++i) {
        if (!is_array(state, operands[i])) return false;
        arrays[i + 1] = array_of(operands[i]);
    }
    PlannedCall *call = find(state, function, arrays, num_operands + 1);
    if (call == nullptr) return false;
    const Use use(call);
    *result = nullptr;
    HeldStream stream;
    if (!any_active_blocks())
        stream.set_default(arrays[1]->device());
    else if (!choose_stream(state, function.name, nullptr, arrays[1]->device(), {}, &stream))
        return true;
    PyRef fresh;
    if (out == nullptr) {
        const Layouts &layouts = call->layouts;
        fresh = new_array(state, function.name, arrays[1]->kind(), layouts.type(), layouts.ndim(), layouts.shape(),
                          layouts.strides(), stream);
        if (!fresh) return true;
        arrays[0] = array_of(fresh.get());
        arrays[0]->layout = call->numbers[0];
    }
    if (!launch_ordered(state, function.name, *call, arrays, num_operands + 1, stream))
        return PyErr_Occurred() != nullptr;
    *result = out != nullptr ? PyRef::borrow(out).release() : fresh.release();
    return true;
}

// A tensor of torch in a device's memory, with dimensions of its own: code that runs later may change the
// tensor's. That it is packed and real follows from a kept layout (see keep_plan).
struct PlainTensor {
    PlainArray array;
    std::int32_t device;
    std::int64_t dimensions[2 * kMostDims];
};

// False, maybe with an exception, where it has to be read the long way.
bool read_tensor(const TypeRecord &record, PyObject *object, PlainTensor *read) noexcept {
    dlpack::Tensor tensor{};
    if (reinterpret_cast<PyObject *>(Py_TYPE(object)) != record.type ||
        !glance_at_tensor(record, object, &tensor, &read->array.type) || tensor.device.type != dlpack::kCUDA ||
        tensor.ndim < 1 || tensor.ndim > kMostDims)
        return false;
    for (int i = 0; i < tensor.ndim; ++i) {
        read->dimensions[i] = tensor.shape[i];
        read->dimensions[tensor.ndim + i] = tensor.strides[i];
    }
    read->array.data = static_cast<char *>(tensor.data) + tensor.byte_offset;
    read->array.ndim = tensor.ndim;
    read->array.shape = read->dimensions;
    read->array.strides = read->dimensions + tensor.ndim;
    read->device = tensor.device.id;
    return true;
}

// Of packed tensors: apart, or the very same.
bool takes_result_of(const PlannedFunction &function, const PlainArray &out, const PlainArray &operand) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(out.data);
    const auto other = reinterpret_cast<std::uintptr_t>(operand.data);
    const auto bytes = [](const PlainArray &array) {
        return static_cast<std::uintptr_t>(count_of(array) * size_of(array.type));
    };
    return begin + bytes(out) <= other || other + bytes(operand) <= begin ||
           (function.works_in_place && begin == other && out.type == operand.type && out.ndim == operand.ndim &&
            std::equal(out.shape, out.shape + out.ndim, operand.shape));
}

// Reads all tensors of a call (operand 0 is `out`, or null), and tells whether the kept call is one of such. torch
// may run code of Python when it is asked for gradients.
bool match_tensors(const TypeRecord &record, const PlannedFunction &function, const PlannedCall &call,
                   PyObject *const *objects, int num_arrays, PlainTensor *tensors) noexcept {
    const int first = objects[0] != nullptr ? 0 : 1;
    int place = objects[0] != nullptr ? 0 : call.layouts.behind_first();
    for (int i = first; i < num_arrays; ++i) {
        const PlainArray &array = tensors[i].array;
        if ((i != 1 && !read_tensor(record, objects[i], &tensors[i])) || tensors[i].device != call.device ||
            !call.layouts.match(array, &place) ||
            (i > 0 && first == 0 && !takes_result_of(function, tensors[0].array, array)))
            return false;
    }
    for (int i = first; i < num_arrays; ++i)
        if (!is_without_gradients(record, objects[i], tensors[i].array.type)) return false;
    return true;
}

[[gnu::noinline]] bool run_tensors(const ModuleState &state, const TypeRecord &known,
                                   const PlannedFunction &function, PyObject *const *operands, int num_operands,
                                   PyObject *out, PyObject **result) noexcept {
    const TypeRecord record = known;  // code that runs meanwhile may replace the one that is kept
    PlainTensor tensors[kMostArrays];
    *result = nullptr;
    if (any_active_blocks() || !read_tensor(record, operands[0], &tensors[1])) return PyErr_Occurred() != nullptr;
    PlannedCall *call = kept_call(state, function.id, tensors[1].array, out == nullptr, record.api);
    if (call == nullptr) return false;
    const Use use(call);
    PyObject *objects[kMostArrays] = {out};
    std::copy(operands, operands + num_operands, objects + 1);
    void *handle = nullptr;
    StreamRef stream;
    if (!match_tensors(record, function, *call, objects, num_operands + 1, tensors) ||
        !current_stream_of(record, call->device, &handle))
        return PyErr_Occurred() != nullptr;
    if (const Status status = stream_ref(handle, call->device, &stream); status != CUKERN_OK) {
        raise_status(state, function.name, status);
        return true;
    }
    PyRef fresh;
    if (out == nullptr) {
        const Layouts &layouts = call->layouts;
        ForeignArray made;
        fresh = make_by_exchange({state, function.name, "the result"}, call->api, {dlpack::kCUDA, call->device},
                                 layouts.type(), Shape(layouts.ndim(), layouts.shape()), &made);
        if (!fresh) return true;
        tensors[0].array.data = made.data;
    }
    void *data[kMostArrays];
    for (int i = 0; i <= num_operands; ++i) data[i] = tensors[i].array.data;
    if (!launch(state, function.name, *call, data, stream)) return PyErr_Occurred() != nullptr;
    *result = out != nullptr ? PyRef::borrow(out).release() : fresh.release();
    return true;
}

}  // namespace

[[gnu::hot]] bool run_planned(ModuleState &state, const PlannedFunction &function, PyObject *const *operands,
                              int num_operands, PyObject *out, PyObject **result) noexcept {
    if (is_array(state, operands[0])) return run_arrays(state, function, operands, num_operands, out, result);
    const TypeRecord *record = known_foreign(state, operands[0]);
    return record != nullptr && record->is_torch &&
           run_tensors(state, *record, function, operands, num_operands, out, result);
}

namespace {

// Whether all are Arrays in one kind of memory, small enough on the host back-end that the call keeps the GIL.
bool are_arrays(const ModuleState &state, Backend backend, PyObject *const *objects, int num_arrays) noexcept {
    for (int i = 0; i < num_arrays; ++i) {
        if (!is_array(state, objects[i])) return false;
        const Array *array = array_of(objects[i]);
        if (!are_together(array->storage, array_of(objects[0])->storage)) return false;
        if (backend == Backend::host && array->size() > kBriefCount) return false;
    }
    return true;
}

// Whether all are such tensors of torch, as the call has read them, on one device.
bool are_tensors(const ModuleState &state, PyObject *const *objects, const PlainArray *arrays, int num_arrays,
                 Operand *const *operands) noexcept {
    const TypeRecord *record = known_foreign(state, objects[1]);
    if (record == nullptr || !record->is_torch || record->api == nullptr) return false;
    for (int i = 0; i < num_arrays; ++i) {
        const bool is_tensor = reinterpret_cast<PyObject *>(Py_TYPE(objects[i])) == record->type;
        if (!is_tensor || !is_surely_plain(arrays[i])) return false;
        if (i > 0 && (operands[i - 1]->foreign_device().type != dlpack::kCUDA ||
                      operands[i - 1]->foreign_device().id != operands[0]->foreign_device().id))
            return false;
    }
    return true;
}

}  // namespace

template <typename Call>
void keep_plan(ModuleState &state, Backend backend, const PlannedFunction &function, const Call &call,
               const TensorView &result, Operand *const *operands, int num_operands, PyObject *out,
               bool is_fresh) noexcept {
    const int num_arrays = num_operands + 1;
    PyObject *objects[kMostArrays] = {out};
    PlainArray arrays[kMostArrays] = {};  // as they were when the call was made
    for (int i = 0; i < num_arrays; ++i) {
        const TensorView &view = i == 0 ? result : operands[i - 1]->view();
        if (i > 0) objects[i] = operands[i - 1]->object();
        if (view.immediate || view.ndim > kMostDims) return;
        arrays[i] = {view.data, view.type, view.ndim, view.shape, view.strides};
    }
    const bool of_arrays = are_arrays(state, backend, objects, num_arrays);
    if (!of_arrays && !are_tensors(state, objects, arrays, num_arrays, operands)) return;
    if (state.plans == nullptr) state.plans = new (std::nothrow) PlannedCalls;
    constexpr std::uint32_t kLastNumber = 0xFFFFFFFF - kMostArrays;
    if (state.plans == nullptr || state.plans->last_number > kLastNumber) return;
    const unsigned place = slot_of(function.id, arrays[1], is_fresh, !of_arrays);
    std::unique_ptr<PlannedCall> &slot = state.plans->kept[place];
    if (slot != nullptr && slot->in_use) return;
    std::uint64_t hash = 0xCBF29CE484222325 + static_cast<std::uint64_t>(function.id) * 2 + (is_fresh ? 1 : 0);
    for (int i = 0; i < num_arrays; ++i) hash_into(&hash, arrays[i]);
    // Only what is called twice in a row, so that calls that take turns don't make plans for nothing.
    if (std::exchange(state.plans->missed[place], hash) != hash || state.plans->refused[place] == hash) return;
    std::unique_ptr<PlannedCall> kept(new (std::nothrow) PlannedCall(function.id, is_fresh));
    if (kept == nullptr) return;
    kept->plan.reset(LaunchPlan::make(call));
    if (kept->plan == nullptr) {
        state.plans->refused[place] = hash;
        return;
    }
    if (!of_arrays) {
        kept->api = operands[0]->api();
        kept->device = operands[0]->foreign_device().id;
    }
    for (int i = 0; i < num_arrays; ++i) kept->layouts.add(arrays[i]);
    for (int i = 0; i < num_arrays && of_arrays; ++i) {
        std::uint32_t &number = array_of(objects[i])->layout;
        for (int j = 0; j < i && number == 0; ++j)
            if (have_same_layout(array_of(objects[i]), array_of(objects[j]))) number = kept->numbers[j];
        if (number == 0) number = ++state.plans->last_number;
        kept->numbers[i] = number;
    }
    slot = std::move(kept);
}

template void keep_plan(ModuleState &, Backend, const PlannedFunction &, const ElementwiseCall &,
                        const TensorView &, Operand *const *, int, PyObject *, bool) noexcept;
template void keep_plan(ModuleState &, Backend, const PlannedFunction &, const MatmulCall &, const TensorView &,
                        Operand *const *, int, PyObject *, bool) noexcept;

void clear_plans(ModuleState &state) noexcept { delete std::exchange(state.plans, nullptr); }

}  // namespace cukern::py
