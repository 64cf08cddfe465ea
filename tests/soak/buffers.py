"""The buffer protocol: any flags, Python's own types as readers and as operands."""

from __future__ import annotations

import array
import ctypes
import hashlib
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
from arrays import assert_same
from buffer_tools import GET_BUFFER, RELEASE_BUFFER, PyBuffer

import cukern

from .exchange import Exchange, attempt

WRITABLE, FORMAT, ND, STRIDES = 1, 4, 8, 0x18
FLAGS = [
    0,
    WRITABLE,
    FORMAT,
    ND,
    STRIDES,
    0x38,
    0x58,
    0x98,
    0x118,
    0x11C,
    0x11D,
    0x1C,
    0x1D,
    0x19,
    0x18 | FORMAT,
]


def flagged(x: Exchange) -> None:
    """Ask for a buffer with random flags, by the C API or Python's method."""
    case = x.case
    flags = case.pick(FLAGS) if case.chance(0.8) else case.random.getrandbits(8)  # 256 alone is no flag to Python 3.13
    if hasattr(x.array, "__buffer__") and case.chance(0.3):
        view = attempt(case, f"a.__buffer__({flags:#x})", lambda: x.array.__buffer__(flags))
        if view is not None:
            case.check(view.nbytes == x.values.nbytes, f"a buffer of {view.nbytes} bytes")
            x.keep(view)
        return
    buffer = PyBuffer()
    if attempt(case, f"PyObject_GetBuffer(a, {flags:#x})", lambda: GET_BUFFER(x.array, buffer, flags)) is None:
        return
    try:
        case.check(x.host_sees, "a buffer of memory that the host does not see")
        told = (buffer.len, buffer.itemsize, buffer.ndim)
        case.check(told == (x.values.nbytes, x.values.itemsize, x.values.ndim) or not flags & ND, f"a buffer of {told}")
        case.check(bool(buffer.format) == bool(flags & FORMAT), f"format is {buffer.format!r} with flags {flags:#x}")
        case.check(bool(flags & STRIDES == STRIDES) or not buffer.strides, f"strides with flags {flags:#x}")
        case.check(not (flags & WRITABLE and buffer.readonly), "a read-only buffer with the flag WRITABLE")
        if flags & ND != ND:
            case.check(not buffer.shape, f"a shape with flags {flags:#x}")
        if flags & STRIDES != STRIDES and buffer.len:
            raw = ctypes.string_at(buffer.buf, buffer.len)
            case.check(raw == x.values.tobytes(), f"a buffer with flags {flags:#x} has other bytes")
    finally:
        RELEASE_BUFFER(buffer)


def buffers(x: Exchange) -> None:
    """Have Python's own types read the memory."""
    case = x.case
    data = x.values.tobytes()
    readers: dict[str, Callable[[], Any]] = {
        "memoryview": lambda: memoryview(x.array),
        "tobytes": lambda: memoryview(x.array).tobytes(),
        "bytes": lambda: bytes(memoryview(x.array)),
        "sha256": lambda: hashlib.sha256(x.array).digest(),
        "asarray": lambda: np.asarray(x.array),
        "array": lambda: np.array(x.array),
        "frombuffer": lambda: np.frombuffer(x.array, x.dtype),
        "from_buffer": lambda: (ctypes.c_char * x.array.nbytes).from_buffer(x.array),
        "bytearray": lambda: bytearray(memoryview(x.array).cast("B")),
        "__array__": lambda: x.array.__array__(case.pick([None, x.dtype, np.complex128]), copy=case.pick([None, True])),
        "copy=False": lambda: np.array(x.array, copy=False),
        "from_dlpack": lambda: np.from_dlpack(x.array),
    }
    name = case.pick(list(readers))
    found = attempt(case, f"{name} of a", readers[name])
    if found is None:
        return
    case.check(x.host_sees, f"{name} sees memory of the device")
    match name:
        case "tobytes" | "bytes" | "bytearray":
            case.check(bytes(found) == data, f"{name} has other bytes")
        case "sha256":
            case.check(found == hashlib.sha256(data).digest(), "sha256 has read other bytes")
        case "asarray" | "array" | "copy=False" | "from_dlpack":
            x.sees(found)
    x.keep(found)


def host_operands(x: Exchange) -> None:
    """Give buffers of Python's types to operations, as operands and as out."""
    case = x.case
    numbers = [float(n) for n in range(1, 5)]
    with_map = mmap.mmap(-1, 4096)
    with_map.write(np.array(numbers).tobytes())
    made = case.pick(
        [
            array.array("d", numbers),
            bytearray(np.array(numbers).tobytes()),
            memoryview(bytearray(np.array(numbers).tobytes())).cast("d"),
            (ctypes.c_double * 4)(*numbers),
            memoryview(with_map)[:32].cast("d"),
            memoryview(array.array("d", numbers * 2))[::2],
            b"12345678",
        ]
    )
    doubled = attempt(case, f"add({type(made).__name__}, itself)", lambda: cukern.add(made, made))
    if doubled is not None:
        assert_same(
            doubled, np.asarray(made) + np.asarray(made) if not isinstance(made, bytes | bytearray) else doubled
        )
    result = attempt(case, f"add into a {type(made).__name__}", lambda: cukern.add(made, 1, out=made))
    case.check(result is None or result is made, "another object than out was returned")
    x.keep(made)
