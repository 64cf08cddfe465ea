"""What tests of reductions share: which there are, elements for them, their axes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from arrays import random_array

from cukern import _cukern

REDUCTIONS = [row["name"] for row in _cukern._table if row["kind"] == "reduction"]
INDICES = ("argmax", "argmin")


def values(rng: np.random.Generator, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return random elements, of products such that they neither vanish nor overflow."""
    a = random_array(rng, shape, dtype)
    if name == "prod" and dtype.kind in "fc":
        return np.exp(0.1 * a).astype(dtype)
    if name in ("any", "all") and dtype.kind != "b":
        return np.asarray(rng.integers(0, 50, shape) == (0 if name == "any" else 1)).astype(dtype)
    return a


def axes_of(name: str, ndim: int) -> list[Any]:
    every = [None, *range(ndim), *range(-ndim, 0)]
    if name in INDICES:
        return every
    return every + [axes for n in range(ndim + 1) for axes in itertools.combinations(range(ndim), n)]
