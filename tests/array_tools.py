"""Arrays beside their models in NumPy: how the tests of Array make and compare them."""

from __future__ import annotations

from typing import Any

import numpy as np
from arrays import assert_same
from conftest import SMALL

import cukern

MEMORY = ["device", "managed", "pinned"]


HOST_MEMORY = MEMORY[1:]  # what the host sees


NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


NAMES += ["float16", "float32", "float64", "complex64", "complex128"]


TIMES = 40 if SMALL else 250


def same(actual: Any, wanted: np.ndarray) -> None:
    """Assert that an Array is what an ndarray is, to what it tells of itself."""
    assert type(actual) is cukern.Array
    assert actual.shape == wanted.shape
    assert actual.dtype == wanted.dtype
    assert (actual.ndim, actual.size, actual.nbytes) == (wanted.ndim, wanted.size, wanted.nbytes)
    assert actual.itemsize == wanted.itemsize
    assert_same(cukern.asnumpy(actual), wanted)


def same_view(actual: Any, wanted: np.ndarray) -> None:
    """Assert that a view is the same one, strides included where they matter."""
    same(actual, wanted)
    assert actual.flags["C_CONTIGUOUS"] == wanted.flags.c_contiguous
    assert actual.flags["F_CONTIGUOUS"] == wanted.flags.f_contiguous
    if wanted.size:
        pairs = zip(wanted.shape, actual.strides, wanted.strides, strict=True)
        assert all(mine == theirs for n, mine, theirs in pairs if n > 1)


def numbers(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Return different small numbers."""
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def pair(shape: tuple[int, ...], dtype: Any = np.float64, memory: str = "device") -> tuple[cukern.Array, np.ndarray]:
    """Return an Array and an ndarray of the same numbers."""
    wanted = numbers(shape, dtype)
    return cukern.asarray(wanted, memory=memory), wanted
