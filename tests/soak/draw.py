"""Random element types, shapes, values, layouts, and operands in memory of every kind with their NumPy models."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from arrays import random_array, special_values
from oracles import ELEMENT_TYPES

import cukern

from .core import Case

try:
    import ml_dtypes

    BFLOAT16: np.dtype | None = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BFLOAT16 = None

MEMORIES = ["device", "managed", "pinned"]
PLACES = ["host", *MEMORIES]
STEPS = [1, 1, 1, 2, 3, -1, -2]
HUGE = [2**31, -(2**31) - 1, 2**63, -(2**63) - 1, 2**64, 10**25, -(10**400)]


def is_bfloat16(dtype: Any) -> bool:
    return BFLOAT16 is not None and dtype == BFLOAT16


def dtype_of(case: Case, bfloat16: float = 0.05) -> np.dtype:
    """Return one of the element types."""
    if BFLOAT16 is not None and case.chance(bfloat16):
        return BFLOAT16
    return case.pick(ELEMENT_TYPES)


def shape_of(case: Case, most: int = 6, elements: int = 3000, largest: float = 5.3) -> tuple[int, ...]:
    """Return a shape; seldom one with many elements."""
    if case.chance(0.03):
        n = int(10 ** case.random.uniform(3, largest))
        rows = case.pick([1, 1, 2, 3, 16, 100])
        return case.pick([(n,), (rows, max(n // rows, 1)), (max(n // rows, 1), rows)])
    ndim = case.pick([0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6][: 6 + most])
    longest = {0: 1, 1: 300, 2: 40, 3: 12}.get(ndim, 5)
    shape: list[int] = []
    for _ in range(min(ndim, most)):
        shape.append(case.pick([0, 1, 1, 2, 3, 4, 5, 7, 8]) if case.chance(0.5) else case.random.randint(1, longest))
    while math.prod(shape) > elements:
        shape[shape.index(max(shape))] //= 2
    return tuple(shape)


def parts_of(case: Case, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to this one."""
    own = tuple(1 if case.chance(0.15) else n for n in shape)
    return own[case.random.randint(0, len(own)) :] if case.chance(0.25) else own


def values_of(case: Case, shape: tuple[int, ...], dtype: np.dtype, tame: bool = False) -> np.ndarray:
    """Return values over the range of the type, some of them special; tame: small ones, exact in float16."""
    rng = case.rng
    if tame:
        low, high = (0, 2) if dtype.kind == "b" else (0 if dtype.kind == "u" else -9, 10)
        return rng.integers(low, high, shape).astype(dtype)
    if is_bfloat16(dtype):
        with np.errstate(all="ignore"):
            return np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)
    if dtype.kind in "biu":
        values = random_array(rng, shape, dtype)
        if dtype.kind != "b" and case.chance(0.4):
            return (values % 19).astype(dtype)
    elif dtype.kind == "c" or case.chance(0.3):
        values = random_array(rng, shape, dtype)
    else:
        with np.errstate(all="ignore"):
            values = np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)
    values = np.array(values)
    if case.chance(0.3) and values.size:
        at = rng.random(shape) < 0.1
        values[at] = rng.choice(special_values(dtype), int(at.sum()))
    return values


View = Callable[[Any], Any]


def view_of(case: Case, shape: tuple[int, ...]) -> tuple[tuple[int, ...], View]:
    """Return the shape of a packed array, and what makes a view of `shape` of it: of an ndarray or an Array."""
    if case.chance(0.35) or not shape:
        return shape, lambda x: x
    order = list(range(len(shape)))
    if case.chance(0.6):
        case.random.shuffle(order)
    broadcast = [case.chance(0.1) for _ in shape] if case.chance(0.2) else [False] * len(shape)
    steps = [case.pick(STEPS) for _ in shape]
    extra = [case.pick([0, 0, 1, 2]) for _ in shape]
    lengths = [
        1 if alike else abs(step) * n + more
        for n, step, more, alike in zip(shape, steps, extra, broadcast, strict=True)
    ]
    base = tuple(lengths[axis] for axis in order)
    back = tuple(int(axis) for axis in np.argsort(order))
    first = [case.random.randint(0, more) for more in extra]
    cuts = tuple(
        slice(None) if alike else cut(n, step, length, begin)
        for n, step, length, begin, alike in zip(shape, steps, lengths, first, broadcast, strict=True)
    )

    def make(x: Any) -> Any:
        x = x.transpose(back)[cuts]
        if any(broadcast):
            return cukern.broadcast_to(x, shape) if type(x) is cukern.Array else np.broadcast_to(x, shape)
        return x

    return base, make


def cut(n: int, step: int, length: int, begin: int) -> slice:
    """Return the slice of n elements by a step of a dimension of some length."""
    if n == 0:
        return slice(0, 0)
    if step > 0:
        return slice(begin, begin + (n - 1) * step + 1, step)
    last = length - 1 - begin
    end = last + (n - 1) * step - 1
    return slice(last, end if end >= 0 else None, step)


@dataclass
class Operand:
    """What is given to cukern, and what NumPy computes with."""

    own: Any
    model: Any
    place: str  # host, a memory of Arrays, or number


def host_layout(case: Case, values: np.ndarray) -> np.ndarray | None:
    """Return the values in a layout that only ndarrays have, or None."""
    dtype, shape = values.dtype, values.shape
    match case.pick(["none"] * 6 + ["unaligned", "field", "part", "half", "read-only"]):
        case "unaligned":
            made = np.zeros(values.nbytes + 1, np.uint8)[1:].view(dtype).reshape(shape)
        case "field" if not is_bfloat16(dtype):
            made = np.zeros(shape, np.dtype([("pad", np.int8), ("x", dtype), ("y", np.int16)]))["x"]
        case "part" if dtype.name in ("float32", "float64"):
            whole = np.zeros(shape, f"c{2 * dtype.itemsize}")
            made = whole.real if case.chance(0.5) else whole.imag
        case "half" if dtype.kind == "c":  # begins at the second half of an element
            part = f"f{dtype.itemsize // 2}"
            made = np.zeros(2 * values.size + 1, part)[1:].view(dtype).reshape(shape)
        case "read-only":
            made = np.array(values)
            made.flags.writeable = False
            return made
        case _:
            return None
    made[...] = values
    return made


def operand(
    case: Case, shape: tuple[int, ...], dtype: np.dtype, place: str, *, tame: bool = False, writable: bool = False
) -> Operand:
    """Return an array in a random layout."""
    if place == "host" and not writable and case.chance(0.4):
        made = host_layout(case, values_of(case, shape, dtype, tame))
        if made is not None:
            return Operand(np.asarray(made), np.asarray(made), place)
    base, view = view_of(case, shape)
    values = values_of(case, base, dtype, tame)
    values = np.asarray(values)
    model = np.asarray(view(values))
    if writable and not np.asarray(model).flags.writeable:
        model = values = values_of(case, shape, dtype, tame)
        view = lambda x: x  # noqa: E731
    if place == "host":
        return Operand(model, model.copy() if writable else model, place)
    return Operand(view(array_of(case, values, place)), model.copy() if writable else model, place)


class Interface:
    """An array in a GPU's memory, some bytes behind the beginning of an Array."""

    def __init__(self, base: cukern.Array, offset: int, like: np.ndarray) -> None:
        self.base = base
        own = base.__cuda_array_interface__
        self.__cuda_array_interface__ = {
            **own,
            "shape": like.shape,
            "typestr": like.dtype.str,
            "data": (own["data"][0] + offset, False),
            "strides": None,
        }


def from_half(case: Case, values: np.ndarray) -> cukern.Array:
    """Return an Array of complex numbers that begins at the second half of one; it shares memory."""
    part = np.dtype(f"f{values.dtype.itemsize // 2}")
    parts = np.zeros(2 * values.size + 1, part)
    moved = parts[1:].view(values.dtype).reshape(values.shape)
    moved[...] = values
    if case.on_gpu:
        return cukern.asarray(Interface(cukern.asarray(parts), part.itemsize, moved))
    return cukern.from_dlpack(moved)


def array_of(case: Case, values: np.ndarray, memory: str) -> cukern.Array:
    """Return an Array of these values, made in one of several ways."""
    if memory == "device" and values.dtype.kind == "c" and values.size and case.chance(0.2):
        return from_half(case, values)
    if case.chance(0.2):
        made = cukern.empty(values.shape, values.dtype, memory=memory)
        made[...] = values
        return made
    return cukern.asarray(values, memory=memory)


def number(case: Case) -> Any:
    """Return a Python or NumPy number."""
    match case.random.randrange(10):
        case 0 | 1 | 2:
            return case.random.randint(-5, 9)
        case 3:
            return case.pick(HUGE)
        case 4:
            return case.chance(0.5)
        case 5 | 6:
            return case.pick([0.0, -0.0, 1.0, -1.5, 2.5, 0.125, 3.0, math.inf, -math.inf, math.nan, 1e300])
        case 7:
            return complex(case.random.randint(-3, 3), case.random.randint(-3, 3))
        case _:
            dtype = case.pick(ELEMENT_TYPES)
            return values_of(case, (1,), dtype)[0]


def place_of(case: Case) -> str:
    return case.pick(["host", "host", "host", "device", "device", "device", "managed", "pinned"])
