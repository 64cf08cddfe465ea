// Arrays lent to other libraries, and theirs as Arrays.
#pragma once

#include "array/array.h"
#include "interop/frameworks.h"

namespace cukern::py {

// An Array over another library's memory. Its tensor, which is taken over, or else `keeper` is released when the
// memory is not used any more; `base` is what the array names as its base, or null.
PyRef adopt_array(const ArgumentInfo &argument, ForeignArray &foreign, PyObject *keeper, PyObject *base) noexcept;

// Reads another library's array by DLPack, to be adopted. `stream`, where the memory will be used first, may be
// null; `copy` is None, True or False.
bool import_dlpack(const ArgumentInfo &argument, PyObject *object, const TypeRecord &record, PyObject *stream,
                   PyObject *copy, ForeignArray *foreign) noexcept;

// Another library's array as an Array that shares its memory, which a device reaches. `stream` may be null.
PyRef shared_array(const ModuleState &state, const char *function, PyObject *object, PyObject *stream) noexcept;

// Where an Array is, as DLPack names it.
dlpack::Device device_of(const Array *array) noexcept;

// An Array's memory as a tensor that keeps the Array alive; null with an exception set.
dlpack::ManagedTensorVersioned *export_versioned(Array *array, const dlpack::Device &device,
                                                 bool is_copy) noexcept;

// A tensor in a capsule, which deletes it unless a consumer takes it over. Null with an exception set: the tensor
// is deleted then.
PyRef in_versioned_capsule(dlpack::ManagedTensorVersioned *managed) noexcept;

// The Array that lends a tensor with this deleter, or null where the tensor is not one of ours.
PyObject *lender_of(const dlpack::ManagedTensorVersioned &managed) noexcept;
PyObject *lender_of(const dlpack::ManagedTensor &managed) noexcept;

// Sets DLPack's C exchange API on the type Array; withdrawn when the module goes.
bool offer_exchange(ModuleState &state) noexcept;
void withdraw_exchange(const ModuleState &state) noexcept;

}  // namespace cukern::py
