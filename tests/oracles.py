"""What operations should give: NumPy, in a wider type, rounded once.

One entry a row of the table of operations; test_table.py asserts that rows and oracles match one to one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cukern

ORACLES: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "scale": np.multiply,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}

FLOATS = ["float32", "float64", "float16"]
INTEGERS = ["int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64"]
ELEMENT_TYPES = [np.dtype(name) for name in (*FLOATS, *INTEGERS, "bool", "complex64", "complex128")]  # NumPy's own
PRODUCT_TYPES = [np.dtype(name) for name in ("float32", "float64", "int32", "int64")]


def refusal(name: str, *operands: Any) -> type[Exception] | None:
    """Return what NumPy raises for these operands, if anything."""
    try:
        with np.errstate(all="ignore"):
            ORACLES[name](*operands)
    except (TypeError, OverflowError) as error:
        return OverflowError if isinstance(error, OverflowError) else TypeError
    return None


def check(name: str, a: Any, b: Any) -> None:
    """Assert that a row's function gives the exact result, or raises where NumPy does."""
    function = getattr(cukern, name)
    if (error := refusal(name, a, b)) is not None:
        with pytest.raises(error):
            function(a, b)
        return
    assert_result(function(a, b), name, a, b)


def wider(dtype: np.dtype) -> np.dtype:
    """Return the type in which an oracle computes: float64 for shorter floats, long double for float64."""
    if dtype.kind == "c":
        return np.dtype(np.complex128 if dtype.itemsize == 8 else np.clongdouble)
    if dtype.kind != "f":
        return dtype  # integers are exact in their own type, wrapping included
    return np.dtype(np.float64 if dtype.itemsize < 8 else np.longdouble)


def exact(name: str, a: Any, b: Any) -> tuple[np.ndarray, np.dtype]:
    """Return a row's result in the wider type, and the element type that NumPy gives it."""
    oracle = ORACLES[name]
    with np.errstate(all="ignore"):
        own = np.asarray(oracle(a, b))
        if own.dtype.kind in "biu":  # exact
            return own, own.dtype
        dtype = own.dtype
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
    if dtype.kind == "c":
        assert_complex(actual, name, a, b, wide, dtype)
        return
    with np.errstate(all="ignore"):
        rounded = wide.astype(dtype)
        assert isinstance(actual, np.ndarray)
        assert (actual.dtype, actual.shape) == (dtype, rounded.shape)
        if dtype.kind not in "f":
            np.testing.assert_array_equal(actual, rounded)
            return
        same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
        same &= (np.signbit(actual) == np.signbit(rounded)) | np.isnan(rounded)
        if dtype == np.float64:
            step = np.spacing(np.abs(rounded)).astype(wide.dtype)
            same |= np.abs(actual.astype(wide.dtype) - wide) <= (0.5 + 2.0**-10) * step
    assert same.all(), f"{name}: {actual[~same][:5]} != {rounded[~same][:5]}"


def assert_complex(actual: Any, name: str, a: Any, b: Any, wide: np.ndarray, dtype: np.dtype) -> None:
    """Assert that a complex result is exact to 8 epsilon of its modulus, and special where NumPy's is.

    The bound is for results that neither overflow on the way nor vanish: a step of the smallest number is let pass for
    each of four rounded terms.
    """
    with np.errstate(all="ignore"):
        numpys = np.asarray(ORACLES[name](*(np.asarray(operand).astype(dtype) for operand in (a, b))))
        assert isinstance(actual, np.ndarray)
        assert (actual.dtype, actual.shape) == (dtype, wide.shape)
        info = np.finfo(dtype)
        finite = np.isfinite(numpys) & np.isfinite(wide.astype(dtype))
        bound = 8 * info.eps * abs(wide) + 4 * info.smallest_subnormal
        close = abs(actual.astype(wide.dtype) - wide) <= bound
        special = np.ones(wide.shape, bool)
        for part in ("real", "imag"):
            x, y = getattr(actual, part), getattr(numpys, part)
            special &= (x == y) | (np.isnan(x) & np.isnan(y)) | (np.isfinite(x) & np.isfinite(y))
        same = np.where(finite, close, special)
    assert same.all(), f"{name}: {actual[~same][:5]} != {wide[~same][:5]}, NumPy's {numpys[~same][:5]}"


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
