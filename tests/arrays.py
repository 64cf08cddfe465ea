"""Arrays for the tests: random values, special values, every kind of layout."""

from __future__ import annotations

import numpy as np

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.5e-45, 1e-310, 3e38, 1.7e308, 0.1]


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
