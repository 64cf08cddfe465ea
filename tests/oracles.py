"""What operations should give: NumPy, in a wider type, rounded once.

One entry a row of the table of operations; test_table.py asserts that rows and oracles match one to one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

ORACLES: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "scale": np.multiply,
}

ELEMENT_TYPES = [np.dtype(name) for name in ("float32", "float64", "int32", "int64")]


def wider(dtype: np.dtype) -> np.dtype:
    """Return the type in which an oracle computes: float64 for 32-bit floats, long double for float64."""
    if dtype.kind == "i":
        return dtype  # integers are exact in their own type, wrapping included
    return np.dtype(np.float64 if dtype.itemsize < 8 else np.longdouble)


def expected(name: str, a: Any, b: Any) -> np.ndarray:
    """Return the exact result of a row, rounded to NumPy's result type."""
    oracle = ORACLES[name]
    with np.errstate(all="ignore"):
        dtype = np.asarray(oracle(a, b)).dtype
        wide = wider(dtype)
        return np.asarray(oracle(np.asarray(a).astype(wide), np.asarray(b).astype(wide))).astype(dtype)


def product_bound(a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the largest error of a product summed in any order, elementwise.

    Each of k terms meets one rounded multiplication and at most k rounded additions, so that the error is
    at most gamma(k + 1) * |a| @ |b| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
    """
    k = a.shape[-1]
    unit = np.finfo(dtype).eps / 2
    gamma = (k + 1) * unit / (1 - (k + 1) * unit)
    tiny = float(np.finfo(dtype).smallest_subnormal)
    return gamma * (abs(a).astype(wider(dtype)) @ abs(b).astype(wider(dtype))) + tiny
