#include "base/python.h"

#include "kernels/arguments.h"

#include <cstdio>

#include "array/array.h"
#include "base/backend.h"
#include "call/arguments.h"
#include "call/result.h"
#include "streams/with_blocks.h"

#include "cukern/graph.h"

namespace cukern::py {
namespace {

// "argument 3 of 4", or of many "argument 30", for messages about an array that can't be read. Guarded by the GIL.
const char *argument_name(int i, int count) noexcept {
    constexpr int kFew = 16;
    constexpr int kMost = 256;
    static char of_few[kFew][kFew][40];
    static char of_many[kMost][24];
    char *const name = count <= kFew ? of_few[count - 1][i] : of_many[i < kMost ? i : kMost - 1];
    if (name[0] == '\0' && count <= kFew)
        std::snprintf(name, sizeof of_few[0][0], "argument %d of %d", i + 1, count);
    if (name[0] == '\0') std::snprintf(name, sizeof of_many[0], "argument %d", i + 1);
    return name;
}

// What is certainly no array, but a value or a null pointer.
bool is_value(const ModuleState &state, PyObject *object) noexcept {
    auto *const type = reinterpret_cast<PyObject *>(Py_TYPE(object));
    return PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object) || Py_IsNone(object) != 0 ||
           type == state.pointer_type || PyArray_IsScalar(object, Generic);
}

// Instances of ctypes, which have the buffer protocol: values, but for its arrays.
bool is_ctypes_value(const ModuleState &state, PyObject *object, bool *is_one) noexcept {
    *is_one = false;
    const PyRef ctypes = PyRef::borrow(PyDict_GetItemString(state.modules, "_ctypes"));  // null: nobody uses it
    if (!ctypes || PyObject_CheckBuffer(object) == 0) return true;
    for (const char *name : {"Structure", "Union", "_SimpleCData"}) {
        const PyRef type = PyRef::steal(PyObject_GetAttrString(ctypes.get(), name));
        const int is_instance = type ? PyObject_IsInstance(object, type.get()) : -1;
        if (is_instance < 0) return false;
        *is_one = *is_one || is_instance != 0;
    }
    return true;
}

}  // namespace

KernelArguments::~KernelArguments() {
    for (int i = 0; num_operands_ > 0 && i < num_read_; ++i) {
        Operand *const operand = arrays_[i].operand;
        if (operand == nullptr) continue;
        const auto *place = reinterpret_cast<unsigned char *>(operand);
        if (place >= operands_ && place < operands_ + sizeof operands_)
            operand->~Operand();
        else
            delete operand;
    }
    if (count_ > kFew) ::operator delete(arrays_);
}

bool KernelArguments::read(PyObject *given_stream) noexcept {
    void *const memory =
        count_ <= kFew ? few_
                       : ::operator new(static_cast<std::size_t>(count_) * sizeof(ArrayArgument), std::nothrow);
    arrays_ = static_cast<ArrayArgument *>(memory);
    if (memory == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    ReadContext reading;
    bool has_consumer = false;
    for (int i = 0; i < count_; ++i) {
        PyObject *const object = objects_[i];
        ArrayArgument &own = *new (&arrays_[i]) ArrayArgument;
        ++num_read_;
        if (is_array(state_, object)) {
            const Array *array = array_of(object);
            own.is_array = true;
            own.data = array->data;
            own.storage = array->storage;
            own.type = array->type;
            own.read_only = array->read_only;
            own.device = array->kind() == MemoryKind::device ? array->device() : -1;
            continue;
        }
        if (is_plain_number(object)) continue;
        const TypeRecord *known = known_foreign(state_, object);
        bool is_read = false;
        if (known != nullptr && known->is_torch && !read_tensor(*known, i, &is_read)) return false;
        if (is_read || (known == nullptr && is_value(state_, object))) continue;
        if (!has_consumer && !consumer_of({state_, function_, nullptr, given_or_null(given_stream)}, reading))
            return false;
        has_consumer = true;
        if (!read_one(i, reading)) return false;
    }
    ran_code_ = reading.ran_code || may_run_code(given_stream);
    return true;
}

// A packed tensor of real numbers in a device's memory, whose bits and gradients are in no way.
bool KernelArguments::read_tensor(const TypeRecord &record, int i, bool *is_read) noexcept {
    dlpack::Tensor tensor{};
    ArrayArgument &own = arrays_[i];
    if (reinterpret_cast<PyObject *>(Py_TYPE(objects_[i])) != record.type ||
        !glance_at_tensor(record, objects_[i], &tensor, &own.type) || tensor.device.type != dlpack::kCUDA ||
        kind_of(own.type) == 'c')
        return PyErr_Occurred() == nullptr;
    std::int64_t packed = 1;
    for (int d = tensor.ndim - 1; d >= 0; --d) {
        if (tensor.strides[d] != packed) return true;
        packed *= tensor.shape[d];
    }
    if (packed < 2 || !is_without_gradients(record, objects_[i], own.type)) return PyErr_Occurred() == nullptr;
    const int device = tensor.device.id;
    if (!has_tensors_) {
        void *handle = nullptr;
        if (!current_stream_of(record, device, &handle)) return PyErr_Occurred() == nullptr;
        if (const Status status = stream_ref(handle, device, &tensors_.producer); status != CUKERN_OK)
            return raise_failure(state_, function_, status);
        tensors_.has_producer = true;
        has_tensors_ = true;
    } else if (tensors_.producer.device != device) {
        return true;
    }
    own.is_array = own.is_tensor = true;
    own.data = static_cast<char *>(tensor.data) + tensor.byte_offset;
    own.device = device;
    *is_read = true;
    return true;
}

bool KernelArguments::read_one(int i, ReadContext &reading) noexcept {
    PyObject *const object = objects_[i];
    const bool is_known = known_foreign(state_, object) != nullptr || PyArray_Check(object);
    if (!is_known) {
        bool is_one = false;
        if (!is_ctypes_value(state_, object, &is_one)) return false;
        if (is_one) return true;
    }
    void *const memory = num_operands_ < kFewOperands
                             ? operands_ + static_cast<std::size_t>(num_operands_) * sizeof(Operand)
                             : ::operator new(sizeof(Operand), std::nothrow);
    if (memory == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    ArrayArgument &own = arrays_[i];
    own.operand = new (memory) Operand;
    ++num_operands_;
    const ArgumentInfo argument{state_, function_, argument_name(i, count_), true};
    if (!own.operand->read_address(argument, object, reading)) return false;
    const TrackedView &access = own.operand->access();
    own.is_array = true;
    own.data = access.view.immediate ? const_cast<void *>(own.operand->layout().data) : access.view.data;
    own.type = access.view.type;
    own.read_only = !own.operand->is_writable();
    if (!access.location.reachable) return find_pinned(i);
    own.storage = access.storage;
    own.device = access.location.kind == MemoryKind::device ? access.location.device : -1;
    return true;
}

// Memory that a library calls the host's may be pinned: CUDA knows.
bool KernelArguments::find_pinned(int i) noexcept {
    PointerInfo where;
    if (!is_host_in_use() && arrays_[i].data != nullptr) {
        const Status status = pointer_info(arrays_[i].data, &where);
        if (status != CUKERN_OK) return raise_failure(state_, function_, status);
        if (where.known && on_host(where.kind)) return true;
    }
    if (const PyRef place = place_of(i))
        PyErr_Format(
            PyExc_TypeError,
            "%s: %U is in pageable host memory, which a kernel does not reach; copy it to the device first, as "
            "by cukern.asarray()",
            function_, place.get());
    return false;
}

bool KernelArguments::choose_stream_for(PyObject *given, HeldStream *stream) const noexcept {
    int device = -1;
    for (int i = 0; i < count_ && device < 0; ++i) device = arrays_[i].device;
    if (device >= 0 && num_operands_ == 0 && !has_tensors_ && !is_given(given) && !any_active_blocks()) {
        stream->set_default(device);
        return true;
    }
    const TrackedView *first = nullptr;  // that has a producer on the device
    for (int i = 0; (num_operands_ > 0 || has_tensors_) && i < count_ && first == nullptr; ++i) {
        const ArrayArgument &own = arrays_[i];
        const TrackedView *access = own.is_tensor            ? &tensors_
                                    : own.operand != nullptr ? &own.operand->access()
                                                             : nullptr;
        if (access == nullptr || !access->has_producer) continue;
        if (device < 0 || access->producer.device == device) first = access;
    }
    return choose_stream(state_, function_, given, device, {first}, stream);
}

bool KernelArguments::check_unchanged() const noexcept {
    for (int i = 0; (num_operands_ > 0 || has_tensors_) && i < count_; ++i) {
        const ArrayArgument &own = arrays_[i];
        if (own.operand != nullptr && !own.operand->check_unchanged(function_)) return false;
        if (own.is_tensor && !is_still_at(objects_[i], own.data)) {
            if (PyErr_Occurred() != nullptr) return false;
            if (const PyRef place = place_of(i))
                PyErr_Format(PyExc_RuntimeError, "%s: %U has been given other memory by code that ran meanwhile",
                             function_, place.get());
            return false;
        }
    }
    return true;
}

bool KernelArguments::is_still_at(PyObject *tensor, const void *data) const noexcept {
    const TypeRecord *record = known_foreign(state_, tensor);
    dlpack::Tensor now{};
    ElementType type{};
    return record != nullptr && glance_at_tensor(*record, tensor, &now, &type) &&
           static_cast<char *>(now.data) + now.byte_offset == data;
}

bool KernelArguments::begin(const StreamRef &stream) const noexcept {
    if (ran_code_ && !check_unchanged()) return false;
    if (has_tensors_ && !wait_before_use(state_, function_, tensors_, stream, true)) return false;
    for (int i = 0; i < count_; ++i) {
        const ArrayArgument &own = arrays_[i];
        if (own.storage != nullptr) {
            const Status status = own.storage->wait_before_use(stream, own.writes);
            if (status != CUKERN_OK) return raise_failure(state_, function_, status);
        } else if (own.operand != nullptr &&
                   !wait_before_use(state_, function_, own.operand->access(), stream, own.writes)) {
            return false;
        }
    }
    return true;
}

// All at once, but for a graph that is being captured, which keeps each of them.
bool KernelArguments::record_tensors(const StreamRef &stream) const noexcept {
    if (Graph::captured_on(stream) == nullptr) return record_use(state_, function_, tensors_, stream, true);
    bool succeeded = true;
    for (int i = 0; i < count_; ++i) {
        if (!arrays_[i].is_tensor) continue;
        TrackedView tensor = tensors_;
        tensor.set_object(objects_[i], Py_TYPE(objects_[i]));
        succeeded = record_use(state_, function_, tensor, stream, true) && succeeded;
    }
    return succeeded;
}

bool KernelArguments::end(const StreamRef &stream) const noexcept {
    bool succeeded = true;  // what was launched uses all of them, whatever fails for one
    if (has_tensors_) succeeded = record_tensors(stream);
    for (int i = 0; i < count_; ++i) {
        const ArrayArgument &own = arrays_[i];
        if (own.operand != nullptr) {
            succeeded = record_use(state_, function_, own.operand->access(), stream, own.writes) && succeeded;
        } else if (own.storage != nullptr) {
            const Status status = own.storage->record_use(stream, own.writes);
            if (status != CUKERN_OK) succeeded = raise_failure(state_, function_, status);
        }
    }
    for (int i = 0; i < count_ && succeeded; ++i)
        if (arrays_[i].storage != nullptr && arrays_[i].writes && arrays_[i].storage->exports() != 0)
            succeeded = wait_for_host(state_, function_, arrays_[i].storage, false);
    return succeeded;
}

}  // namespace cukern::py
