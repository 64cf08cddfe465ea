"""Large results of the host back-end, which are stored past the caches: whole lines, and what lies around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import use

import cukern

LEAST = 16 << 20  # bytes of results, from which on they go past the caches
EDGE = 24  # elements before and behind the results, which stay as they are


@pytest.fixture(autouse=True)
def host() -> None:
    use("host")


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers that every operation here takes."""
    values = rng.integers(1, 50, shape).astype(np.float32) / (1 if dtype.startswith(("i", "u", "b")) else 8)
    return (values - 1j * values[::-1] if dtype.startswith("c") else values).astype(dtype)


CASES: list[tuple[str, Callable[..., Any], Callable[..., Any], str, str, int]] = [
    ("add", cukern.add, np.add, "float32", "float32", 2),
    ("subtract", cukern.subtract, np.subtract, "float64", "float64", 2),
    ("multiply", cukern.multiply, np.multiply, "float64", "float64", 2),
    ("divide", cukern.divide, np.divide, "float32", "float32", 2),
    ("sqrt", cukern.sqrt, np.sqrt, "float32", "float32", 1),
    ("multiply", cukern.multiply, np.multiply, "int16", "int16", 2),
    ("negative", cukern.negative, np.negative, "complex128", "complex128", 1),
    ("less", cukern.less, np.less, "int8", "bool", 2),
    ("bitwise_xor", cukern.bitwise_xor, np.bitwise_xor, "uint8", "uint8", 2),
    ("positive", cukern.positive, np.positive, "int8", "int8", 1),  # a copy
    ("add", cukern.add, np.add, "int32", "float64", 2),  # in blocks
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[3]}-{case[4]}")
@pytest.mark.parametrize("offset", [0, 1, 7])
def test_results(case: tuple[Any, ...], offset: int, rng: np.random.Generator) -> None:
    _, own, numpys, dtype, result, arity = case
    n = LEAST // np.dtype(result).itemsize + 1037
    args = [numbers(rng, dtype, (n + 16,))[i : i + n] for i in range(arity)]
    memory = numbers(rng, result, (n + 2 * EDGE,))
    before = memory.copy()
    begin = EDGE - offset
    own(*args, out=memory[begin : begin + n])
    numpys(*args, out=before[begin : begin + n], casting="unsafe")
    assert np.array_equal(memory, before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_one_value_for_all(name: str, dtype: str, rng: np.random.Generator) -> None:
    x = numbers(rng, dtype, (LEAST // np.dtype(dtype).itemsize + 13,))
    own, numpys = getattr(cukern, name), getattr(np, name)
    out = np.empty_like(x)
    for args in ((x, 3), (0.7, x), (x, x[5:6])):
        own(*args, out=out)
        assert np.array_equal(out, numpys(*args))
    assert np.array_equal(own(x, 3), numpys(x, 3))  # a fresh result


def test_rows(rng: np.random.Generator) -> None:
    """Of operands that are not packed: long rows, short ones, transposed, and values along rows and columns."""
    for shape in ((100, 50_001), (70_001, 61), (1100, 4000)):
        wide = numbers(rng, "float32", (shape[0], shape[1] + 3))
        x, row, column = wide[:, 1:-2], wide[0, :-3], wide[:, :1]
        for args in ((x, x), (x, row), (column, x), (x, x[::-1, ::-1])):
            assert np.array_equal(cukern.add(*args), np.add(*args))
        out = np.empty(shape, np.float32)
        cukern.copyto(out, x)
        assert np.array_equal(out, x)
        cukern.copyto(out, row)
        assert np.array_equal(out, np.broadcast_to(row, shape))
        turned = np.ascontiguousarray(x.T)
        assert np.array_equal(cukern.subtract(x, turned.T), np.zeros(shape, np.float32))


def test_what_lies_elsewhere(rng: np.random.Generator) -> None:
    """In place, into steps and into a window, results go through the caches, and are the same."""
    x = numbers(rng, "float32", (2100, 2100))
    y = numbers(rng, "float32", (2100, 2100))
    for out in (x.copy(), np.empty((2100, 4200), np.float32)[:, ::2], np.empty((2100, 2103), np.float32)[:, 1:-2]):
        cukern.add(x, y, out=out)
        assert np.array_equal(out, x + y)
    want = x + y
    cukern.add(x, y, out=x)
    assert np.array_equal(x, want)


def test_alignment_of_halves_of_an_element(rng: np.random.Generator) -> None:
    """Complex numbers may lie between two lines of the cache."""
    n = LEAST // 16 + 100
    memory = np.zeros(2 * n + 9)
    for first in range(9):
        out = memory[first : first + 2 * n].view(np.complex128)
        x = numbers(rng, "complex128", (n,))
        cukern.add(x, x, out=out)
        assert np.array_equal(out, x + x)


@pytest.mark.parametrize("source", ["int32", "float64", "bool", "complex64"])
def test_conversions(source: str, rng: np.random.Generator) -> None:
    n = LEAST // 4 + 77
    x = numbers(rng, source, (n,))
    out = np.zeros(n + 3, "float32")
    for first in range(3):
        cukern.copyto(out[first : first + n], x.real if source == "complex64" else x)
        assert np.array_equal(out[first : first + n], x.real.astype("float32"))
