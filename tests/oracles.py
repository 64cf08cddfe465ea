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


def exact(name: str, a: Any, b: Any) -> tuple[np.ndarray, np.dtype]:
    """Return a row's result in the wider type, and the element type that NumPy gives it."""
    oracle = ORACLES[name]
    with np.errstate(all="ignore"):
        dtype = np.asarray(oracle(a, b)).dtype
        wide = wider(dtype)
        # Operands are converted to the computing type first: an int64 is rounded before it is divided.
        x, y = (np.asarray(operand).astype(dtype).astype(wide) for operand in (a, b))
        return np.asarray(oracle(x, y)), dtype


def expected(name: str, a: Any, b: Any) -> np.ndarray:
    """Return a row's result, rounded to NumPy's result type."""
    wide, dtype = exact(name, a, b)
    with np.errstate(all="ignore"):
        return wide.astype(dtype)


def assert_result(actual: Any, name: str, a: Any, b: Any) -> None:
    """Assert that a row's result is the exact one, correctly rounded.

    float64 through a 64-bit long double rounds twice: where the exact result is within 2**-11 of a step of
    a midpoint, the other neighbour is right. There, and only there, half a step and that much is accepted.
    """
    wide, dtype = exact(name, a, b)
    with np.errstate(all="ignore"):
        rounded = wide.astype(dtype)
        assert isinstance(actual, np.ndarray)
        assert (actual.dtype, actual.shape) == (dtype, rounded.shape)
        same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
        same &= (np.signbit(actual) == np.signbit(rounded)) | np.isnan(rounded)
        if dtype == np.float64:
            step = np.spacing(np.abs(rounded)).astype(wide.dtype)
            same |= np.abs(actual.astype(wide.dtype) - wide) <= (0.5 + 2.0**-10) * step
    assert same.all(), f"{name}: {actual[~same][:5]} != {rounded[~same][:5]}"


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
