"""Operations on bfloat16, which NumPy knows by ml_dtypes alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays import assert_same, random_array
from cases import each
from oracles import ELEMENT_TYPES, FUNCTIONS, ORACLES, STEPWISE, refusal

import cukern
from cukern import _cukern

ml_dtypes = pytest.importorskip("ml_dtypes")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
UNARY = [row["name"] for row in _cukern._table if row["kind"] == "unary"]
BINARY = [row["name"] for row in _cukern._table if row["kind"] == "binary"]
pytestmark = pytest.mark.usefixtures("backend")


def random_bfloat16(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(BFLOAT16)


def type_beside(other: np.dtype) -> np.dtype:
    """Return the type of bfloat16 and another, as docs/architecture.md says."""
    if other == np.float16:
        return np.dtype(np.float32)
    return other if other.kind in "fc" else BFLOAT16


def stand_in(array: np.ndarray) -> np.ndarray:
    """Return float64 for bfloat16, which NumPy's own functions do not all take."""
    return array.astype(np.float64) if array.dtype == BFLOAT16 else array


def check(actual: Any, name: str, *operands: np.ndarray, dtype: np.dtype) -> None:
    """Assert a result in `dtype`, to which all operands are converted first.

    In float64 sums and products of bfloat16 are exact, and quotients rounded so finely that the second rounding, to
    bfloat16, is right. Functions are exact to a unit in the last place, of 8 bits.
    """
    x = [operand.astype(dtype) for operand in operands]
    if dtype != BFLOAT16:  # what other types give has its own tests
        assert_same(actual, getattr(cukern, name)(*x))
        return
    with np.errstate(all="ignore"):
        if name == "nextafter":
            wide = np.nextafter(*x)
        elif name in STEPWISE:  # steps in float32
            wide = ORACLES[name](*(operand.astype(np.float32) for operand in x))
        else:
            wide = ORACLES[name](*(operand.astype(np.float64) for operand in x))
        assert actual.shape == np.broadcast_shapes(*(operand.shape for operand in operands))
        if wide.dtype == bool:
            np.testing.assert_array_equal(actual, wide, strict=True)
            return
        assert actual.dtype == BFLOAT16
        wanted = wide.astype(BFLOAT16)
        same = (actual.view(np.uint16) == wanted.view(np.uint16)) | (np.isnan(actual) & np.isnan(wanted))
        if name in FUNCTIONS:
            unit = np.exp2(np.floor(np.log2(np.maximum(abs(wide), 2.0**-126))) - 7)
            size = np.max(np.broadcast_arrays(*(abs(v.astype(float)) for v in x)), axis=0) if name == "logaddexp" else 0
            same |= abs(actual.astype(np.float64) - wide) <= np.maximum(unit, size * 2.0**-7)
    assert same.all(), (
        f"{actual[~same][:5]} != {wide[~same][:5]} at {[np.broadcast_to(v, same.shape)[~same][:5] for v in x]}"
    )


@pytest.mark.parametrize("name", UNARY)
def test_every_value(name: str) -> None:
    a = np.arange(1 << 16, dtype=np.uint16).view(BFLOAT16)
    if refusal(name, np.ones(1)) is not None:
        with pytest.raises(TypeError, match="not defined for element type bfloat16"):
            getattr(cukern, name)(a)
        return
    check(getattr(cukern, name)(a), name, a, dtype=BFLOAT16)
    result = getattr(cukern, name)(cukern.asarray(a)[::-3])
    check(cukern.asnumpy(result), name, a[::-3], dtype=BFLOAT16)


@pytest.mark.parametrize("name", BINARY)
@each("other", [BFLOAT16, *ELEMENT_TYPES])
def test_beside_every_element_type(rng: np.random.Generator, name: str, other: np.dtype) -> None:
    dtype = type_beside(other) if other != BFLOAT16 else other
    a = random_bfloat16(rng, (5, 7))
    b = random_bfloat16(rng, (7,)) if other == BFLOAT16 else random_array(rng, (7,), other)
    b[b == 0] = 1
    a[a == 0] = 1
    if refusal(name, a.astype(stand_in(np.ones(1, dtype)).dtype), stand_in(b)) is not None:
        with pytest.raises(TypeError, match="not defined for element type"):
            getattr(cukern, name)(a, b)
        return
    for x, y in ((a, b), (b, a), (a.T[::2, ::-1], b[:5]), (a[:1], b)):
        check(getattr(cukern, name)(x, y), name, x, y, dtype=dtype)
        for memory in ("device", "pinned"):
            result = getattr(cukern, name)(cukern.asarray(x, memory=memory), cukern.asarray(y, memory=memory))
            assert type(result) is cukern.Array
            check(cukern.asnumpy(result), name, x, y, dtype=dtype)


@pytest.mark.parametrize("name", BINARY)
@each("number", [1, -3, True, 2.5, 0.1, 1e30])
def test_python_numbers(rng: np.random.Generator, name: str, number: Any) -> None:
    a = random_bfloat16(rng, (9,))
    a[a == 0] = 1
    weak = np.full(9, number).astype(BFLOAT16)
    if refusal(name, a.astype(np.float64), 1) is not None:
        return
    check(getattr(cukern, name)(a, number), name, a, weak, dtype=BFLOAT16)
    check(getattr(cukern, name)(number, a), name, weak, a, dtype=BFLOAT16)


def test_out_and_in_place(rng: np.random.Generator) -> None:
    a, b = random_bfloat16(rng, (6, 4)), random_bfloat16(rng, (6, 4))
    wide = np.zeros((6, 4), np.float64)
    assert cukern.add(a, b, out=wide) is wide
    narrow = (a.astype(np.float64) + b.astype(np.float64)).astype(BFLOAT16)
    np.testing.assert_array_equal(wide, narrow.astype(np.float64))
    own = cukern.asarray(a)
    own += cukern.asarray(b)
    np.testing.assert_array_equal(cukern.asnumpy(own), narrow)
    with pytest.raises(TypeError, match="bfloat16, which out's int32 cannot take"):
        cukern.add(a, b, out=np.zeros((6, 4), np.int32))
