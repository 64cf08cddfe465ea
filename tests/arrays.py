"""Arrays for the tests: random values, special values, every kind of layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.5e-45, 1e-310, 3e38, 1.7e308, 0.1]

# Of a shape: that of the memory, and the view of it which has the shape; the same for NumPy's arrays and ours.
View = tuple[Callable[[int, int], tuple[int, ...]], Callable[[Any], Any]]
VIEWS: dict[str, View] = {
    "packed": (lambda m, n: (m, n), lambda a: a),
    "transposed": (lambda m, n: (n, m), lambda a: a.T),
    "row": (lambda m, n: (n,), lambda a: a),
    "column": (lambda m, n: (m, 1), lambda a: a),
    "number": (lambda m, n: (), lambda a: a),
    "every second column": (lambda m, n: (m, 2 * n), lambda a: a[:, ::2]),
    "every second of an odd number": (lambda m, n: (m, 2 * n - 1), lambda a: a[:, ::2]),
    "every third row": (lambda m, n: (3 * m, n), lambda a: a[::3]),
    "backwards": (lambda m, n: (m, n), lambda a: a[::-1, ::-1]),
    "transposed and backwards": (lambda m, n: (n, m), lambda a: a.T[::-1, ::-1]),
    "every second of transposed": (lambda m, n: (2 * n, 2 * m), lambda a: a.T[::2, ::2]),
    "wider": (lambda m, n: (m, n + 3), lambda a: a[:, 1:-2]),
    "all rows but the first": (lambda m, n: (m + 1, n), lambda a: a[1:]),
    "wider, transposed": (lambda m, n: (n, m + 3), lambda a: a[:, 1:-2].T),
}


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return values over the whole range of integers, and normal ones of floats and of both parts of complex."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def special_values(dtype: np.dtype) -> np.ndarray:
    """Return the values at which formulas go wrong."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([0, 1, info.max - 1, info.min, info.max, info.min + 1, 7] + [-1] * (dtype.kind == "i"), dtype)
    if dtype.kind == "c":
        parts = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-3]
        with np.errstate(all="ignore"):
            return np.array([complex(x, y) for x in parts for y in parts]).astype(dtype)
    with np.errstate(all="ignore"):
        return np.array(SPECIAL).astype(dtype)


def layouts(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> dict[str, np.ndarray]:
    """Return arrays of one shape that lie in memory in different ways."""
    padded = random_array(rng, tuple(2 * n for n in shape), dtype)
    reversed_axes = random_array(rng, shape[::-1], dtype)
    unaligned = np.zeros(int(np.prod(shape)) * dtype.itemsize + 1, np.uint8)[1:].view(dtype).reshape(shape)
    unaligned[...] = random_array(rng, shape, dtype)
    record = np.zeros(shape, np.dtype([("pad", np.int32), ("x", dtype), ("y", np.int32)]))
    record["x"] = random_array(rng, shape, dtype)
    return {
        "C": random_array(rng, shape, dtype),
        "F": np.asfortranarray(random_array(rng, shape, dtype)),
        "transposed": reversed_axes.T,
        "every second": padded[tuple(slice(None, None, 2) for _ in shape)],
        "reversed": random_array(rng, shape, dtype)[tuple(slice(None, None, -1) for _ in shape)],
        "inner": padded[tuple(slice(n // 2, n // 2 + n) for n in shape)],
        "broadcast": np.broadcast_to(random_array(rng, (1,) * (len(shape) - 1) + shape[-1:], dtype), shape),
        "one element": np.broadcast_to(random_array(rng, (), dtype), shape),
        "unaligned": unaligned,
        "field": record["x"],
    }


def assert_same(actual: np.ndarray, wanted: np.ndarray) -> None:
    """Assert equality to the bit, NaNs and signs of zeros included, of shape and element type too."""
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == wanted.dtype
    assert actual.shape == wanted.shape
    if actual.tobytes() == wanted.tobytes():  # nearly always, and faster
        return
    np.testing.assert_array_equal(actual, wanted)
    if wanted.dtype.kind == "c":
        assert_same(actual.real, wanted.real)
        assert_same(actual.imag, wanted.imag)
    if wanted.dtype.kind == "f":
        nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(actual)[~nan], np.signbit(wanted)[~nan])
