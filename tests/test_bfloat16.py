"""Operations on bfloat16, which NumPy knows by ml_dtypes alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays import random_array
from oracles import ELEMENT_TYPES, ORACLES

import cukern
from cukern import _cukern

ml_dtypes = pytest.importorskip("ml_dtypes")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
RULES = {row["name"]: row["rule"] for row in _cukern._table}
BINARY = [row["name"] for row in _cukern._table if row["kind"] == "binary"]
pytestmark = pytest.mark.usefixtures("backend")


def random_bfloat16(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(BFLOAT16)


def type_beside(other: np.dtype) -> np.dtype:
    """Return the type of bfloat16 and another, as docs/architecture.md says."""
    if other == np.float16:
        return np.dtype(np.float32)
    return other if other.kind in "fc" else BFLOAT16


def check(actual: Any, name: str, a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> None:
    """Assert a result in `dtype`, to which both operands are converted first.

    In float64 sums and products of bfloat16 are exact, and quotients rounded so finely that the second rounding, to
    bfloat16, is right.
    """
    x, y = a.astype(dtype), b.astype(dtype)
    if RULES[name] == "boolean":
        wide = np.complex128 if dtype.kind == "c" else np.float64
        np.testing.assert_array_equal(actual, ORACLES[name](x.astype(wide), y.astype(wide)), strict=True)
        return
    assert (actual.dtype, actual.shape) == (dtype, np.broadcast_shapes(a.shape, b.shape))
    with np.errstate(all="ignore"):
        if dtype != BFLOAT16:
            wanted = ORACLES[name](x, y)
            np.testing.assert_allclose(actual, wanted, rtol=8 * np.finfo(dtype).eps)
            return
        wanted = ORACLES[name](x.astype(np.float64), y.astype(np.float64)).astype(BFLOAT16)
    np.testing.assert_array_equal(actual.view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize("other", [BFLOAT16, *ELEMENT_TYPES], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_beside_every_element_type(rng: np.random.Generator, name: str, other: np.dtype) -> None:
    dtype = type_beside(other) if other != BFLOAT16 else other
    a = random_bfloat16(rng, (5, 7))
    b = random_bfloat16(rng, (7,)) if other == BFLOAT16 else random_array(rng, (7,), other)
    b[b == 0] = 1
    a[a == 0] = 1
    for x, y in ((a, b), (b, a), (a.T[::2, ::-1], b[:5]), (a[:1], b)):
        check(getattr(cukern, name)(x, y), name, x, y, dtype)
        for memory in ("device", "pinned"):
            result = getattr(cukern, name)(cukern.asarray(x, memory=memory), cukern.asarray(y, memory=memory))
            assert type(result) is cukern.Array
            check(cukern.asnumpy(result), name, x, y, dtype)


@pytest.mark.parametrize("number", [1, -3, True, 2.5, 0.1, 1e30])
@pytest.mark.parametrize("name", BINARY)
def test_python_numbers(rng: np.random.Generator, name: str, number: Any) -> None:
    a = random_bfloat16(rng, (9,))
    a[a == 0] = 1
    weak = np.full(9, number).astype(BFLOAT16)
    check(getattr(cukern, name)(a, number), name, a, weak, BFLOAT16)
    check(getattr(cukern, name)(number, a), name, weak, a, BFLOAT16)


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
