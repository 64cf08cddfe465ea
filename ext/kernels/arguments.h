// The arguments of a kernel that a user brings: read, checked against its parameters, laid out as one block.
#pragma once

#include "call/operand.h"
#include "kernels/kernels.h"

namespace cukern::py {

// Of the very types, which says at once that it is a value.
inline bool is_plain_number(PyObject *object) noexcept {
    return PyLong_CheckExact(object) || PyFloat_CheckExact(object);
}

// An argument that is an array. Others are values, and looked at when they are packed.
struct ArrayArgument {
    void *data = nullptr;
    Storage *storage = nullptr;  // of an Array
    Operand *operand = nullptr;  // of another library's array
    int device = -1;             // whose memory it is; -1: memory that all reach
    ElementType type = ElementType::float32;
    bool is_array = false;
    bool is_tensor = false;  // of torch, read the short way
    bool read_only = false;
    bool writes = false;  // what the kernel may do to it
};

class KernelArguments {
public:
    // `code` and `name`, of the kernel, are for messages: a source has the names of parameters. Null: there is
    // none.
    KernelArguments(ModuleState &state, const char *function, PyObject *const *objects, Py_ssize_t count,
                    PyObject *code, PyObject *name) noexcept
        : state_(state),
          function_(function),
          objects_(objects),
          count_(static_cast<int>(count)),
          code_(code),
          name_(name) {}
    KernelArguments(const KernelArguments &) = delete;
    KernelArguments &operator=(const KernelArguments &) = delete;
    ~KernelArguments();

    // Reads those that are arrays; their producers are asked to be ready for the stream that is given.
    bool read(PyObject *given_stream) noexcept;
    // The stream of the launch, and with it the device.
    bool choose_stream_for(PyObject *given, HeldStream *stream) const noexcept;
    // Checks all of them against the kernel's parameters, and lays them out in `block`.
    bool pack(const UserKernel &kernel, int device, bool unchecked, unsigned char *block) noexcept;
    // RuntimeError where code that ran has given an array other memory.
    bool check_unchanged() const noexcept;

    // Before the launch: makes the stream wait for pending work. After it: records the uses.
    bool begin(const StreamRef &stream) const noexcept;
    bool end(const StreamRef &stream) const noexcept;

private:
    bool read_tensor(const TypeRecord &record, int i, bool *is_read) noexcept;
    bool read_one(int i, ReadContext &reading) noexcept;
    bool find_pinned(int i) noexcept;
    bool record_tensors(const StreamRef &stream) const noexcept;
    bool is_still_at(PyObject *tensor, const void *data) const noexcept;
    bool pack_array(const KernelParameter &parameter, int i, int device, bool unchecked,
                    unsigned char *to) noexcept;
    bool pack_value(const KernelParameter &parameter, int i, bool unchecked, unsigned char *to) noexcept;
    bool pack_numpy_scalar(const KernelParameter &parameter, int i, bool unchecked, unsigned char *to) noexcept;
    bool pack_structure(const KernelParameter &parameter, int i, bool unchecked, bool *is_one,
                        unsigned char *to) noexcept;
    bool pack_number(const KernelParameter &parameter, int i, unsigned char *to) noexcept;
    bool pack_by_width(const KernelParameter &parameter, int i, unsigned char *to) noexcept;
    PyRef place_of(int i) const noexcept;
    bool refuse(const KernelParameter &parameter, int i, PyObject *type, const char *got,
                const char *takes) const noexcept;
    bool refuse_array(const KernelParameter &parameter, int i) const noexcept;
    bool refuse_number(const KernelParameter &parameter, int i) const noexcept;
    bool refuse_width(const KernelParameter &parameter, int i, const char *got, int bytes) const noexcept;
    bool refuse_overflow(const KernelParameter &parameter, int i) const noexcept;

    static constexpr int kFew = 16;  // that lie here
    static constexpr int kFewOperands = 8;

    ModuleState &state_;
    const char *const function_;
    PyObject *const *const objects_;
    const int count_;
    PyObject *const code_;
    PyObject *const name_;
    ArrayArgument *arrays_ = nullptr;
    int num_read_ = 0;  // of arrays_
    int num_operands_ = 0;
    bool ran_code_ = false;
    // Of torch's tensors that are read the short way: the stream that torch works on, in whose order it reuses
    // memory, so that nothing has to be kept.
    bool has_tensors_ = false;
    TrackedView tensors_;
    alignas(ArrayArgument) unsigned char few_[kFew * sizeof(ArrayArgument)];
    alignas(Operand) unsigned char operands_[kFewOperands * sizeof(Operand)];
};

}  // namespace cukern::py
