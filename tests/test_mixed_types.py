"""Operands of two types, in any layout: how elements are loaded, converted and stored differs for each pair."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import VIEWS
from cases import each
from conftest import SMALL
from oracles import assert_result

import cukern

pytestmark = pytest.mark.usefixtures("backend")

TYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
# A thread takes one element each, in tiles from 1024 on; several, or some of its last ones, from 2**16 on.
SHAPES = [(33, 17), (40, 50), (300, 257)]
LAYOUTS = ("packed", "transposed", "every second column", "backwards", "wider", "all rows but the first")


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return numbers that every type holds, but for signs."""
    of = np.dtype(dtype)
    x = rng.integers(0 if of.kind in "bu" else -4, 5, shape)
    return (x + 1j * rng.integers(-4, 5, shape)).astype(of) if of.kind == "c" else x.astype(of)


def mixed(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return such numbers, and of integers the least, the largest and what is half of it."""
    x = small(rng, shape, dtype)
    if x.dtype.kind not in "iu":
        return x
    limits = np.iinfo(dtype)
    ends = np.array([limits.min, limits.max, limits.max // 2 + 1], x.dtype)
    return np.where(rng.integers(0, 4, shape) == 0, rng.choice(ends, shape), x)


def conditions(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return numbers whose truth is in some of their bits, or their parts, alone."""
    of = np.dtype(dtype)
    if of.kind in "iu":
        bits = np.array([1 << k for k in range(8 * of.itemsize)], f"u{of.itemsize}").view(of)
        return rng.choice(np.append(bits, np.zeros_like(bits)), shape)
    if of.kind == "b":
        return small(rng, shape, dtype)
    parts = np.array([0.0, -0.0, np.nan, np.finfo(of).smallest_subnormal, 1.0])
    x = rng.choice(parts, shape)
    if of.kind == "c":
        x = x * 0j
        x.real, x.imag = rng.choice(parts, shape), rng.choice(parts, shape)
    return x.astype(of)


def laid(x: np.ndarray, layout: str) -> cukern.Array:
    """Return the same elements as an Array of a layout."""
    memory, view = VIEWS[layout]
    base = np.zeros(memory(*x.shape), x.dtype)
    view(base)[...] = x
    made: cukern.Array = view(cukern.asarray(base))
    return made


@each("b_type", TYPES)
@pytest.mark.parametrize("a_type", TYPES)
def test_pairs(a_type: str, b_type: str, rng: np.random.Generator) -> None:
    shape = SHAPES[(TYPES.index(a_type) + TYPES.index(b_type)) % (2 if SMALL else 3)]
    a, b = mixed(rng, shape, a_type), mixed(rng, shape, b_type)
    for name in ("multiply", "equal", "logical_and"):
        own = [laid(x, rng.choice(LAYOUTS)) for x in (a, b)]
        with np.errstate(all="ignore"):
            assert_result(cukern.asnumpy(getattr(cukern, name)(*own)), name, a, b)
        fresh = getattr(cukern, name)(*own)
        out = laid(np.zeros(shape, str(fresh.dtype)), rng.choice(LAYOUTS))
        getattr(cukern, name)(*own, out=out)
        np.testing.assert_array_equal(cukern.asnumpy(out), cukern.asnumpy(fresh))
    c = conditions(rng, shape, rng.choice(TYPES))
    with np.errstate(all="ignore"):
        wanted = np.where(c != 0, a, b)
    own = [laid(x, rng.choice(LAYOUTS)) for x in (c, a, b)]
    np.testing.assert_array_equal(cukern.asnumpy(cukern.where(*own)), wanted)


@each("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_conversions(source: str, target: str, rng: np.random.Generator) -> None:
    shape = SHAPES[(TYPES.index(source) + TYPES.index(target)) % (2 if SMALL else 3)]
    x = mixed(rng, shape, source)
    if np.dtype(target).kind == "u" and x.dtype.kind in "fc":  # what becomes of negative ones is the processor's
        x = abs(x).astype(source)
    with np.errstate(all="ignore"):
        wanted = (x.real if x.dtype.kind == "c" and np.dtype(target).kind not in "cb" else x).astype(target)
    for layout in LAYOUTS:
        own, out = laid(x, layout), laid(np.zeros(shape, target), rng.choice(LAYOUTS))
        np.testing.assert_array_equal(cukern.asnumpy(own.astype(target)), wanted)
        if np.can_cast(source, target, "same_kind"):
            cukern.copyto(out, own)
            np.testing.assert_array_equal(cukern.asnumpy(out), wanted)


@pytest.mark.parametrize("name", ["divide", "atan2", "pow", "remainder", "floor_divide"])
@each("dtype", ["float16", "float32", "float64", "complex64", "complex128", "int8", "uint16", "int32", "int64"])
def test_one_element_for_all(name: str, dtype: str, rng: np.random.Generator) -> None:
    """Of packed arrays, on either side, and of both."""
    kind = np.dtype(dtype).kind
    if (kind == "c" and name not in ("divide", "pow")) or (kind in "iu" and name == "pow"):
        pytest.skip(f"{name} is not defined for {dtype}, or overflows")
    for size, place in ((1, 0), (5, 0), (5, 1), (1000, 3), (4099, 1)):
        a = small(rng, (size + place,), dtype)
        a = np.where(a == 0, np.ones((), dtype), abs(a).astype(dtype) if name == "pow" else a)
        one = np.array(2 + 1j if kind == "c" else 3).astype(dtype)
        own, own_one = cukern.asarray(a)[place:], cukern.asarray(one)
        a = a[place:]
        function = getattr(cukern, name)
        assert_result(cukern.asnumpy(function(own, own_one)), name, a, one)
        assert_result(cukern.asnumpy(function(own_one, own)), name, one, a)
        out = function(own, own_one)
        function(cukern.broadcast_to(own_one, a.shape), own_one, out=out)
        assert_result(cukern.asnumpy(out), name, np.broadcast_to(one, a.shape), one)
