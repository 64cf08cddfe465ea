#include "base/python.h"

#include "streams/with_blocks.h"

#include <new>
#include <utility>

#include "streams/stream_types.h"

namespace cukern::py {
namespace {

// An entry is a tuple (Stream or Device, the entries further out or None, a capsule of the block, a token that
// tells the context).
constexpr Py_ssize_t kObject = 0;
constexpr Py_ssize_t kOuter = 1;
constexpr Py_ssize_t kBlock = 2;
constexpr Py_ssize_t kToken = 3;

void release(WithBlock *block) noexcept {
    if (--block->references == 0) delete block;
}

// Takes a block out of its object's list, whose reference the caller gets.
void unlink(WithBlock *block) noexcept {
    WithBlock **link = block->list;
    while (*link != block) link = &(*link)->next;
    *link = block->next;
    block->list = nullptr;
}

// No context has an entry of the block any more: it can be left no more either.
void release_entry(PyObject *capsule) {
    g_active_blocks.fetch_sub(1, std::memory_order_relaxed);
    auto *block = static_cast<WithBlock *>(PyCapsule_GetPointer(capsule, nullptr));
    if (block->list != nullptr) {
        unlink(block);
        --block->references;
    }
    release(block);
}

// Counted as active for as long as an entry refers to it.
PyRef capsule_of(WithBlock *block) noexcept {
    PyRef capsule = PyRef::steal(PyCapsule_New(block, nullptr, release_entry));
    if (!capsule) return capsule;
    ++block->references;
    g_active_blocks.fetch_add(1, std::memory_order_relaxed);
    return capsule;
}

bool set_chain(const ModuleState &state, PyObject *chain) noexcept {
    return static_cast<bool>(PyRef::steal(PyObject_CallFunctionObjArgs(state.set_blocks, chain, nullptr)));
}

bool is_entry(PyObject *chain) noexcept { return chain != nullptr && PyTuple_Check(chain) != 0; }
PyObject *object_in(PyObject *entry) noexcept { return PyTuple_GetItem(entry, kObject); }
PyObject *outer_of(PyObject *entry) noexcept { return PyTuple_GetItem(entry, kOuter); }
WithBlock *block_of(PyObject *entry) noexcept {
    return static_cast<WithBlock *>(PyCapsule_GetPointer(PyTuple_GetItem(entry, kBlock), nullptr));
}

// The first entry that counts, from `chain` on outwards; or None.
PyObject *first_of(PyObject *chain) noexcept {
    while (is_entry(chain) && block_of(chain)->is_void) chain = outer_of(chain);
    return chain;
}

// The chain of this context: an entry that counts, or None.
PyRef current_chain(const ModuleState &state) noexcept {
    PyRef chain = PyRef::steal(PyObject_CallFunctionObjArgs(state.get_blocks, nullptr));
    PyObject *first = first_of(chain.get());
    if (first == chain.get()) return chain;
    PyRef rest = PyRef::borrow(first);
    if (!set_chain(state, first)) PyErr_Clear();  // another time
    return rest;
}

// While it lives no collection runs finalizers: they may enter and leave blocks of their own.
class NoCollection {
public:
    NoCollection() noexcept : was_on_(PyGC_Disable() != 0) {}
    NoCollection(const NoCollection &) = delete;
    NoCollection &operator=(const NoCollection &) = delete;
    ~NoCollection() {
        if (was_on_) PyGC_Enable();
    }

private:
    const bool was_on_;
};

// `chain` without one of its entries.
PyRef without(PyObject *chain, PyObject *removed) noexcept {
    PyRef entries = PyRef::steal(PyList_New(0));  // that stay, from the innermost
    PyObject *at = chain;
    for (; entries && at != removed; at = outer_of(at))
        if (PyList_Append(entries.get(), at) != 0) return {};
    PyRef rest = entries ? PyRef::borrow(first_of(outer_of(at))) : PyRef();
    for (Py_ssize_t i = rest ? PyList_Size(entries.get()) - 1 : -1; i >= 0 && rest; --i) {
        PyObject *entry = PyList_GetItem(entries.get(), i);
        rest = PyRef::steal(PyTuple_Pack(4, object_in(entry), rest.get(), PyTuple_GetItem(entry, kBlock),
                                         PyTuple_GetItem(entry, kToken)));
    }
    return rest;
}

// The entry in the chain of a block of `self` that is not left: that of this frame, else the innermost; or null.
PyObject *find_own(PyObject *chain, PyObject *self, const void *frame) noexcept {
    PyObject *found = nullptr;
    for (PyObject *entry = first_of(chain); is_entry(entry); entry = first_of(outer_of(entry))) {
        if (object_in(entry) != self || block_of(entry)->is_left) continue;
        if (found == nullptr || block_of(entry)->frame == frame) found = entry;
        if (block_of(found)->frame == frame) break;
    }
    return found;
}

// Whether an entry was made in this context; not if in one that this one is a copy of. Asked once, when it is
// left.
bool is_of_this_context(const ModuleState &state, PyObject *entry) noexcept {
    PyObject *token = PyTuple_GetItem(entry, kToken);
    const PyRef reset = PyRef::steal(PyObject_CallFunctionObjArgs(state.reset_probe, token, nullptr));
    if (!reset) PyErr_Clear();  // ValueError: the token is of another context
    return static_cast<bool>(reset);
}

}  // namespace

bool make_active_blocks(ModuleState &state) noexcept {
    // The first variable holds the chain; the tokens of the second one tell contexts apart.
    const PyRef module = PyRef::steal(PyImport_ImportModule("contextvars"));
    const PyRef type = module ? PyRef::steal(PyObject_GetAttrString(module.get(), "ContextVar")) : PyRef();
    const PyRef name = PyRef::steal(Py_BuildValue("(s)", "cukern.active_blocks"));
    const PyRef options = PyRef::steal(Py_BuildValue("{s:O}", "default", Py_None));
    if (!type || !name || !options) return false;
    const PyRef variable = PyRef::steal(PyObject_Call(type.get(), name.get(), options.get()));
    const PyRef probe = PyRef::steal(PyObject_CallFunction(type.get(), "s", "cukern.probe"));
    if (!variable || !probe) return false;
    state.get_blocks = PyObject_GetAttrString(variable.get(), "get");
    state.set_blocks = PyObject_GetAttrString(variable.get(), "set");
    state.set_probe = PyObject_GetAttrString(probe.get(), "set");
    state.reset_probe = PyObject_GetAttrString(probe.get(), "reset");
    return state.get_blocks != nullptr && state.set_blocks != nullptr && state.set_probe != nullptr &&
           state.reset_probe != nullptr;
}

namespace {

// The innermost object of a type, or null. False with an exception set, such as that of a recursion too deep.
bool find_object(const ModuleState &state, PyObject *type, PyRef *object) noexcept {
    if (!any_active_blocks()) return true;
    const PyRef chain = current_chain(state);
    for (PyObject *entry = first_of(chain.get()); is_entry(entry); entry = first_of(outer_of(entry))) {
        if (reinterpret_cast<PyObject *>(Py_TYPE(object_in(entry))) != type) continue;
        *object = PyRef::borrow(object_in(entry));
        break;
    }
    return static_cast<bool>(chain);
}

}  // namespace

bool find_active_stream(const ModuleState &state, HeldStream *stream, bool *is_active) noexcept {
    PyRef object;
    if (!find_object(state, state.stream_type, &object)) return false;
    if (object) *stream = as_stream(object.get())->ref;
    *is_active = static_cast<bool>(object);
    return true;
}

bool active_stream_object(const ModuleState &state, int device, PyRef *stream) noexcept {
    PyRef object;
    if (!find_object(state, state.stream_type, &object)) return false;
    if (object && as_stream(object.get())->ref.device == device) *stream = std::move(object);
    return true;
}

bool innermost_stream(const ModuleState &state, PyRef *stream) noexcept {
    if (!any_active_blocks()) return true;
    const PyRef chain = current_chain(state);
    PyObject *entry = first_of(chain.get());
    PyObject *object = is_entry(entry) ? object_in(entry) : nullptr;
    if (object != nullptr && reinterpret_cast<PyObject *>(Py_TYPE(object)) == state.stream_type)
        *stream = PyRef::borrow(object);
    return static_cast<bool>(chain);
}

bool active_device(const ModuleState &state, int *device, bool *is_active) noexcept {
    PyRef object;
    if (!find_object(state, state.device_type, &object)) return false;
    if (object) *device = device_of(object.get());
    *is_active = static_cast<bool>(object);
    return true;
}

bool enter_block(const ModuleState &state, PyObject *self, WithBlock **blocks) noexcept {
    auto *block = new (std::nothrow) WithBlock;
    if (block == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    const NoCollection quiet;
    block->references = 1;  // the list's, if it comes to that
    block->frame = PyEval_GetFrame();
    const PyRef capsule = capsule_of(block);
    const PyRef outer = capsule ? current_chain(state) : PyRef();
    const PyRef token =
        outer ? PyRef::steal(PyObject_CallFunctionObjArgs(state.set_probe, Py_None, nullptr)) : PyRef();
    const PyRef entry =
        token ? PyRef::steal(PyTuple_Pack(4, self, first_of(outer.get()), capsule.get(), token.get())) : PyRef();
    if (!entry || !set_chain(state, entry.get())) {
        release(block);
        return false;
    }
    block->next = *blocks;
    block->list = blocks;
    *blocks = block;
    return true;
}

bool leave_block(const ModuleState &state, PyObject *self, const char *what, WithBlock **blocks) noexcept {
    if (*blocks == nullptr) {
        PyErr_Format(PyExc_RuntimeError, "this %s is not active: its 'with' block has been left, or not entered",
                     what);
        return false;
    }
    const NoCollection quiet;
    const PyRef chain = current_chain(state);
    if (!chain) return false;
    const void *frame = PyEval_GetFrame();
    if (PyObject *own = find_own(chain.get(), self, frame); own != nullptr) {
        const PyRef rest = without(chain.get(), own);
        if (!rest) return false;
        WithBlock *block = block_of(own);
        block->is_left = true;
        unlink(block);
        const bool is_set = set_chain(state, rest.get());
        block->is_void = !is_set || !is_of_this_context(state, own);
        release(block);
        return is_set;
    }
    // Its entry is in another context: that of this frame, or the only one. Where that is not clear none is
    // voided, since it might be the wrong one.
    WithBlock *block = *blocks;
    while (block->next != nullptr && block->frame != frame) block = block->next;
    const bool is_clear = block->frame == frame || (*blocks)->next == nullptr;
    if (!is_clear) block = *blocks;
    block->is_left = true;
    block->is_void = is_clear;
    unlink(block);
    release(block);
    return true;
}

void forget_blocks(WithBlock *blocks) noexcept {
    while (blocks != nullptr) {
        WithBlock *block = std::exchange(blocks, blocks->next);
        block->list = nullptr;
        release(block);
    }
}

}  // namespace cukern::py
