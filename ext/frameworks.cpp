#include "python.h"

#include "frameworks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "element_types.h"
#include "errors.h"
#include "shapes.h"

namespace cukern::py {
namespace {

constexpr int kMostRecords = 16;  // types that are remembered; more take turns

PyRef attribute_of(PyObject *object, PyObject *name) noexcept {
    PyRef value = PyRef::steal(PyObject_GetAttr(object, name));
    if (!value) PyErr_Clear();
    return value;
}

PyRef attribute_of(PyObject *object, const char *name) noexcept {
    PyRef value = PyRef::steal(PyObject_GetAttrString(object, name));
    if (!value) PyErr_Clear();
    return value;
}

// The newest table of a major version that we know.
const dlpack::ExchangeAPI *find_api(PyObject *capsule) noexcept {
    if (PyCapsule_IsValid(capsule, dlpack::kExchangeName) == 0) return nullptr;
    auto *header = static_cast<dlpack::ExchangeHeader *>(PyCapsule_GetPointer(capsule, dlpack::kExchangeName));
    while (header != nullptr && header->version.major != dlpack::kMajor) header = header->previous;
    auto *api = reinterpret_cast<const dlpack::ExchangeAPI *>(header);
    const bool whole = api != nullptr && api->allocate != nullptr && api->managed_from_object != nullptr &&
                       api->object_from_managed != nullptr && api->current_stream != nullptr;
    return whole ? api : nullptr;
}

bool starts_with(PyObject *text, const char *prefix) noexcept {
    const char *own = text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, nullptr) : nullptr;
    if (own == nullptr) PyErr_Clear();
    return own != nullptr && std::strncmp(own, prefix, std::strlen(prefix)) == 0;
}

// Whether an object's interface says on which stream its memory is worked on.
bool tells_stream(const ModuleState &state, PyObject *object) noexcept {
    const PyRef interface = PyRef::steal(PyObject_GetAttr(object, state.name_cai));
    if (!interface || PyDict_Check(interface.get()) == 0) {
        PyErr_Clear();
        return false;
    }
    PyObject *version = PyDict_GetItemString(interface.get(), "version");
    const long number = version != nullptr ? PyLong_AsLong(version) : 0;
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    return number >= 3;
}

// Looks through the type and those that it comes from; a class in Python on the way may have put something else in
// the attribute's place.
Getter getter_of(PyObject *type, const char *name) noexcept {
    if (!attribute_of(type, name)) return {};
    const PyRef order = attribute_of(type, "__mro__");
    for (Py_ssize_t i = 0; order && PyTuple_Check(order.get()) && i < PyTuple_Size(order.get()); ++i) {
        PyObject *own = PyTuple_GetItem(order.get(), i);
        const auto *table =
            static_cast<PyGetSetDef *>(PyType_GetSlot(reinterpret_cast<PyTypeObject *>(own), Py_tp_getset));
        for (; table != nullptr && table->name != nullptr; ++table)
            if (std::strcmp(table->name, name) == 0) return {name, table->get, table->closure};
        PyErr_Clear();
        const PyRef space = attribute_of(own, "__dict__");
        const PyRef key = PyRef::steal(PyUnicode_FromString(name));
        if (!space || !key || PySequence_Contains(space.get(), key.get()) != 0) break;
    }
    PyErr_Clear();
    return {name, nullptr, nullptr};
}

Question question_of(PyObject *object, const char *name) noexcept {
    Question question;
    question.method = attribute_of(reinterpret_cast<PyObject *>(Py_TYPE(object)), name).release();
    const PyRef bound = question.method != nullptr ? attribute_of(object, name) : PyRef();
    if (bound && PyCFunction_CheckExact(bound.get()) != 0 && PyCFunction_GetFlags(bound.get()) == METH_NOARGS)
        question.function = PyCFunction_GetFunction(bound.get());
    return question;
}

void fill_record(const ModuleState &state, PyObject *object, TypeRecord &record) noexcept {
    auto *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
    record.type = PyRef::borrow(type).release();
    if (PyArray_Check(object)) return;  // NumPy's arrays are read by their own structure
    const PyRef module = attribute_of(type, "__module__");
    record.is_cupy = starts_with(module.get(), "cupy");
    record.is_jax = starts_with(module.get(), "jax");
    if (const PyRef capsule = attribute_of(type, state.name_exchange); capsule) {
        record.api = find_api(capsule.get());
        if (record.api != nullptr) record.protocol = Protocol::exchange;
    }
    if (record.api != nullptr) {
        record.requires_grad = getter_of(type, "requires_grad");
        record.is_neg = question_of(object, "is_neg");
        record.is_conj = question_of(object, "is_conj");
        record.is_torch = record.requires_grad.name != nullptr && starts_with(module.get(), "torch");
        return;
    }
    const bool has_dlpack = static_cast<bool>(attribute_of(type, state.name_dlpack));
    const bool has_interface = static_cast<bool>(attribute_of(type, state.name_cai));
    if (has_interface && (!has_dlpack || tells_stream(state, object)))
        record.protocol = Protocol::cuda;
    else if (has_dlpack)
        record.protocol = Protocol::dlpack;
}

void clear_record(TypeRecord &record) noexcept {
    const PyRef old[] = {PyRef::steal(record.type), PyRef::steal(record.is_neg.method),
                         PyRef::steal(record.is_conj.method)};
    record = {};
}

}  // namespace

bool make_type_records(ModuleState &state) noexcept {
    state.types = new (std::nothrow) TypeRecord[kMostRecords];
    if (state.types == nullptr) PyErr_NoMemory();
    return state.types != nullptr;
}

void clear_type_records(ModuleState &state) noexcept {
    TypeRecord *records = std::exchange(state.types, nullptr);
    for (int i = 0; records != nullptr && i < kMostRecords; ++i) clear_record(records[i]);
    delete[] records;
}

int visit_type_records(ModuleState &state, visitproc visit, void *arg) noexcept {
    for (int i = 0; state.types != nullptr && i < kMostRecords; ++i) {
        Py_VISIT(state.types[i].type);
        Py_VISIT(state.types[i].is_neg.method);
        Py_VISIT(state.types[i].is_conj.method);
    }
    return 0;
}

const TypeRecord *known_foreign(const ModuleState &state, PyObject *object) noexcept {
    auto *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
    for (int i = 0; i < kMostRecords && state.types[i].type != nullptr; ++i)
        if (state.types[i].type == type)
            return state.types[i].protocol != Protocol::other ? &state.types[i] : nullptr;
    return nullptr;
}

const TypeRecord &record_of(ModuleState &state, PyObject *object) noexcept {
    auto *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
    for (int i = 0; i < kMostRecords && state.types[i].type != nullptr; ++i)
        if (state.types[i].type == type) return state.types[i];
    TypeRecord fresh;
    fill_record(state, object, fresh);  // may run code that looks up other types
    int at = 0;
    while (at < kMostRecords && state.types[at].type != nullptr && state.types[at].type != type) ++at;
    if (at == kMostRecords) at = static_cast<int>(state.next_type++ % kMostRecords);
    TypeRecord old = state.types[at];
    state.types[at] = fresh;
    clear_record(old);
    return state.types[at];
}

TypeRecord find_record(ModuleState &state, PyObject *object) noexcept {
    TypeRecord record = record_of(state, object);
    if (record.protocol != Protocol::other || PyObject_CheckBuffer(object)) return record;
    // What has been set on the object itself: its own code is not asked, since what answers in another's stead
    // knows less than its type says of it.
    const PyRef own = attribute_of(object, "__dict__");
    if (own && PyDict_Check(own.get()) && PyDict_Contains(own.get(), state.name_cai) == 1)
        record.protocol = Protocol::cuda;
    return record;
}

bool locate(const Place &place, const dlpack::Device &device, Location *location) noexcept {
    *location = {};
    if (device.type == dlpack::kCPU) return true;
    Backend backend;
    if (const Status status = active_backend(&backend); status != CUKERN_OK) {
        raise_status(place.state, place.function, status);
        return false;
    }
    const bool known =
        device.type == dlpack::kCUDA || device.type == dlpack::kCUDAHost || device.type == dlpack::kCUDAManaged;
    if (!known) {
        PyErr_Format(PyExc_TypeError, "%s: %s is on a device of DLPack's type %d; the CPU and CUDA are supported",
                     place.function, place.argument, device.type);
        return false;
    }
    if (backend == Backend::host)
        return refuse(place, "is in a GPU's memory, and cukern uses its host back-end here");
    location->reachable = true;
    location->kind = device.type == dlpack::kCUDA       ? MemoryKind::device
                     : device.type == dlpack::kCUDAHost ? MemoryKind::pinned
                                                        : MemoryKind::managed;
    location->device = device.id;
    int count = 0;
    const Status status = device_count(&count);
    if (status != CUKERN_OK) raise_status(place.state, place.function, status);
    if (status == CUKERN_OK && (device.id < 0 || device.id >= count)) {
        PyErr_Format(PyExc_ValueError, "%s: %s is on device %d; there are %d", place.function, place.argument,
                     device.id, count);
        return false;
    }
    return status == CUKERN_OK;
}

}  // namespace cukern::py
