#include "base/python.h"

#include "interop/frameworks.h"

#include <cstring>
#include <new>
#include <utility>

#include "base/errors.h"

namespace cukern::py {
namespace {

constexpr int kMostRecords = 16;  // types that are remembered; more take turns

// False with an exception that must reach the caller; *value is null where there is no such attribute.
bool find_attribute(PyObject *object, PyObject *name, PyRef *value) noexcept {
    *value = PyRef::steal(PyObject_GetAttr(object, name));
    return *value || clear_lookup_error();
}

bool find_attribute(PyObject *object, const char *name, PyRef *value) noexcept {
    const PyRef text = PyRef::steal(PyUnicode_FromString(name));
    return text && find_attribute(object, text.get(), value);
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
bool tells_stream(const ModuleState &state, PyObject *object, bool *tells) noexcept {
    *tells = false;
    PyRef interface;
    if (!find_attribute(object, state.name_cai, &interface)) return false;
    if (!interface || PyDict_Check(interface.get()) == 0) return true;
    const PyRef key = PyRef::steal(PyUnicode_FromString("version"));
    const PyRef version = key ? PyRef::borrow(PyDict_GetItemWithError(interface.get(), key.get())) : PyRef();
    const long number = version ? PyLong_AsLong(version.get()) : 0;
    *tells = number >= 3;
    return clear_lookup_error();
}

// Looks through the type and those that it comes from; a class in Python on the way may have put something else in
// the attribute's place.
bool find_getter(PyObject *type, const char *name, AttributeGetter *getter) noexcept {
    PyRef present;
    PyRef order;
    if (!find_attribute(type, name, &present) || !find_attribute(type, "__mro__", &order)) return false;
    if (!present) return true;
    *getter = {name, nullptr, nullptr};
    const PyRef key = PyRef::steal(PyUnicode_FromString(name));
    if (!key) return false;
    for (Py_ssize_t i = 0; order && PyTuple_Check(order.get()) && i < PyTuple_Size(order.get()); ++i) {
        PyObject *own = PyTuple_GetItem(order.get(), i);
        const auto *table =
            static_cast<PyGetSetDef *>(PyType_GetSlot(reinterpret_cast<PyTypeObject *>(own), Py_tp_getset));
        PyErr_Clear();  // of a type that has no slots to ask for
        for (; table != nullptr && table->name != nullptr; ++table) {
            if (std::strcmp(table->name, name) != 0) continue;
            *getter = {name, table->get, table->closure};
            return true;
        }
        PyRef space;
        if (!find_attribute(own, "__dict__", &space)) return false;
        const int has = space ? PySequence_Contains(space.get(), key.get()) : 1;
        if (has != 0) return clear_lookup_error();
    }
    return true;
}

// The function in C behind a method of the type is found by binding the type's own method: what has been set on
// the object says nothing of others.
bool find_bool_method(PyObject *object, const char *name, BoolMethod *bool_method) noexcept {
    PyRef method;
    if (!find_attribute(reinterpret_cast<PyObject *>(Py_TYPE(object)), name, &method)) return false;
    PyRef bound;
    if (method && Py_TYPE(method.get()) == &PyMethodDescr_Type) {
        const auto bind = reinterpret_cast<descrgetfunc>(PyType_GetSlot(&PyMethodDescr_Type, Py_tp_descr_get));
        bound = PyRef::steal(bind(method.get(), object, reinterpret_cast<PyObject *>(Py_TYPE(object))));
        if (!bound && !clear_lookup_error()) return false;
    }
    if (bound && PyCFunction_CheckExact(bound.get()) != 0 && PyCFunction_GetFlags(bound.get()) == METH_NOARGS)
        bool_method->function = PyCFunction_GetFunction(bound.get());
    bool_method->method = method.release();
    return true;
}

// What torch's __dlpack__ asks a tensor, and the exchange API does not.
bool find_torch_methods(PyObject *object, PyObject *module, TypeRecord &record) noexcept {
    auto *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
    if (!find_getter(type, "requires_grad", &record.requires_grad) ||
        !find_bool_method(object, "is_neg", &record.is_neg) ||
        !find_bool_method(object, "is_conj", &record.is_conj))
        return false;
    record.is_torch = record.requires_grad.name != nullptr && starts_with(module, "torch");
    return true;
}

bool find_protocol(const ModuleState &state, PyObject *object, TypeRecord &record) noexcept {
    if (PyArray_Check(object)) return true;  // NumPy's arrays are read by their own structure
    auto *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
    PyRef module;
    PyRef capsule;
    if (!find_attribute(type, "__module__", &module) || !find_attribute(type, state.name_exchange, &capsule))
        return false;
    PyRef ufunc;
    if (!find_attribute(type, state.name_array_ufunc, &ufunc)) return false;
    record.has_own_operators = ufunc && Py_IsNone(ufunc.get()) != 0;
    record.is_cupy = starts_with(module.get(), "cupy");
    record.is_jax = starts_with(module.get(), "jax");
    record.api = capsule ? find_api(capsule.get()) : nullptr;
    if (record.api != nullptr) {
        record.protocol = Protocol::exchange;
        return find_torch_methods(object, module.get(), record);
    }
    PyRef dlpack;
    PyRef interface;
    if (!find_attribute(type, state.name_dlpack, &dlpack) || !find_attribute(type, state.name_cai, &interface))
        return false;
    bool by_interface = static_cast<bool>(interface);
    if (interface && dlpack && !tells_stream(state, object, &by_interface)) return false;
    record.protocol = by_interface ? Protocol::cuda : dlpack ? Protocol::dlpack : Protocol::other;
    return true;
}

void clear_record(TypeRecord &record) noexcept {
    const PyRef old[] = {PyRef::steal(record.weak), PyRef::steal(record.is_neg.method),
                         PyRef::steal(record.is_conj.method)};
    record = {};
}

bool is_of(const TypeRecord &record, PyObject *type) noexcept {
    return record.type == type && PyWeakref_GetObject(record.weak) == type;
}

// Without a protocol only what can never gain one.
bool may_be_kept(const TypeRecord &record, PyTypeObject *type) noexcept {
    return record.protocol != Protocol::other || (PyType_GetFlags(type) & Py_TPFLAGS_IMMUTABLETYPE) != 0;
}

// Takes a free place, that of a type that is gone, or each in its turn.
bool keep_record(ModuleState &state, const TypeRecord &record) noexcept {
    TypeRecord kept = record;
    kept.weak = PyWeakref_NewRef(kept.type, nullptr);
    if (kept.weak == nullptr) return false;
    kept.is_neg.method = PyRef::borrow(record.is_neg.method).release();
    kept.is_conj.method = PyRef::borrow(record.is_conj.method).release();
    int at = 0;
    while (at < kMostRecords && state.types[at].type != nullptr && state.types[at].type != kept.type &&
           PyWeakref_GetObject(state.types[at].weak) != Py_None)
        ++at;
    if (at == kMostRecords) at = static_cast<int>(state.next_type++ % kMostRecords);
    TypeRecord old = state.types[at];
    state.types[at] = kept;
    clear_record(old);
    return true;
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
        Py_VISIT(state.types[i].weak);
        Py_VISIT(state.types[i].is_neg.method);
        Py_VISIT(state.types[i].is_conj.method);
    }
    return 0;
}

const TypeRecord *known_foreign(const ModuleState &state, PyObject *object) noexcept {
    auto *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
    for (int i = 0; i < kMostRecords && state.types[i].type != nullptr; ++i)
        if (is_of(state.types[i], type))
            return state.types[i].protocol != Protocol::other ? &state.types[i] : nullptr;
    return nullptr;
}

bool record_of(ModuleState &state, PyObject *object, HeldRecord *record) noexcept {
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < kMostRecords && state.types[i].type != nullptr; ++i) {
        if (!is_of(state.types[i], reinterpret_cast<PyObject *>(type))) continue;
        *record = HeldRecord(state.types[i]);
        return true;
    }
    TypeRecord fresh;
    fresh.type = reinterpret_cast<PyObject *>(type);
    const bool found = find_protocol(state, object, fresh);  // may run code that looks up other types
    *record = HeldRecord(fresh);
    const bool kept = found && (!may_be_kept(fresh, type) || keep_record(state, fresh));
    clear_record(fresh);
    return kept;
}

bool find_record(ModuleState &state, PyObject *object, HeldRecord *record) noexcept {
    if (!record_of(state, object, record)) return false;
    if ((*record)->protocol != Protocol::other || PyObject_CheckBuffer(object)) return true;
    // What has been set on the object itself: its own code is not asked, since what answers in another's stead
    // knows less than its type says of it.
    PyRef own;
    if (!find_attribute(object, "__dict__", &own)) return false;
    const int has = own && PyDict_Check(own.get()) ? PyDict_Contains(own.get(), state.name_cai) : 0;
    if (has > 0) (*record)->protocol = Protocol::cuda;
    return has >= 0 || clear_lookup_error();
}

bool locate(const ArgumentInfo &argument, const dlpack::Device &device, Location *location) noexcept {
    *location = {};
    if (device.type == dlpack::kCPU) return true;
    Backend backend;
    if (const Status status = active_backend(&backend); status != CUKERN_OK) {
        raise_status(argument.state, argument.function, status);
        return false;
    }
    const bool known =
        device.type == dlpack::kCUDA || device.type == dlpack::kCUDAHost || device.type == dlpack::kCUDAManaged;
    if (!known) {
        PyErr_Format(PyExc_TypeError, "%s: %s is on a device of DLPack's type %d; the CPU and CUDA are supported",
                     argument.function, argument.name, device.type);
        return false;
    }
    if (backend == Backend::host)
        return refuse(argument, "is in a GPU's memory, and cukern uses its host back-end here");
    location->reachable = true;
    location->kind = device.type == dlpack::kCUDA       ? MemoryKind::device
                     : device.type == dlpack::kCUDAHost ? MemoryKind::pinned
                                                        : MemoryKind::managed;
    location->device = device.id;
    int count = 0;
    const Status status = device_count(&count);
    if (status != CUKERN_OK) raise_status(argument.state, argument.function, status);
    if (status == CUKERN_OK && (device.id < 0 || device.id >= count)) {
        PyErr_Format(PyExc_ValueError, "%s: %s is on device %d; there are %d", argument.function, argument.name,
                     device.id, count);
        return false;
    }
    return status == CUKERN_OK;
}

}  // namespace cukern::py
