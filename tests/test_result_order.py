"""The memory order of results whose operands are not in C order, and results into memory of any order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, takes_few

import cukern

pytestmark = pytest.mark.usefixtures("backend")
SHAPE = (5, 6, 7, 4)
ORDERS = list(itertools.permutations(range(4)))
AXES = [(0,), (1,), (2,), (3,), (0, 2), (1, 3), (3, 1, 0)]
REDUCTIONS = ["sum", "max", "prod", "any", "mean", "var", "argmax"]


def drawn(rng: np.random.Generator, order: Any, dtype: str = "float64") -> np.ndarray:
    """Return small whole numbers of SHAPE, whose dimensions lie in memory in an order."""
    shape = [SHAPE[d] for d in order]
    return rng.integers(-3, 4, shape).astype(dtype).transpose(np.argsort(order))


def in_order(shape: tuple[int, ...], order: Any, dtype: Any) -> np.ndarray:
    return np.zeros([shape[d] for d in order], dtype).transpose(np.argsort(order))


@pytest.mark.parametrize("name", [name for name in REDUCTIONS if name != "argmax"])  # whose order NumPy loses
def test_fresh_results_have_numpys_order(name: str, rng: np.random.Generator) -> None:
    for order, axes, keepdims in itertools.product(ORDERS, AXES, (False, True)):
        x = drawn(rng, order)
        found = getattr(cukern, name)(x, axis=axes, keepdims=keepdims)
        wanted = getattr(np, name)(x, axis=axes, keepdims=keepdims)
        np.testing.assert_allclose(found, wanted)
        strides = [s for s, n in zip(found.strides, found.shape, strict=True) if n > 1]
        assert strides == [s for s, n in zip(wanted.strides, wanted.shape, strict=True) if n > 1], (order, axes)


@pytest.mark.parametrize("function", ["cumulative_sum", "cumulative_prod"])
def test_fresh_running_results(function: str, rng: np.random.Generator) -> None:
    numpys: Callable[..., Any] = {"cumulative_sum": np.cumsum, "cumulative_prod": np.cumprod}[function]
    for order, axis in itertools.product(ORDERS, range(4)):
        x = drawn(rng, order)
        found, wanted = getattr(cukern, function)(x, axis=axis), numpys(x, axis=axis)
        np.testing.assert_array_equal(found, wanted)
        assert found.strides == wanted.strides


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # products beyond float16
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in REDUCTIONS
        for dtype in ("float32", "int8", "complex64", "float16")
        if dtype != "complex64" or name not in ("max", "argmax")  # complex numbers have no order
    ],
)
def test_results_into_any_order(name: str, dtype: str, rng: np.random.Generator) -> None:
    for order, axes in itertools.product(ORDERS[:: 5 if takes_few() else 1], AXES):
        x = drawn(rng, order, dtype)
        axis: Any = axes if name != "argmax" else axes[0]
        result = getattr(np, name)(x, axis=axis).dtype
        wanted = getattr(np, name)(x.astype("float64") if dtype == "float16" else x, axis=axis).astype(result)
        array = cukern.asarray(np.ascontiguousarray(x.transpose(order))).transpose(*np.argsort(order).tolist())
        tolerance = 2.0**-10 if dtype == "float16" else 1e-5
        for out_order in list(itertools.permutations(range(wanted.ndim)))[:: 3 if takes_few() else 1]:
            out = in_order(wanted.shape, out_order, wanted.dtype)
            getattr(cukern, name)(x, axis=axis, out=out)
            np.testing.assert_allclose(out, wanted, rtol=tolerance)
        own = getattr(cukern, name)(array, axis=axis)
        np.testing.assert_allclose(cukern.asnumpy(own), wanted, rtol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "int16", "complex128"])
def test_running_results_into_any_order(dtype: str, rng: np.random.Generator) -> None:
    for order, axis in itertools.product(ORDERS[:: 5 if takes_few() else 1], range(4)):
        x = drawn(rng, order, dtype)
        wanted = np.cumsum(x, axis=axis)
        for out_order in ORDERS[:: 7 if takes_few() else 3]:
            out = in_order(SHAPE, out_order, wanted.dtype)
            cukern.cumulative_sum(x, axis=axis, out=out)
            np.testing.assert_array_equal(out, wanted)


def test_large_transposed_reductions(rng: np.random.Generator) -> None:
    """So large that results go by the input's order and are copied."""
    x = rng.integers(-9, 9, (3, 4, 5, 40_000 if not SMALL else 400)).astype("f4").transpose(3, 1, 2, 0)
    for axis in (0, 1, 2, 3, (1, 2), (0, 3)):
        wanted = x.sum(axis=axis)
        out = np.zeros(wanted.shape, "f4")
        cukern.sum(x, axis=axis, out=out)
        np.testing.assert_array_equal(out, wanted)
        array = cukern.asarray(np.ascontiguousarray(x.transpose(3, 1, 2, 0))).transpose(3, 1, 2, 0)
        own = cukern.empty(wanted.shape, "f4")
        cukern.sum(array, axis=axis, out=own)
        np.testing.assert_array_equal(cukern.asnumpy(own), wanted)
        np.testing.assert_array_equal(cukern.asnumpy(cukern.sum(array, axis=axis)), wanted)
        index = axis if isinstance(axis, int) else None
        np.testing.assert_array_equal(cukern.asnumpy(cukern.argmax(array, axis=index)), np.argmax(x, axis=index))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64", "float64"])
def test_short_lines(length: int, dtype: str, rng: np.random.Generator) -> None:
    for lines in (1, 2, 5, 513, 1030):
        x = rng.integers(-3, 4, (lines, length)).astype(dtype)
        np.testing.assert_array_equal(cukern.cumulative_sum(x, axis=1), np.cumsum(x, axis=1, dtype=None))
        np.testing.assert_array_equal(cukern.cumulative_prod(x[::-1], axis=1), np.cumprod(x[::-1], axis=1))
        wide = rng.integers(-3, 4, (lines, 3, 2 * length)).astype(dtype)[:, 1, ::2]
        np.testing.assert_array_equal(cukern.cumulative_sum(wide, axis=1), np.cumsum(wide, axis=1))
