"""What any and all take for true, wherever it lies in a row, powers of truths, and sums of short integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import SMALL
from oracles import ELEMENT_TYPES

import cukern

pytestmark = pytest.mark.usefixtures("backend")

# Around the lengths at which vectors, parts and pieces begin and end.
LENGTHS = [1, 2, 31, 33] if SMALL else [*range(1, 70), 127, 128, 129, 2047, 2049, 2177, 16385]


def false_values(dtype: np.dtype) -> list[Any]:
    """Return what is false."""
    if dtype.kind in "iub":
        return [0]
    return [0.0, -0.0, *([complex(-0.0, 0), complex(0, -0.0), complex(-0.0, -0.0)] if dtype.kind == "c" else [])]


def true_values(dtype: np.dtype) -> list[Any]:
    """Return what is true and closest to being false: one bit, the sign of an integer, NaN, a subnormal number."""
    if dtype.kind == "b":
        return [True]
    if dtype.kind in "iu":
        return [1, *([np.iinfo(dtype).min] if dtype.kind == "i" else [1 << (8 * dtype.itemsize - 1)])]
    part = np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype
    least = float(np.array(1, f"u{part.itemsize}").view(part))
    parts = [float("nan"), least, -least, float("-inf")]
    if dtype.kind != "c":
        return parts
    return [*(complex(value, -0.0) for value in parts), *(complex(0, value) for value in parts)]


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_one_element_decides(dtype: np.dtype) -> None:
    """At the ends and in the middle of rows of any length, packed, with steps, and in a row among others."""
    for n in LENGTHS:
        for i, odd in enumerate([*true_values(dtype), *false_values(dtype)]):
            is_true = i < len(true_values(dtype))
            places = {0, n // 2, n - 1} if n > 3 else range(n)
            usual = false_values(dtype)[-1] if is_true else true_values(dtype)[0]
            for place in places:
                a = np.full((3, n), usual, dtype)
                if n == 1 and not is_true:
                    a[0] = a[2] = usual
                a[1, place] = odd
                name = "any" if is_true else "all"
                function = getattr(cukern, name)
                want = [not is_true, is_true, not is_true]
                assert np.asarray(function(a, axis=1)).tolist() == want, (n, place, odd)
                assert bool(function(a[1])) is is_true
                assert bool(function(a[0])) is not is_true
                assert bool(function(a)) is is_true
        spread = np.full((2, 3 * n), false_values(dtype)[0], dtype)
        spread[1, ::3] = true_values(dtype)[-1]
        assert np.asarray(cukern.all(spread[:, ::3], axis=1)).tolist() == [False, True]
        assert np.asarray(cukern.any(spread[:, ::3], axis=1)).tolist() == [False, True]
        assert np.asarray(cukern.any(spread[:, ::-1][:, 2::3], axis=0)).tolist() == [True] * n
        assert not cukern.any(spread[:, 1::3])


def test_complex_numbers_at_a_part() -> None:
    """Memory of complex numbers is aligned to their parts alone."""
    for part in (np.float32, np.float64):
        a = np.zeros(401, part)[1:].view(np.result_type(part, np.complex64))
        assert not cukern.any(a)
        a.imag[-1] = 1
        assert cukern.any(a)
        a[:] = -1j
        assert cukern.all(a)
        a.imag[77] = -0.0
        assert not cukern.all(a)


@pytest.mark.parametrize("dtype", [t for t in ELEMENT_TYPES if t.kind in "iu"], ids=str)
def test_sums_of_extremes(dtype: np.dtype) -> None:
    """Sums that a narrower number would not hold, and those that wrap around in 64 bits."""
    for value in (np.iinfo(dtype).min, np.iinfo(dtype).max):
        for shape in ((33,), (3, 1000), (3,) if SMALL else (2, 65537)):
            a = np.full(shape, value, dtype)
            for axis in (None, -1):
                own, want = cukern.sum(a, axis=axis), np.sum(a, axis=axis)
                assert np.asarray(own).dtype == want.dtype
                assert np.array_equal(np.asarray(own), want), (value, shape, axis)


def test_sums_of_bytes_that_are_true() -> None:
    """Each byte but 0 counts once."""
    a = np.arange(70001).astype(np.uint8)
    x = cukern.asarray(a.view(np.bool_), copy=True)
    assert int(cukern.sum(x)) == np.count_nonzero(a)
    assert float(cukern.mean(x)) == np.count_nonzero(a) / a.size


def test_powers_of_truths() -> None:
    """0 only where the first is false and the second true, whatever bytes are true, for every type of out."""
    x, y = (np.array(part, np.uint8).view(np.bool_) for part in ([0, 0, 1, 2] * 70, [0, 3, 0, 1] * 70))
    want = np.array([1, 0, 1, 1] * 70, np.int8)
    for a, b in ((x, y), (x[::-1], y[::-1]), (x.reshape(40, 7).T, y.reshape(40, 7).T)):
        expected = want[::-1] if a.strides[0] < 0 else want.reshape(40, 7).T if a.ndim == 2 else want
        got = np.asarray(cukern.pow(a, b))
        assert got.dtype == np.int8
        assert np.array_equal(got, expected)
        for dtype in ("int8", "int64", "float16", "complex64"):
            out = np.empty(a.shape, dtype)
            assert cukern.pow(a, b, out=out) is out
            assert np.array_equal(out, expected)
    assert np.asarray(cukern.pow(x, True)).tolist() == [0, 0, 1, 1] * 70
    assert np.asarray(cukern.pow(False, y)).tolist() == [1, 0, 1, 0] * 70


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_reversed_copies(dtype: np.dtype, rng: np.random.Generator) -> None:
    for n in LENGTHS:
        a = np.frombuffer(rng.bytes(2 * n * dtype.itemsize), np.uint8).reshape(2, -1)
        if dtype.kind == "b":
            a = a & 1
        a = a.view(dtype)
        out = np.empty_like(a)
        cukern.copyto(out, a[:, ::-1])
        assert out.tobytes() == a[:, ::-1].tobytes()
        cukern.copyto(out[:, ::-1], a)
        assert out.tobytes() == a[:, ::-1].tobytes()
