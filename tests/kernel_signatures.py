"""Random kernels and argument lists, with what must come of each.

What is expected comes from the types that a kernel was made from, never from its mangled name: that is what is
tested. Each kernel writes its arguments, as it sees them, to the memory that its first one points to.
"""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import cukern

ELEMENTS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
ELEMENTS += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
DTYPES = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in ELEMENTS}


@dataclass(frozen=True)
class Scalar:
    """A C++ type of numbers, and the element type that it is."""

    text: str
    element: str
    arrays: tuple[str, ...] = ()  # element types that a pointer takes beside its own
    is_class: bool = False

    @property
    def dtype(self) -> np.dtype:
        return DTYPES[self.element]

    @property
    def size(self) -> int:
        return self.dtype.itemsize


SCALARS = [
    Scalar("bool", "bool"),
    Scalar("char", "int8", ("uint8",)),
    Scalar("signed char", "int8"),
    Scalar("unsigned char", "uint8"),
    Scalar("short", "int16"),
    Scalar("unsigned short", "uint16"),
    Scalar("int", "int32"),
    Scalar("unsigned int", "uint32"),
    Scalar("long", "int64"),
    Scalar("size_t", "uint64"),
    Scalar("long long", "int64"),
    Scalar("unsigned long long", "uint64"),
    Scalar("float", "float32"),
    Scalar("double", "float64"),
    Scalar("__half", "float16", (), True),
    Scalar("__nv_bfloat16", "bfloat16", (), True),
    Scalar("float2", "complex64", ("float32",), True),
    Scalar("double2", "complex128", ("float64",), True),
]
PLAIN = [scalar for scalar in SCALARS if not scalar.is_class]


@dataclass(frozen=True)
class Struct:
    """A structure of numbers."""

    text: str
    fields: tuple[Scalar, ...]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype([(f"f{i}", scalar.dtype) for i, scalar in enumerate(self.fields)], align=True)

    @property
    def size(self) -> int:
        return self.dtype.itemsize

    def mask(self) -> bytes:
        """Return which bytes are of fields: what lies between them is nobody's."""
        mask = bytearray(self.size)
        for dtype, offset in self.dtype.fields.values():
            mask[offset : offset + dtype.itemsize] = b"\xff" * dtype.itemsize
        return bytes(mask)

    def definition(self) -> str:
        members = " ".join(f"{scalar.text} f{i};" for i, scalar in enumerate(self.fields))
        return f"struct {self.text} {{ {members} }};"


@dataclass(frozen=True)
class Pointer:
    """A pointer to numbers, structures, nothing (void) or pointers."""

    to: Scalar | Struct | str
    is_const: bool = False
    size: int = 8

    @property
    def text(self) -> str:
        to = self.to if isinstance(self.to, str) else self.to.text
        if to == "void *":  # what the array holds are pointers, which are const or not
            return "void *const *" if self.is_const else "void **"
        return f"const {to} *" if self.is_const else f"{to} *"

    def takes(self) -> set[str]:
        if isinstance(self.to, Scalar):
            return {self.to.element, *self.to.arrays}
        return {"int64", "uint64"} if self.to == "void *" else set(ELEMENTS)


Parameter = Scalar | Struct | Pointer


@dataclass
class Kernel:
    """A kernel: its text and its parameters, behind the one that it writes to."""

    name: str  # as a name expression
    text: str
    parameters: list[Parameter]
    is_typed: bool  # it has a C++ name
    structs: list[Struct] = field(default_factory=list)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (8, *(parameter.size for parameter in self.parameters))

    def mask(self) -> bytes:
        """Return which bytes of the arguments count, as they are written one after the other."""
        return b"".join(p.mask() if isinstance(p, Struct) else b"\xff" * p.size for p in self.parameters)


PRELUDE = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <typename X> __device__ void dump(unsigned char *&out, const X &x) {
    const unsigned char *bytes = reinterpret_cast<const unsigned char *>(&x);
    for (int i = 0; i < static_cast<int>(sizeof(X)); ++i) *out++ = bytes[i];
}
"""


def random_parameter(random_: random.Random, structs: list[Struct], number: int) -> Parameter:
    """Return any type that a parameter may have."""
    kind = random_.random()
    if kind < 0.45:
        return random_.choice(SCALARS)
    if kind < 0.55:
        fields = tuple(random_.choice(PLAIN) for _ in range(random_.randint(1, 5)))
        structs.append(Struct(f"S{number}_{len(structs)}", fields))
        return structs[-1]
    if kind < 0.62:
        return Pointer(random_.choice(["void", "void *"]), random_.random() < 0.5)
    if kind < 0.68 and structs:
        return Pointer(random_.choice(structs), random_.random() < 0.5)
    return Pointer(random_.choice(SCALARS), random_.random() < 0.5)


def random_kernel(random_: random.Random, number: int) -> Kernel:
    """Return a kernel of zero to nine parameters behind the first, of any kind of name."""
    structs: list[Struct] = []
    parameters = [random_parameter(random_, structs, number) for _ in range(random_.randint(0, 9))]
    kind = random_.choice(["plain", "extern", "template", "namespace", "values"])
    own = f"k{number}"
    texts = [parameter.text for parameter in parameters]
    prefix, name, suffix = "", own, ""
    if kind == "extern":
        prefix = 'extern "C" '
    elif kind == "namespace":
        prefix, name, suffix = f"namespace n{number % 7} {{ namespace inner {{ ", f"n{number % 7}::inner::{own}", " } }"
    elif kind == "values":  # a template of a number and of a type that no parameter needs
        prefix, name = "template <int N, typename U> ", f"{own}<{random_.randint(-5, 5)}, {random_.choice(PLAIN).text}>"
    elif kind == "template":
        argument, is_const = random_.choice(SCALARS), random_.random() < 0.3
        prefix, name = "template <typename T> ", f"{own}<{'const ' if is_const else ''}{argument.text}>"
        for i, parameter in enumerate(parameters):
            if isinstance(parameter, Scalar) and random_.random() < 0.6:
                parameters[i], texts[i] = argument, "T"
            elif isinstance(parameter, Pointer) and random_.random() < 0.6:
                parameters[i] = Pointer(argument, parameter.is_const or is_const)
                texts[i] = "const T *" if parameter.is_const else "T *"
    declared = ", ".join(["unsigned char *out", *(f"{text} a{i}" for i, text in enumerate(texts))])
    body = " ".join(f"dump(out, a{i});" for i in range(len(texts)))
    definitions = "\n".join(struct.definition() for struct in structs)
    text = f"{definitions}\n{prefix}__global__ void {own}({declared}) {{ {body} }}{suffix}\n"
    return Kernel(name, text, parameters, kind != "extern", structs)


def address_of(array: Any) -> int:
    """Return where an Array's first element is, as DLPack tells it."""
    capsule = array.__dlpack__()
    tensor = ctypes.pythonapi.PyCapsule_GetPointer
    tensor.restype, tensor.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    data = ctypes.string_at(tensor(capsule, b"dltensor"), 48)  # data, device, ndim, dtype, shape, strides, byte_offset
    return struct.unpack_from("<Q", data, 0)[0] + struct.unpack_from("<Q", data, 40)[0]


Case = tuple[Any, bytes | None]  # an argument, and its bytes in the block of parameters; None: it must be refused


class Values:
    """Arguments for parameters, right ones and wrong ones.

    `arrays` are of each element type, in device memory; of `read_only` each begins where the first of them does.
    """

    def __init__(self, random_: random.Random, arrays: dict[str, list[Any]], read_only: dict[str, Any]) -> None:
        self.random = random_
        self.arrays = arrays
        self.read_only = read_only
        self.addresses = {id(x): address_of(x) for every in arrays.values() for x in every}
        self.addresses |= {id(x): address_of(arrays[element][0]) for element, x in read_only.items()}

    def array(self, element: str) -> Any:
        return self.random.choice(self.arrays[element])

    def address(self, array: Any) -> bytes:
        return struct.pack("<Q", self.addresses[id(array)])

    def case(self, parameter: Parameter, is_typed: bool) -> Case:
        choices = self.untyped(parameter.size) if not is_typed else self.typed(parameter)
        return self.random.choice(choices)()

    def number(self, scalar: Scalar) -> Any:
        """A value that the type holds, as a NumPy scalar."""
        dtype, random_ = scalar.dtype, self.random
        if dtype.kind == "b":
            return np.bool_(random_.random() < 0.5)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            return dtype.type(random_.choice([info.min, info.max, 0, 1, random_.randint(int(info.min), int(info.max))]))
        value = random_.choice([0.0, -1.5, float("inf"), random_.uniform(-1000, 1000)])
        if dtype.kind == "c":
            return dtype.type(complex(value, random_.uniform(-5, 5)))
        return dtype.type(value)

    def typed(self, parameter: Parameter) -> list[Callable[[], Case]]:
        if isinstance(parameter, Pointer):
            return self.pointer(parameter)
        if isinstance(parameter, Struct):
            return self.structure(parameter)
        return self.scalar(parameter)

    def scalar(self, scalar: Scalar) -> list[Callable[[], Case]]:
        dtype, random_ = scalar.dtype, self.random

        def python() -> Case:
            value = self.number(scalar)
            return value.item() if dtype.kind != "V" and scalar.element != "bfloat16" else float(value), value.tobytes()

        def same() -> Case:
            value = self.number(scalar)
            return value, value.tobytes()

        def other_numpy() -> Case:
            other = random_.choice([s for s in SCALARS if s.element != scalar.element])
            value = self.number(other)
            taken = scalar.text == "char" and other.element == "uint8"
            return value, value.tobytes() if taken else None

        def from_ctypes() -> Case:
            wide = ctypes.c_double if scalar.element != "float64" else ctypes.c_float
            return wide(1.0), None

        def structured() -> Case:
            value = np.zeros((), np.dtype([("x", np.uint8, (scalar.size,))]))[()]
            return value, bytes(scalar.size) if scalar.is_class else None

        wrong = [lambda: (None, None), lambda: (self.array("float32"), None), other_numpy, from_ctypes, structured]
        wrong += [lambda: (cukern.Pointer(64), None), lambda: ("text", None), lambda: (np.zeros(2, np.float32), None)]
        if dtype.kind in "iub":
            top = 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)
            low = 0 if dtype.kind == "b" else int(np.iinfo(dtype).min)
            if scalar.text == "char":
                top = 255
            wrong += [lambda: (top + 1, None), lambda: (low - 1, None), lambda: (1.0, None), lambda: (1j, None)]
        elif dtype.kind == "c":
            wrong.append(lambda: (2, dtype.type(2).tobytes()))
        else:
            wrong += [lambda: (1j, None), lambda: (3, dtype.type(3).tobytes())]
            if scalar.element != "float64":
                wrong.append(lambda: (1e300, None))
        return [python, same] * 4 + wrong

    def structure(self, struct_: Struct) -> list[Callable[[], Case]]:
        def numpy() -> Case:
            value = np.zeros((), struct_.dtype)
            for i, scalar in enumerate(struct_.fields):
                value[f"f{i}"] = self.number(scalar)
            return value[()], value.tobytes()

        def from_ctypes() -> Case:
            data = self.random.randbytes(struct_.size)
            kind = type("Own", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_uint8 * struct_.size)]})
            return kind.from_buffer_copy(data), data

        def too_long() -> Case:
            return np.zeros((), np.dtype([("x", np.uint8, (struct_.size + 1,))]))[()], None

        def of_width() -> Case:
            value = np.int32(self.random.randint(-9, 9))
            return value, value.tobytes() if struct_.size == 4 else None

        wrong = [lambda: (1, None), lambda: (1.0, None), lambda: (None, None), lambda: (self.array("int32"), None)]
        return [numpy, from_ctypes] * 4 + [too_long, of_width, *wrong]

    def pointer(self, pointer: Pointer) -> list[Callable[[], Case]]:
        taken = sorted(pointer.takes())

        def array() -> Case:
            value = self.array(self.random.choice(taken))
            return value, self.address(value)

        def other() -> Case:
            element = self.random.choice(ELEMENTS)
            value = self.array(element)
            return value, self.address(value) if element in taken else None

        def read_only() -> Case:
            value = self.read_only[self.random.choice(taken)]
            return value, self.address(value) if pointer.is_const else None

        def bare() -> Case:
            address = self.random.randrange(1 << 63)
            return cukern.Pointer(address), struct.pack("<Q", address)

        null = lambda: (None, bytes(8))  # noqa: E731
        wrong = [lambda: (4096, None), lambda: (1.0, None), lambda: (np.int64(64), None), lambda: ("text", None)]
        wrong += [lambda: (np.zeros(3, DTYPES[taken[0]]), None), lambda: (np.zeros((), "i4,i4")[()], None)]
        return [array] * 8 + [null, bare, other, other, read_only, *wrong]

    def untyped(self, size: int) -> list[Callable[[], Case]]:
        random_ = self.random
        is_pointer = size == 8

        def integer() -> Case:
            if size not in (1, 2, 4, 8):
                return 1, None
            bits = 8 * size
            value = random_.choice([0, -1, (1 << bits) - 1, -(1 << (bits - 1)), random_.randrange(1 << (bits - 1))])
            return value, (value % (1 << bits)).to_bytes(size, "little")

        def too_large() -> Case:
            return (1 << (8 * size)) if size <= 8 else 1 << 64, None

        def real() -> Case:
            value = random_.uniform(-9, 9)
            kinds = {4: "<f", 8: "<d"}
            return value, struct.pack(kinds[size], value) if size in kinds else None

        def complex_() -> Case:
            kinds = {8: "<ff", 16: "<dd"}
            return 1 - 2j, struct.pack(kinds[size], 1, -2) if size in kinds else None

        def numpy() -> Case:
            value = self.number(random_.choice(SCALARS))
            return value, value.tobytes() if value.itemsize == size else None

        def structured() -> Case:
            length = random_.choice([size, size, size + 1])
            data = random_.randbytes(length)
            return np.frombuffer(data, np.dtype([("x", np.uint8, (length,))]))[0], data if length == size else None

        def array() -> Case:
            value = self.array(random_.choice(ELEMENTS))
            return value, self.address(value) if is_pointer else None

        null = lambda: (None, bytes(8) if is_pointer else None)  # noqa: E731
        wrong = [lambda: ("text", None), lambda: (np.zeros(2), None), too_large]
        return [integer, real, numpy, structured, array, null] * 3 + [complex_, *wrong]

    def list_for(self, kernel: Kernel) -> tuple[list[Any], list[bytes] | None]:
        """Return arguments for a kernel's parameters, and their bytes; None where the list must be refused.

        Half of the lists are tried to be right, and others have one wrong argument or any.
        """
        careful = self.random.random() < 0.85
        cases = []
        for parameter in kernel.parameters:
            case = self.case(parameter, kernel.is_typed)
            for _ in range(30 if careful else 0):
                if case[1] is not None:
                    break
                case = self.case(parameter, kernel.is_typed)
            cases.append(case)
        if cases and careful and self.random.random() < 0.4:
            i = self.random.randrange(len(cases))
            cases[i] = self.case(kernel.parameters[i], kernel.is_typed)
        objects = [case[0] for case in cases]
        values = [case[1] for case in cases]
        wrong_count = self.random.random()
        if wrong_count < 0.02 and objects:
            return objects[:-1], None
        if wrong_count > 0.98:
            return [*objects, 1], None
        return objects, None if None in values else values  # type: ignore[return-value]
