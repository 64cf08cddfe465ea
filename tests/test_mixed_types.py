"""Operands of two types, in any layout: how elements are loaded, converted and stored differs for each pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import each
from oracles import assert_result

import cukern

pytestmark = pytest.mark.usefixtures("backend")

TYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
SHAPE = (33, 17)
LAYOUTS = ("packed", "transposed", "steps", "backwards", "window", "offset")


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return numbers whose sums and products every type holds that has their sign."""
    of = np.dtype(dtype)
    x = rng.integers(0 if of.kind in "bu" else -4, 5, shape)
    return (x + 1j * rng.integers(-4, 5, shape)).astype(of) if of.kind == "c" else x.astype(of)


def laid(x: np.ndarray, layout: str) -> cukern.Array:
    """Return the same elements as an Array of a layout."""
    rows, columns = x.shape
    bases: dict[str, tuple[tuple[int, ...], Any]] = {
        "packed": ((rows, columns), lambda a: a),
        "transposed": ((columns, rows), lambda a: a.T),
        "steps": ((2 * rows, 2 * columns), lambda a: a[::2, ::2]),
        "backwards": ((rows, columns), lambda a: a[::-1, ::-1]),
        "window": ((rows, columns + 3), lambda a: a[:, 1:-2]),
        "offset": ((rows * columns + 1,), lambda a: a[1:].reshape(rows, columns)),
    }
    shape, view = bases[layout]
    base = np.zeros(shape, x.dtype)
    view(base)[...] = x
    made: cukern.Array = view(cukern.asarray(base))
    return made


@each("b_type", TYPES)
@pytest.mark.parametrize("a_type", TYPES)
def test_pairs(a_type: str, b_type: str, rng: np.random.Generator) -> None:
    a, b, c = (small(rng, SHAPE, dtype) for dtype in (a_type, b_type, rng.choice(TYPES)))
    for name in ("multiply", "equal", "logical_and"):
        own = [laid(x, rng.choice(LAYOUTS)) for x in (a, b)]
        assert_result(cukern.asnumpy(getattr(cukern, name)(*own)), name, a, b)
        fresh = getattr(cukern, name)(*own)
        out = laid(np.zeros(SHAPE, str(fresh.dtype)), rng.choice(LAYOUTS))
        getattr(cukern, name)(*own, out=out)
        np.testing.assert_array_equal(cukern.asnumpy(out), cukern.asnumpy(fresh))
    own = [laid(x, rng.choice(LAYOUTS)) for x in (c, a, b)]
    np.testing.assert_array_equal(cukern.asnumpy(cukern.where(*own)), np.where(c != 0, a, b))


@each("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_conversions(source: str, target: str, rng: np.random.Generator) -> None:
    x = small(rng, SHAPE, source)
    if np.dtype(target).kind == "u":
        x = abs(x).astype(source)
    wanted = (x.real if x.dtype.kind == "c" and np.dtype(target).kind not in "cb" else x).astype(target)
    for layout in LAYOUTS:
        own, out = laid(x, layout), laid(np.zeros(SHAPE, target), rng.choice(LAYOUTS))
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
