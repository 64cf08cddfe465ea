"""Conversions from and to float16, which the host makes by the processor's instructions where it has them."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import ELEMENT_TYPES

import cukern

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning", "ignore::RuntimeWarning"),
]
ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    there = ~np.isnan(wanted)
    np.testing.assert_array_equal(found[there], wanted[there])
    np.testing.assert_array_equal(np.signbit(found[there].real), np.signbit(wanted[there].real))


def near_halves() -> np.ndarray:
    """Return float64 numbers at, and closely beside, all float16 numbers and the points half way between them."""
    finite = np.sort(ALL[np.isfinite(ALL)].astype(np.float64))
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, [65520.0, -65520.0, 2.0**-25, -(2.0**-25)]])
    beside = [np.nextafter(points, np.inf), np.nextafter(points, -np.inf)]
    far = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-300, 5e-324, 3.5e38, 3.4028235677973366e38])
    return np.concatenate([points, *beside, far])


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16"])
def test_every_number_is_held(dtype: str) -> None:
    for x in (ALL, ALL[::-1], ALL[1:], np.repeat(ALL, 2)[::2], ALL[:5]):
        same(cukern.astype(x, dtype), x.astype(dtype))


@pytest.mark.parametrize("dtype", [dtype for dtype in ELEMENT_TYPES if dtype.kind in "iu"], ids=str)
def test_integers_of_numbers(dtype: np.dtype) -> None:
    whole = ALL[np.isfinite(ALL) & (abs(ALL) < 100) & ((0 if dtype.kind == "u" else -100) <= ALL)]
    for x in (whole, whole[::-1], whole[:7]):
        np.testing.assert_array_equal(cukern.astype(x, dtype), x.astype(dtype))


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
def test_rounding_is_to_the_nearest_even(dtype: str) -> None:
    """Of a double in one step: by way of a float that is rounded to nearest, points half way would round twice."""
    points = near_halves().astype(dtype)
    for x in (points, points[::-1], points[1:], np.repeat(points, 3)[::3], points[:3]):
        same(cukern.astype(x, "float16"), x.astype(np.float16))


@pytest.mark.parametrize("dtype", [dtype for dtype in ELEMENT_TYPES if dtype.kind in "iub"], ids=str)
def test_numbers_of_integers(dtype: np.dtype, rng: np.random.Generator) -> None:
    if dtype.kind == "b":
        x = rng.random(1000) < 0.5
    else:
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, 5000, dtype=dtype, endpoint=True)
        small = rng.integers(0 if dtype.kind == "u" else -120, 120, 5000).astype(dtype)
        edge = [n for n in (2047, 2048, 2049, 2051, 4098, 65503, 65519, 65520, 65536) if n <= info.max]
        x = np.concatenate([x, small, np.array([*edge, info.min, info.max], dtype)])
        if dtype.itemsize >= 4:
            x = np.concatenate([x, rng.integers(0, 70_000, 5000).astype(dtype)])
    for view in (x, x[::-1], x[:9], x[::2]):
        same(cukern.astype(view, "float16"), view.astype(np.float16))


@pytest.mark.parametrize("source", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16"])
def test_short_integers_of_floats(source: str, target: str, rng: np.random.Generator) -> None:
    """Whole vectors and what is left of them, and blocks with a value that 32 bits do not hold."""
    for count in (1, 15, 16, 33, 255, 256, 257, 1000):
        x = rng.integers(-(2**31) + 1, 2**31 - 300, count).astype(source)
        wanted = x.real.astype(np.int64).astype(target)
        np.testing.assert_array_equal(cukern.astype(x, target), wanted)
        x[count // 2] = -(2.0**31)
        wanted = x.real.astype(np.int64).astype(target)
        np.testing.assert_array_equal(cukern.astype(x, target), wanted)
        np.testing.assert_array_equal(cukern.astype(x[::-1], target), wanted[::-1])
