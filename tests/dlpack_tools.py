"""DLPack by hand: its structures, capsules with any fields, a type with the C exchange API, a reader.

Deleters and destructors are one function each that is never freed, so that a tensor may outlive the test that made
it. A producer keeps its capsules: one that is dropped while an exception is on its way would run Python code then.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import cukern

CPU, CUDA, CUDA_HOST, METAL, CUDA_MANAGED = 1, 2, 3, 8, 13
READ_ONLY, IS_COPIED = 1, 2
LEGACY, VERSIONED = "dltensor", "dltensor_versioned"
FORMS = [VERSIONED, LEGACY]
FORM_NAMES = {form: form.encode() for form in FORMS}  # a capsule borrows its name
USED_NAMES = {form: b"used_" + form.encode() for form in FORMS}
EXCHANGE = "__dlpack_c_exchange_api__"
EXCHANGE_NAME = b"dlpack_exchange_api"

# Code and bits by element type.
DTYPES: dict[str, tuple[int, int]] = {
    "float32": (2, 32),
    "float64": (2, 64),
    "int32": (0, 32),
    "int64": (0, 64),
    "float16": (2, 16),
    "complex64": (5, 64),
    "complex128": (5, 128),
    "bool": (6, 8),
    "int8": (0, 8),
    "int16": (0, 16),
    "uint8": (1, 8),
    "uint16": (1, 16),
    "uint32": (1, 32),
    "uint64": (1, 64),
}


class DLDevice(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("manager_context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class DLVersion(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("version", DLVersion),
        ("manager_context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class ExchangeTable(ctypes.Structure):
    _fields_ = (
        ("version", DLVersion),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("object_from_managed", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


assert ctypes.sizeof(DLTensor) == 48
assert ctypes.sizeof(DLManagedTensor) == 64
assert ctypes.sizeof(DLManagedTensorVersioned) == 80
assert ctypes.sizeof(ExchangeTable) == 56

SetError = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
Pointers = ctypes.POINTER(ctypes.c_void_p)
# As a caller sees them: without the GIL being released, and with exceptions raised.
ALLOCATE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(DLTensor), Pointers, ctypes.c_void_p, SetError)
MANAGED_FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, Pointers)
OBJECT_FROM_MANAGED = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, Pointers)
TENSOR_FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
CURRENT_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, Pointers)
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # called without the GIL


def python_function(name: str, restype: Any, *argtypes: Any) -> Callable[..., Any]:
    """Return a function of Python's C API with a prototype of its own."""
    function: Callable[..., Any] = ctypes.PYFUNCTYPE(restype, *argtypes)((name, ctypes.pythonapi))
    return function


new_capsule = python_function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
capsule_name = python_function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
capsule_pointer = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
rename_capsule = python_function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# Of a capsule that dies: it must not be made an object again.
is_unused = python_function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
pointer_of_dying = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
retain = python_function("Py_IncRef", None, ctypes.py_object)
release = python_function("Py_DecRef", None, ctypes.py_object)


class Counter:
    """Counts tensors and calls of their deleters, and notes the threads of these."""

    def __init__(self) -> None:
        self.made = 0
        self.deleted = 0
        self.threads: list[int] = []


class Managed:
    """A managed tensor, alive until its deleter is called."""

    def __init__(self, form: str, counter: Counter, keeper: object) -> None:
        self.counter = counter
        self.keeper = keeper
        self.struct: Any = DLManagedTensorVersioned() if form == VERSIONED else DLManagedTensor()
        self.arrays: list[Any] = []
        self.address = ctypes.addressof(self.struct)
        counter.made += 1
        ALIVE[self.address] = self


ALIVE: dict[int, Managed] = {}  # every managed tensor whose deleter has not been called


@DELETER
def delete(address: int) -> None:
    managed = ALIVE.pop(address)
    managed.counter.deleted += 1
    managed.counter.threads.append(threading.get_ident())


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def destroy(capsule: int) -> None:
    """Delete what a capsule has that nobody took over."""
    for name in FORM_NAMES.values():
        if is_unused(capsule, name):
            managed = ALIVE[pointer_of_dying(capsule, name)]
            if managed.struct.deleter:
                delete(managed.address)
            else:
                del ALIVE[managed.address]


def int64s(values: tuple[int, ...]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def fill_tensor(
    tensor: DLTensor,
    *,
    data: int | None,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    dtype: str | tuple[int, int, int] = "float32",
    device: tuple[int, int] = (CPU, 0),
    byte_offset: int = 0,
    ndim: int | None = None,
) -> list[Any]:
    """Fill a tensor; return what its pointers need. `strides` in elements, None: a null pointer."""
    kept = [int64s(shape), None if strides is None else int64s(strides)]
    tensor.data = data
    tensor.device = DLDevice(*device)
    tensor.ndim = len(shape) if ndim is None else ndim
    tensor.dtype = DLDataType(*((*DTYPES[dtype], 1) if isinstance(dtype, str) else dtype))
    tensor.shape = ctypes.cast(kept[0], ctypes.POINTER(ctypes.c_int64))
    if strides is not None:
        tensor.strides = ctypes.cast(kept[1], ctypes.POINTER(ctypes.c_int64))
    tensor.byte_offset = byte_offset
    return kept


def make_managed(
    form: str,
    counter: Counter,
    keeper: object,
    *,
    flags: int = 0,
    version: tuple[int, int] = (1, 0),
    has_deleter: bool = True,
    **fields: Any,
) -> Managed:
    """Return a managed tensor; `fields` are those of fill_tensor."""
    managed = Managed(form, counter, keeper)
    struct = managed.struct
    managed.arrays = fill_tensor(struct.tensor, **fields)
    struct.deleter = ctypes.cast(delete, ctypes.c_void_p).value if has_deleter else None
    if form == VERSIONED:
        struct.version = DLVersion(*version)
        struct.flags = flags
    return managed


class Memory:
    """A producer's bytes: in NumPy's memory, or on the GPU where cukern uses that."""

    def __init__(self, values: np.ndarray, on_gpu: bool = False) -> None:
        self.dtype = values.dtype
        self.shape = values.shape
        data = np.frombuffer(values.tobytes(), np.uint8)
        if on_gpu:
            self.bytes: Any = cukern.asarray(data)
            self.pointer = self.bytes.__cuda_array_interface__["data"][0]
            self.device = (CUDA, 0)
        else:
            raw = np.zeros(data.size + 64, np.uint8)
            start = -raw.ctypes.data % 64  # aligned more than NumPy promises
            self.bytes = raw[start : start + data.size]
            self.bytes[:] = data
            self.pointer = self.bytes.ctypes.data
            self.device = (CPU, 0)

    def values(self) -> np.ndarray:
        """Return a copy of what the memory holds now."""
        return cukern.asnumpy(self.bytes).copy().view(self.dtype).reshape(self.shape)


class Producer:
    """An array of another library, with ``__dlpack__`` alone.

    `form` None gives what the consumer asks for. Other keywords are the tensor's fields; those left out are of
    `values`.
    """

    def __init__(self, values: np.ndarray, form: str | None = None, on_gpu: bool = False, **fields: Any) -> None:
        self.memory = Memory(values, on_gpu)
        self.form = form
        self.counter = Counter()
        self.calls: list[dict[str, Any]] = []
        self.capsules: list[Any] = []
        self.fields: dict[str, Any] = {
            "data": self.memory.pointer,
            "shape": values.shape,
            "dtype": values.dtype.name,
            "device": self.memory.device,
            **fields,
        }

    def make(self, form: str) -> Any:
        """Return a fresh capsule."""
        managed = make_managed(form, self.counter, self.memory, **self.fields)
        capsule = new_capsule(managed.address, FORM_NAMES[form], ctypes.cast(destroy, ctypes.c_void_p))
        self.capsules.append(capsule)
        return capsule

    def drop(self) -> None:
        """Let go of the capsules: those that nobody used delete their tensors."""
        self.capsules.clear()

    def values(self) -> np.ndarray:
        return self.memory.values()

    @property
    def deleted(self) -> tuple[int, int]:
        """How many tensors were made, and how often a deleter was called."""
        return self.counter.made, self.counter.deleted

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.fields["device"]
        return device

    def __dlpack__(self, **options: Any) -> Any:
        self.calls.append(options)
        versioned = (options.get("max_version") or (0, 0))[0] >= 1
        return self.make(self.form or (VERSIONED if versioned else LEGACY))


class OldProducer(Producer):
    """One from before DLPack 1.0, which takes `stream` alone."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return super().__dlpack__(stream=stream)


class Reading:
    """What a capsule says; `take` takes it over, and `delete` ends it, as a consumer does."""

    def __init__(self, capsule: Any) -> None:
        name = capsule_name(capsule)
        self.name = name.decode()
        self.address = capsule_pointer(capsule, name)
        versioned = self.name == VERSIONED
        struct: Any = (DLManagedTensorVersioned if versioned else DLManagedTensor).from_address(self.address)
        tensor = struct.tensor
        self.deleter = struct.deleter
        self.version = (struct.version.major, struct.version.minor) if versioned else None
        self.flags = struct.flags if versioned else None
        self.data = tensor.data
        self.device = (tensor.device.type, tensor.device.id)
        self.dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
        self.byte_offset = tensor.byte_offset

    def take(self, capsule: Any) -> None:
        rename_capsule(capsule, USED_NAMES[self.name])

    def delete(self) -> None:
        """Call the deleter, without the GIL."""
        DELETER(self.deleter)(self.address)


def exchange_table(type_: type) -> ExchangeTable:
    """Return the table that a type offers."""
    return ExchangeTable.from_address(capsule_pointer(getattr(type_, EXCHANGE), EXCHANGE_NAME))


def make_exchange_type(
    *,
    flags: int = 0,
    null_data: bool = False,
    has_tensor: bool = True,
    device: tuple[int, int] = (CPU, 0),
    version: tuple[int, int] = (1, 3),
    failing: str = "",
    allocate_with: int | None = None,
) -> Any:
    """Return a type whose instances are arrays of another library with DLPack's C exchange API.

    `failing` names a function that returns -1. Calls are counted in the type's `calls`. `allocate_with` is the
    address of another allocator.
    """

    class Exchanged:
        calls: dict[str, int] = {}  # noqa: RUF012
        counter = Counter()
        table = ExchangeTable()

        def __init__(self, values: np.ndarray) -> None:
            self.values = values
            self.int64s: Any = None

    def fields_of(subject: Any) -> dict[str, Any]:
        values = subject.values
        return {
            "data": None if null_data else values.ctypes.data,
            "shape": values.shape,
            "strides": tuple(stride // values.itemsize for stride in values.strides),
            "dtype": values.dtype.name,
            "device": device,
        }

    def called(name: str) -> int:
        Exchanged.calls[name] = Exchanged.calls.get(name, 0) + 1
        return -1 if name == failing else 0

    def tensor_from_object(subject: Any, out: Any) -> int:
        if called("tensor_from_object"):
            return -1
        subject.int64s = fill_tensor(out.contents, **fields_of(subject))
        return 0

    def managed_from_object(subject: Any, out: Any) -> int:
        if called("managed_from_object"):
            return -1
        out[0] = make_managed(VERSIONED, Exchanged.counter, subject, flags=flags, **fields_of(subject)).address
        return 0

    def allocate(prototype: Any, out: Any, context: Any, set_error: Any) -> int:
        if called("allocate"):
            return -1
        wanted = prototype.contents
        shape = tuple(wanted.shape[: wanted.ndim])
        dtype = next(name for name, row in DTYPES.items() if row == (wanted.dtype.code, wanted.dtype.bits))
        values = np.full(shape, 77, dtype)
        fields = {"data": values.ctypes.data, "shape": shape, "dtype": dtype, "device": device}
        out[0] = make_managed(VERSIONED, Exchanged.counter, values, **fields).address
        return 0

    def object_from_managed(address: int, out: Any) -> int:
        managed = ALIVE[address]  # taken over, also on failure
        delete(address)
        if called("object_from_managed"):
            return -1
        result = Exchanged(managed.keeper)  # type: ignore[arg-type]
        retain(result)
        out[0] = id(result)
        return 0

    def current_stream(device_type: int, device_id: int, out: Any) -> int:
        out[0] = None
        return called("current_stream")

    made = {
        "allocate": ALLOCATE(allocate),
        "managed_from_object": MANAGED_FROM_OBJECT(managed_from_object),
        "object_from_managed": OBJECT_FROM_MANAGED(object_from_managed),
        "tensor_from_object": TENSOR_FROM_OBJECT(tensor_from_object),
        "current_stream": CURRENT_STREAM(current_stream),
    }
    table = Exchanged.table
    table.version = DLVersion(*version)
    for name, function in made.items():
        setattr(table, name, ctypes.cast(function, ctypes.c_void_p).value)
    if allocate_with is not None:
        table.allocate = allocate_with
    if not has_tensor:
        table.tensor_from_object = None
    KEPT.append((table, made))
    setattr(Exchanged, EXCHANGE, new_capsule(ctypes.addressof(table), EXCHANGE_NAME, None))
    return Exchanged


KEPT: list[Any] = []  # tables live as long as the process, as the standard has it
