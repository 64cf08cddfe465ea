// Arrays of other libraries: how a type shares its memory, and what is read of it.
#pragma once

#include "streams/streams.h"
#include "types/dlpack.h"
#include "view/tracked_view.h"

namespace cukern::py {

// How the arrays of a type are read.
enum class Protocol : std::int8_t {
    exchange,  // DLPack's C exchange API on the type
    cuda,      // __cuda_array_interface__ of version 3, which tells the stream
    dlpack,    // __dlpack__
    other      // none of them: the buffer protocol, or no array
};

// A method without arguments that answers yes or no: the function in C behind it is called without Python's
// detours.
struct BoolMethod {
    PyObject *method = nullptr;  // owned, of the type; null where it has none
    PyCFunction function = nullptr;
};

// A computed attribute: that of a type in C is read without Python's detours.
struct AttributeGetter {
    const char *name = nullptr;  // null: there is none
    getter get = nullptr;        // null: by name
    void *closure = nullptr;
};

// What is known of a type that is not one of ours or NumPy's. It is looked up once for a type that has a protocol.
// That a type has none is only kept where it cannot gain one later (an immutable type such as bytearray).
struct TypeRecord {
    PyObject *type = nullptr;  // borrowed, for comparison alone: valid while `weak` refers to it
    PyObject *weak = nullptr;  // owned: a weak reference to the type
    Protocol protocol = Protocol::other;
    bool is_cupy = false;
    const dlpack::ExchangeAPI *api = nullptr;
    AttributeGetter requires_grad;  // torch's
    BoolMethod is_neg;
    BoolMethod is_conj;
    bool is_torch = false;
    bool is_jax = false;             // its arrays are immutable, which its capsules do not say
    bool has_own_operators = false;  // by __array_ufunc__ = None (NEP 13)
};

// What is known already of an object's type, where it is another library's array: the common case of them. Else
// null.
const TypeRecord *known_foreign(const ModuleState &state, PyObject *object) noexcept;

// A record as a call uses it: code that runs meanwhile may replace the one that is kept.
class HeldRecord {
public:
    HeldRecord() noexcept = default;
    explicit HeldRecord(const TypeRecord &record) noexcept
        : record_(record),
          is_neg_(PyRef::borrow(record.is_neg.method)),
          is_conj_(PyRef::borrow(record.is_conj.method)) {}
    TypeRecord *operator->() noexcept { return &record_; }
    const TypeRecord *operator->() const noexcept { return &record_; }
    const TypeRecord &operator*() const noexcept { return record_; }

private:
    TypeRecord record_;
    PyRef is_neg_;
    PyRef is_conj_;
};

// False with an exception set, such as KeyboardInterrupt, that a look-up on the type has raised.
bool record_of(ModuleState &state, PyObject *object, HeldRecord *record) noexcept;
// The same; where the type has no protocol, with that of a __cuda_array_interface__ which was set on the object.
bool find_record(ModuleState &state, PyObject *object, HeldRecord *record) noexcept;
bool make_type_records(ModuleState &state) noexcept;
void clear_type_records(ModuleState &state) noexcept;
int visit_type_records(ModuleState &state, visitproc visit, void *arg) noexcept;

// For messages: the function and the argument's name.
struct ArgumentInfo {
    const ModuleState &state;
    const char *function;
    const char *name;               // as messages say it
    bool takes_structures = false;  // of n bytes, as n elements of uint8, where a library has such arrays
};

// Deletes a tensor that another library has handed over, whatever exception is set.
void delete_tensor(dlpack::ManagedTensorVersioned *managed) noexcept;

// Such a tensor as long as nothing else owns it.
class HeldTensor {
public:
    HeldTensor() noexcept = default;
    HeldTensor(const HeldTensor &) = delete;
    HeldTensor &operator=(const HeldTensor &) = delete;
    ~HeldTensor() {
        if (managed_ != nullptr) delete_tensor(managed_);
    }
    void take(dlpack::ManagedTensorVersioned *managed) noexcept { managed_ = managed; }
    dlpack::ManagedTensorVersioned *get() const noexcept { return managed_; }
    void release() noexcept { managed_ = nullptr; }

private:
    dlpack::ManagedTensorVersioned *managed_ = nullptr;
};

// Another library's array, in its own terms. Pointers are valid while `keeper`, `tensor` and the object live.
struct ForeignArray {
    void *data = nullptr;
    dlpack::Device device{};
    ElementType type = ElementType::float32;
    int ndim = 0;
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxDims];  // in bytes
    bool read_only = false;
    bool is_copy = false;       // made for this call: nobody else has it
    bool has_producer = false;  // work on it is ordered on `producer`
    HeldStream producer;
    bool reused_in_order = false;  // its library reuses memory in the order of `producer`
    PyRef keeper;                  // owns what the pointers need, or null
    HeldTensor tensor;             // the same, of import_by_exchange
    PyObject *own = nullptr;       // the Array that a capsule of ours lends: borrowed from its keeper
    std::int64_t bytes = -1;       // of all elements; -1: not checked yet (check_memory)

    ForeignArray() noexcept {}  // NOLINT(modernize-use-equals-default): shape and strides stay uninitialised
};

// What one call reads its arrays with.
struct ReadContext {
    HeldStream consumer;  // that a producer without a stream of its own is asked to be ready for
    HeldStream earlier;   // that operands have been asked for, while `consumer` is that of the result
    // Of the last array by the exchange API on a device: the stream that its library uses there.
    const dlpack::ExchangeAPI *api = nullptr;
    dlpack::Device device{};
    StreamRef producer;
    // Of the last array: where memory of its device is.
    dlpack::Device located{};
    Location location;
    // Python code may have run since the first operand was read: see Operand::check_unchanged.
    bool ran_code = false;
};

// Raises TypeError: "function: argument <what>". False.
bool refuse(const ArgumentInfo &argument, const char *what) noexcept;

bool read_tensor(const ArgumentInfo &argument, const dlpack::Tensor &tensor, ForeignArray *array) noexcept;

// For calls that repeat an earlier one: a tensor as its type's exchange API gives it, whether gradients of it are
// not recorded, and the stream that its library works on. False where the tensor has to be read by read_foreign,
// which says why; an exception is set only if it is an interrupt or the like.
bool glance_at_tensor(const TypeRecord &record, PyObject *object, dlpack::Tensor *tensor,
                      ElementType *type) noexcept;
bool is_without_gradients(const TypeRecord &record, PyObject *object, ElementType type) noexcept;
bool current_stream_of(const TypeRecord &record, int device, void **handle) noexcept;

// Whether an Array can be over the memory: BufferError where it is not aligned to its elements, ValueError where
// the shape is none. Once for an array, whose bytes are counted.
bool check_memory(const ArgumentInfo &argument, ForeignArray *array) noexcept;

// Reads an array by its type's protocol.
bool read_foreign(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object, ReadContext &reading,
                  bool writes, ForeignArray *array) noexcept;

// Takes an array over by its type's exchange API, which orders nothing: its library works on its current stream.
// Where the library refuses, `imported` is false without an exception: __dlpack__ says why.
bool import_by_exchange(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object,
                        ForeignArray *array, bool *imported) noexcept;

// Reads an array by its __cuda_array_interface__.
bool read_by_interface(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object,
                       ForeignArray *array) noexcept;

// Refuses tensors that require gradients or have the negative or conjugate bit set, also after __dlpack__.
bool check_foreign(const ArgumentInfo &argument, const TypeRecord &record, PyObject *object,
                   const ForeignArray &array) noexcept;

// Whether __dlpack__ is asked with a stream: pinned memory is the host's, whose producers know of none.
inline bool takes_stream(const dlpack::Device &device) noexcept {
    return device.type == dlpack::kCUDA || device.type == dlpack::kCUDAManaged;
}

// The stream that a call orders imported memory on. One that is not of the memory's device gives way to that
// device's default stream; where it was named, a Stream is refused (ValueError) and a handle is taken to be of it.
struct ImportStream {
    HeldStream stream;
    bool is_named = false;

    bool fit(const ArgumentInfo &argument, const Location &location) noexcept;
};

// Takes over a capsule of either kind, which must not have been used. The array's keeper calls its deleter. A
// capsule that is refused stays unused. What becomes an Array is checked as one, and `stream`, if there is one, is
// fitted to it; an operand may be copied to be aligned.
enum class CapsuleUse : std::int8_t { operand, array };
bool read_capsule(const ArgumentInfo &argument, PyObject *capsule, CapsuleUse use, ImportStream *stream,
                  ForeignArray *array) noexcept;

// What __dlpack_device__ says; TypeError where there is none, or no pair.
bool ask_device(const ArgumentInfo &argument, PyObject *object, dlpack::Device *device) noexcept;

// `copy=` of DLPack and the array API: None (also where it is null), True or False.
bool parse_copy(const char *function, PyObject *object, bool *always, bool *never) noexcept;

// Calls __dlpack__ with what the producer understands of our options; `stream` null: none is named. `copy` is
// None, True or False; `device` a pair or null.
PyRef call_dlpack(const ModuleState &state, PyObject *object, const StreamRef *stream, PyObject *copy,
                  PyObject *device) noexcept;

// DLPack's name for a stream: 1 is the legacy default stream.
PyRef dlpack_stream(const StreamRef &stream) noexcept;

// Where an array's memory is; TypeError for devices that are not ours, and for CUDA's on the host back-end.
bool locate(const ArgumentInfo &argument, const dlpack::Device &device, Location *location) noexcept;

// A fresh array of a library, for a result, and its memory. `device` as DLPack names it.
PyRef make_by_exchange(const ArgumentInfo &argument, const dlpack::ExchangeAPI *api, const dlpack::Device &device,
                       ElementType type, const Shape &shape, ForeignArray *array) noexcept;
// The array as one of the library whose array `like` is, without a copy where the library can.
PyRef convert_like(const ModuleState &state, PyObject *like, PyObject *array) noexcept;

}  // namespace cukern::py
